/* The panels beside a canvas: likely words, relations, the beam as a tree; and the orders of many sentences. */
const svgSpace = document.querySelector("svg").namespaceURI;

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/* The likeliest words of the next step. pick(word, gap) writes one; look(gaps) shows where one would go. */
function likelyWords(trace, step, { pick, look }) {
  const options = trace.options[step];
  if (!options) return [element("p", { className: "quiet", textContent: "This model does not say what else it might have written." })];
  const next = trace.tokens[step];
  const list = element("ol", { className: "likely" });
  options.words.slice(0, 5).forEach((word, number) => {
    const best = word.gaps.indexOf(Math.max(...word.gaps));
    const row = element("button", {
      type: "button", className: word.token === next ? "chosen" : "", title: `write ${word.token} here`,
      "aria-label": `${word.token}, p = ${shownP(word.p)}${word.token === next ? ", written next" : ""}: write it`,
      onclick: () => pick(word.token, best), onmouseenter: () => look(word.gaps), onmouseleave: () => look(null),
      onfocus: () => look(word.gaps), onblur: () => look(null),
    }, element("span", { className: "rank", textContent: number + 1 }), element("b", { textContent: word.token, dir: "auto" }), element("span", { className: "p", textContent: shownP(word.p) }));
    row.style.setProperty("--p", word.p);
    list.append(element("li", {}, row));
  });
  const end = element("div", { className: `end${next === undefined && trace.finished ? " chosen" : ""}` }, element("span", { className: "rank", textContent: "■" }), element("b", { textContent: "end of the sentence" }), element("span", { className: "p", textContent: shownP(options.end) }));
  end.style.setProperty("--p", options.end);
  list.append(element("li", {}, end));
  return [list];
}

/* The relation matrix of the paper's Figure 4: a row's word stands left of (−) or right of (+) a column's. */
function relationMatrix(trace, step) {
  const last = trace.words.length + 1;
  const positions = [0, last];
  const names = ["<s>", "</s>"];
  for (let number = 1; number <= step; number += 1) {
    const index = trace.writtenAt.indexOf(number);
    positions.push(index + 1);
    names.push(trace.words[index]);
  }
  const head = element("tr", {}, element("td"), ...positions.map((_, number) => element("th", { scope: "col", textContent: number < 2 ? ["‹s›", "‹/s›"][number] : number - 1, title: names[number] })));
  const body = positions.map((row, number) => {
    const cells = positions.map((column, other) => {
      const sign = Math.sign(row - column);
      const newest = step > 0 && (number === positions.length - 1 || other === positions.length - 1);
      return element("td", { className: `${["left", "self", "right"][sign + 1]}${newest ? " new" : ""}`, textContent: ["−", "0", "+"][sign + 1] });
    });
    return element("tr", {}, element("th", { scope: "row", textContent: names[number], dir: "auto" }), ...cells);
  });
  const table = element("table", {}, element("caption", { className: "visually-hidden", textContent: "Relations of all written words" }), element("thead", {}, head), element("tbody", {}, ...body));
  return [
    element("p", { className: "quiet", textContent: "A row’s word stands left of (−) or right of (+) a column’s. A relation never changes; a step adds a row and a column." }),
    element("div", { className: "relations", tabIndex: 0, role: "region", "aria-label": "Relation matrix" }, table),
  ];
}

/* The beam step by step. What lies on the way to the answer is marked; what lost says by how much. */
function beamTree(trace, step) {
  const levels = trace.steps.map((one) => one.beam);
  const widest = Math.max(1, ...levels.map((level) => level.length));
  if (widest === 1) return [element("p", { className: "quiet", textContent: "A beam of 1 has no branches. Choose a wider beam to see what lost, and by how much." })];
  const columnWidth = 104, rowHeight = 36, width = 46 + (levels.length + 1) * columnWidth, height = 24 + (widest + 1) * rowHeight;
  const at = (level, row) => [46 + level * columnWidth, 14 + row * rowHeight];
  const said = element("p", { className: "tree-said", textContent: "Point at a hypothesis, or go to it with the tab key.", "aria-live": "polite" });
  const picture = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Beam" });
  const edges = drawn("g"), nodes = drawn("g");
  const won = (level, row) => level < trace.path.length - 1 && trace.path[level + 1] === row;
  levels.forEach((level, number) => {
    const best = level[0]?.log_prob;
    level.forEach((one, row) => {
      const [x, y] = at(number, row);
      const [fromX, fromY] = number ? at(number - 1, one.parent) : [6, 14];
      const isWon = won(number, row);
      edges.append(drawn("path", { class: isWon ? "won" : "", d: `M${number ? fromX + 78 : 14},${fromY + 12} C${x - 14},${fromY + 12} ${x - 22},${y + 12} ${x},${y + 12}` }));
      nodes.append(node(x, y, one.token, isWon ? "won" : "lost", `${one.canvas.join(" ")}: log p ${shownScore(one.log_prob)}${one.log_prob < best ? `, ${shownScore(best - one.log_prob)} behind the best of this step` : ", the best of this step"}`));
    });
    (trace.steps[number].ended ?? []).forEach((one, row) => {
      const [x, y] = at(number, level.length + row);
      const [fromX, fromY] = number ? at(number - 1, one.parent) : [6, 14];
      const isAnswer = number === trace.tokens.length && one.parent === trace.path[number];
      edges.append(drawn("path", { class: isAnswer ? "won" : "", d: `M${number ? fromX + 78 : 14},${fromY + 12} C${x - 14},${fromY + 12} ${x - 22},${y + 12} ${x},${y + 12}` }));
      nodes.append(node(x, y, "■ end", isAnswer ? "won ended" : "lost ended", `${one.canvas.join(" ")}: ends, log p ${shownScore(one.log_prob)}${isAnswer ? ", the answer" : ""}`));
    });
  });
  function node(x, y, label, kind, explanation) {
    const text = drawn("text", { x: x + 8, y: y + 17, class: kind.startsWith("lost") ? "lost" : "" });
    text.textContent = label.length > 9 ? `${label.slice(0, 8)}…` : label;
    const group = drawn("g", { class: kind, tabindex: 0, role: "img", "aria-label": explanation }, drawn("rect", { x, y, width: 78, height: 25 }), text);
    group.addEventListener("mouseenter", () => { said.textContent = explanation; });
    group.addEventListener("focus", () => { said.textContent = explanation; });
    return group;
  }
  picture.append(edges, nodes);
  const frame = element("div", { className: "tree", tabIndex: 0, role: "region", "aria-label": "Beam as a tree" }, picture);
  queueMicrotask(() => { frame.scrollLeft = Math.max(0, step * columnWidth - 160); });
  return [said, frame];
}

/* Position by step for many answers: ten by ten shares, and Kendall's tau with left to right. */
function orderPicture(answers, title) {
  const bins = 10, heat = Array.from({ length: bins }, () => new Array(bins).fill(0));
  const taus = [];
  for (const answer of answers) {
    const { positions } = answer.hypotheses[0];
    const tau = tauOf(positions);
    if (tau !== null) taus.push(tau);
    positions.forEach((position, step) => {
      const n = positions.length;
      heat[Math.min(bins - 1, Math.floor(bins * step / n))][Math.min(bins - 1, Math.floor(bins * (position - 1) / n))] += 1;
    });
  }
  const cells = heat.flatMap((row) => {
    const total = Math.max(1, row.reduce((sum, value) => sum + value, 0));
    return row.map((value) => { const cell = element("i", { title: `${Math.round(100 * value / total)} %` }); cell.style.setProperty("--heat", Math.sqrt(value / total)); return cell; });
  });
  const mean = taus.length ? taus.reduce((sum, value) => sum + value, 0) / taus.length : null;
  const said = mean === null ? "" : `Kendall’s tau with left to right: ${shownScore(mean)} (1: left to right, −1: right to left), mean of ${taus.length} sentences`;
  return element("div", {}, element("h3", { textContent: title }),
    element("div", { className: "heat", role: "img", "aria-label": `Steps from top to bottom, positions from left to right. ${said}` }, ...cells),
    element("p", { textContent: "↓ first to last step, → first to last position" }), element("p", { className: "tau", textContent: said }));
}

function answerList(answers) {
  return element("ul", { className: "several", tabIndex: 0, "aria-label": "Answers" }, ...answers.map((answer) => {
    const best = answer.hypotheses[0];
    const words = [];
    best.positions.forEach((position, step) => {
      words[position - 1] = tinted(element("span", { className: "chip", textContent: best.tokens[step], title: `step ${step + 1}` }), step + 1, best.tokens.length);
    });
    const line = element("div", {}, ...words);
    setDirection(line, best.tokens.join(" "));
    return element("li", {}, element("div", { className: "quiet", textContent: answer.source ?? "", dir: "auto" }), line);
  }));
}
