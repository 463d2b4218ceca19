/* The studio: what is asked, what came of it, and how people push it. */
const MOST_ALTERNATIVES = 5;
const state = {
  models: [], sides: [], photo: null,
  pins: [], // words that stay, from left to right
  past: [], // for undo
};
const transport = new Transport();
const ORDER_NAMES = { own: "as the model likes", l2r: "left to right", r2l: "right to left", odd: "odd positions first", sao: "likeliest order found" };

/* --- sides: a model with its settings, and what it wrote --- */

function makeSide(number) {
  // begin: steps that are taken first, each { token, gap, mine }.
  const side = { number, player: null, trace: null, tab: "likely", begin: [] };
  const pick = (label, ...options) => {
    const id = `${label.toLowerCase()}-${number}`;
    const select = element("select", { id }, ...options);
    select.onchange = () => run([side]);
    return [element("div", {}, element("label", { htmlFor: id, textContent: label }), select), select];
  };
  const [modelField, model] = pick("Model", ...state.models.map((one) => element("option", { value: one.name, textContent: one.name })));
  const [orderField, order] = pick("Order", ...Object.entries(ORDER_NAMES).map(([value, textContent]) => element("option", { value, textContent })));
  const [beamField, beam] = pick("Beam", ...[1, 2, 3, 5, 8].map((value) => element("option", { value, textContent: value })));
  Object.assign(side, { model, order, beam });
  side.verdict = element("div", { className: "verdict" });
  side.scene = element("div", { className: "scene" });
  side.panel = element("div", { className: "panel", id: `panel-${number}`, role: "tabpanel" });
  side.tabs = tabList(`Beside the canvas ${number + 1}`, { likely: "Next word", relations: "Relations", beam: "Beam" }, side.panel.id, (tab) => { side.tab = tab; side.stage.classList.toggle("wide", tab === "beam"); side.player?.keepHeight(); showPanel(side, transport.step); });
  side.stage = element("div", { className: "stage" }, side.scene, element("div", {}, side.tabs, side.panel));
  side.card = element("section", { className: "side card", "aria-label": `Sentence ${number + 1}` }, element("div", { className: "controls" }, modelField, orderField, beamField, side.verdict), side.stage);
  showEmpty(side);
  return side;
}

function tabList(label, names, controls, chosen) {
  const tabs = Object.entries(names).map(([name, text], number) => element("button", {
    role: "tab", type: "button", textContent: text, "aria-selected": String(number === 0), "aria-controls": controls, tabIndex: number ? -1 : 0,
    onclick: (event) => select(event.currentTarget, name),
  }));
  const list = element("div", { role: "tablist", "aria-label": label }, ...tabs);
  function select(tab, name) {
    tabs.forEach((other) => { other.setAttribute("aria-selected", String(other === tab)); other.tabIndex = other === tab ? 0 : -1; });
    chosen(name);
  }
  list.onkeydown = (event) => moveInTabs(event, tabs);
  return list;
}

function moveInTabs(event, tabs) {
  const change = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!change) return;
  event.preventDefault();
  const next = tabs[(tabs.indexOf(document.activeElement) + change + tabs.length) % tabs.length];
  next.focus();
  next.click();
}

function showEmpty(side) {
  const card = modelOf(side);
  const examples = exampleSources(card).map((source) => element("button", { type: "button", className: "ghost", textContent: source, onclick: () => { setSource(source); run(); } }));
  side.scene.replaceChildren(element("div", { className: "empty" }, element("div", {}, "Write a source and press Write. Words will drop into their gaps, one by one.", element("div", { className: "examples" }, ...examples))));
  side.panel.replaceChildren();
}

function exampleSources(card) {
  if (!card || card.reads !== "text") return [];
  return /django/i.test(`${card.data} ${card.name}`) ? ["if kettle is an instance of Copper ,", "return the length of soup .", "call the function brew with arguments teapot and water ."] : [];
}

const modelOf = (side) => state.models.find((one) => one.name === side.model.value);

/* --- asking --- */

const words = (id) => byId(id).value.split(/[;；]/).map((word) => word.trim()).filter(Boolean);

/* The question of one side, as the server takes it. */
function questionOf(side, { plain = false } = {}) {
  const question = { model: side.model.value };
  if (modelOf(side).reads === "photos") question.photo = state.photo?.base64;
  else if (modelOf(side).reads === "text") question.source = byId("source").value.trim().replace(/\s*\n\s*/g, " ");
  question.beam = Number(side.beam.value);
  const template = state.pins.length ? pinned(state.pins) : byId("template").value.trim();
  const canvas = { template, must: words("must"), forbid: words("forbid") };
  for (const [key, value] of Object.entries(canvas)) if (value.length) question[key] = value;
  if (!plain && modelOf(side).streams && !question.photo) {
    question.stream = true;
    question.alternatives = MOST_ALTERNATIVES;
    if (side.begin.length) question.begin = side.begin.map(({ token, gap }) => ({ token, gap }));
  }
  return question;
}

const pathFor = (question) => (question.template || question.must || question.forbid ? "/v1/complete" : "/v1/generate");
const pinned = (pins) => `___{0,} ${pins.join(" ___{0,} ")} ___{0,}`;

async function answerOf(side) {
  let question = questionOf(side);
  let steps = [];
  let answer = await ask(pathFor(question), question, (step) => steps.push(step));
  const wanted = side.order.value;
  if (wanted === "own" || !question.stream) return traceOf(answer, steps);
  // The same sentence, written in another order.
  const text = traceOf(answer, steps);
  const positions = ORDERS[wanted]?.(text.words.length) ?? (await ask("/v1/score", { model: question.model, source: question.source, target: text.text, order: wanted })).positions;
  question = { model: question.model, source: question.source, stream: true, alternatives: MOST_ALTERNATIVES, begin: stepsInOrder(text.words, positions) };
  steps = [];
  answer = await ask("/v1/generate", question, (step) => steps.push(step));
  return traceOf(answer, steps);
}

/* Ask for some sides, and play what is new. from: the step to begin to play at. */
async function run(sides = state.sides, { from = 0, play = true } = {}) {
  if (sides.some((side) => modelOf(side)?.reads === "photos") && !state.photo) {
    say("Choose a photo first.", true);
    return;
  }
  closeMenu();
  say("");
  byId("write").disabled = true;
  sides.forEach((side) => side.card.classList.add("writing"));
  const results = await Promise.allSettled(sides.map(answerOf));
  byId("write").disabled = false;
  sides.forEach((side, number) => {
    side.card.classList.remove("writing");
    const { status, value, reason } = results[number];
    if (status === "fulfilled") showTrace(side, value);
    else say(reason.message, true);
  });
  if (results.every(({ status }) => status === "rejected")) return;
  showPushes();
  const players = state.sides.map((side) => side.player).filter(Boolean);
  if (stillness.matches || !play) transport.load(players);
  else { transport.load(players, Math.min(from, Math.max(0, ...players.map((player) => player.count)))); if (transport.step < transport.last) transport.play(); }
  byId("said").textContent = state.sides.map((side) => side.trace?.text).filter(Boolean).join("; ");
  remember();
}

function say(text, isWrong = false) {
  byId("message").hidden = !(text && isWrong);
  byId("message").textContent = isWrong ? text : "";
}

/* --- what came of it --- */

function showTrace(side, trace) {
  side.trace = trace;
  const can = modelOf(side).can;
  side.player = new Player(trace, {
    gap: (index) => gapElement(side, index),
    word: (word, index) => {
      const mine = side.begin[trace.writtenAt[index] - 1]?.mine;
      const chip = element("button", { type: "button", className: `word${mine ? " given" : ""}${state.pins.includes(word) ? " pinned" : ""}`, textContent: word, "aria-haspopup": "dialog" });
      chip.onclick = () => openWord(side, index, chip);
      return chip;
    },
    shown: (player, step) => { showGaps(side, step); showPanel(side, step); },
  });
  side.can = can;
  const ending = trace.finished ? "" : ", cut off at the longest length";
  side.verdict.textContent = `${trace.words.length} steps · score ${shownScore(trace.score)}${ending}`;
  side.scene.replaceChildren(side.player.canvas, side.player.action, element("p", { className: "text", textContent: trace.text || "(nothing)", dir: "auto" }));
}

function gapElement(side, index) {
  const button = element("button", { type: "button", "aria-haspopup": "dialog" });
  button.onclick = () => openGap(side, button);
  const item = element("li", { className: "gap" }, button, element("small", { "aria-hidden": "true" }));
  item.index = index;
  return item;
}

/* The heat strip: how likely each gap is for the word that comes next, or for the one that is pointed at. */
function showGaps(side, step, gaps = null) {
  const { trace, player } = side;
  const options = trace.options[step];
  const next = options?.words.find((word) => word.token === trace.tokens[step]) ?? options?.words[0];
  const chances = gaps ?? next?.gaps ?? null;
  const shown = [...player.gaps].filter((gap) => !gap.hidden);
  const canvas = ["<s>", ...player.canvasAt(step), "</s>"];
  shown.forEach((gap, number) => {
    const p = chances?.[number];
    const button = gap.firstChild;
    gap.number = number;
    gap.style.setProperty("--heat", p ?? 0);
    gap.lastChild.textContent = p >= 0.005 ? (p >= 0.995 ? "1" : p.toFixed(2).replace("0.", ".")) : "";
    button.setAttribute("aria-label", `Gap between ${canvas[number]} and ${canvas[number + 1]}${p === undefined ? "" : `, p = ${shownP(p)}`}: write a word here`);
  });
}

function showPanel(side, step) {
  if (!side.trace) return;
  const shown = Math.min(step, side.player.count);
  const made = {
    likely: () => likelyWords(side.trace, shown, { pick: (word, gap) => push(side, word, gap), look: (gaps) => showGaps(side, shown, gaps) }),
    relations: () => relationMatrix(side.trace, shown),
    beam: () => beamTree(side.trace, shown),
  }[side.tab]();
  side.panel.replaceChildren(...made);
}

/* --- pushing --- */

/* The steps up to the one that is shown, as the server takes them. */
function stepsSoFar(side) {
  const shown = Math.min(transport.step, side.player.count);
  return side.trace.tokens.slice(0, shown).map((token, number) => ({ token, gap: side.trace.gaps[number], mine: side.begin[number]?.mine ?? false }));
}

function change(what) {
  state.past.push({ begins: state.sides.map((side) => side.begin), pins: state.pins, template: byId("template").value, must: byId("must").value, forbid: byId("forbid").value });
  what();
}

const pushed = () => state.sides.some((side) => side.begin.length > 0);
function forget() { state.sides.forEach((side) => { side.begin = []; }); }

function push(side, token, gap) {
  const steps = stepsSoFar(side);
  change(() => { side.begin = [...steps, { token, gap, mine: true }]; });
  side.order.value = "own";
  run([side], { from: steps.length });
}

function takeBack(side, index) {
  const step = side.trace.writtenAt[index];
  const kept = stepsSoFar(side).filter((_, number) => number + 1 !== step);
  const positions = kept.map((_, number) => side.trace.writtenAt.indexOf(number + 1 < step ? number + 1 : number + 2));
  change(() => {
    side.begin = kept.map((one, number) => ({ ...one, gap: positions.slice(0, number).filter((other) => other < positions[number]).length }));
  });
  side.order.value = "own";
  run([side], { from: kept.length });
}

function addTo(id, word) {
  const known = words(id);
  if (!known.includes(word)) byId(id).value = [...known, word].join("; ");
}

/* The whole word that a token belongs to: pieces that go on end with a dot, as answers show them. */
function wholeWord(side, index) {
  const shown = side.trace.words;
  const goesOn = (token) => token !== undefined && token.length > 1 && token.endsWith("·");
  let first = index, last = index;
  while (goesOn(shown[first - 1])) first -= 1;
  while (goesOn(shown[last]) && last + 1 < shown.length) last += 1;
  return shown.slice(first, last + 1).map((token) => (goesOn(token) ? token.slice(0, -1) : token)).join("");
}

/* The model goes on from the steps before the word was first written. */
function forbid(side, index) {
  const word = wholeWord(side, index);
  const first = Math.min(...side.trace.writtenAt.filter((_, other) => wholeWord(side, other) === word));
  const before = stepsSoFar(side).slice(0, first - 1);
  change(() => { addTo("forbid", word); side.begin = before; });
  run([side], { from: before.length });
}

function require(side, index) {
  change(() => { addTo("must", wholeWord(side, index)); forget(); });
  run(state.sides);
}

/* A pinned word stays where it stands among the others that are pinned; all else is written anew around it. */
function pin(side, index) {
  const word = wholeWord(side, index);
  const all = side.trace.words.map((_, other) => other).filter((other) => other === index || state.pins.includes(side.trace.words[other]));
  change(() => { state.pins = all.map((other) => (other === index ? word : side.trace.words[other])); forget(); });
  run(state.sides);
}

function showPushes() {
  const chip = (text, remove) => element("li", {}, element("span", { textContent: text, dir: "auto" }), element("button", { type: "button", textContent: "×", "aria-label": `Undo: ${text}`, onclick: () => { change(remove); run(); } }));
  const chips = [
    ...state.sides.flatMap((side) => side.begin.map((step, number) => step.mine && chip(`${step.token} written by you`, () => { side.begin = side.begin.slice(0, number); })).filter(Boolean)),
    ...state.pins.map((word) => chip(`${word} pinned`, () => { state.pins = state.pins.filter((other) => other !== word); })),
  ];
  if (chips.length || pushed()) chips.push(element("li", {}, element("button", { type: "button", className: "all", textContent: "start over", onclick: () => { change(() => { forget(); state.pins = []; }); run(); } })));
  byId("pushes").replaceChildren(...chips);
}

function undo() {
  const before = state.past.pop();
  if (!before) return;
  state.sides.forEach((side, number) => { side.begin = before.begins[number] ?? []; });
  state.pins = before.pins;
  for (const id of ["template", "must", "forbid"]) byId(id).value = before[id];
  run();
}

/* --- menus --- */

let opener = null;

function openMenu(anchor, ...content) {
  transport.pause();
  const menu = byId("menu");
  menu.replaceChildren(...content);
  menu.hidden = false;
  opener = anchor;
  const at = anchor.getBoundingClientRect();
  menu.style.top = `${at.bottom + scrollY + 8}px`;
  menu.style.left = `${Math.max(12, Math.min(at.left + at.width / 2 - menu.offsetWidth / 2, innerWidth - menu.offsetWidth - 12)) + scrollX}px`;
  menu.querySelector("input, button")?.focus();
}

function closeMenu() {
  if (byId("menu").hidden) return;
  byId("menu").hidden = true;
  if (opener?.isConnected) opener.focus();
}

function openGap(side, button) {
  if (!modelOf(side).streams) return;
  const gap = button.parentElement.number;
  const input = element("input", { type: "text", placeholder: "a word", "aria-label": "Word to write into this gap", spellcheck: false, dir: "auto" });
  const form = element("form", {}, input, element("button", { textContent: "Write" }));
  form.onsubmit = (event) => { event.preventDefault(); if (input.value.trim()) push(side, input.value.trim(), gap); };
  openMenu(button, form);
}

function openWord(side, index, chip) {
  const step = side.trace.writtenAt[index], probability = side.trace.probabilities[step - 1];
  const word = wholeWord(side, index);
  const act = (text, action, allowed = true) => allowed && element("button", { type: "button", textContent: text, onclick: () => action(side, index) });
  const completes = side.can.includes("complete");
  const actions = [
    act("Take it back", takeBack, modelOf(side).streams),
    act("Forbid it", forbid, completes), act("Require it", require, completes), act("Pin it here", pin, completes),
  ].filter(Boolean);
  openMenu(chip, element("p", {}, element("b", { textContent: word, dir: "auto" }), ` step ${step}, p = ${shownP(probability)}`), ...actions);
}

/* --- sharing and exporting --- */

function snapshot() {
  return {
    s: byId("source").value, t: byId("template").value, m: byId("must").value, f: byId("forbid").value,
    p: state.pins, x: state.sides.map((side) => [side.model.value, side.order.value, side.beam.value, side.begin]),
  };
}

const encoded = (value) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value)))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decoded = (text) => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0))));

function remember() { history.replaceState(null, "", `#${encoded(snapshot())}`); }

/* What the fragment holds is somebody else's: only what has the right form is taken. */
function restore() {
  let saved;
  try { saved = decoded(location.hash.slice(1)); } catch { return false; }
  if (typeof saved !== "object" || saved === null) return false;
  const text = (value) => (typeof value === "string" ? value : "");
  setSource(text(saved.s));
  byId("template").value = text(saved.t);
  byId("must").value = text(saved.m);
  byId("forbid").value = text(saved.f);
  state.pins = (Array.isArray(saved.p) ? saved.p : []).filter((word) => typeof word === "string");
  const sides = Array.isArray(saved.x) ? saved.x : [];
  setSides(sides.length > 1 ? 2 : 1);
  sides.slice(0, 2).forEach((values, number) => {
    ["model", "order", "beam"].forEach((name, column) => {
      const select = state.sides[number][name];
      if ([...select.options].some((option) => option.value === String(values?.[column]))) select.value = String(values[column]);
    });
    const begin = Array.isArray(values?.[3]) ? values[3] : [];
    state.sides[number].begin = begin.filter((one) => typeof one?.token === "string" && Number.isInteger(one?.gap)).map(({ token, gap, mine }) => ({ token, gap, mine: mine === true }));
  });
  return byId("source").value !== "" || state.sides.some((side) => modelOf(side).reads === "nothing");
}

async function copy(text, what) {
  try { await navigator.clipboard.writeText(text); byId("said").textContent = `${what} copied`; flash(byId("share"), "Copied"); }
  catch { download(new Blob([text], { type: "text/plain" }), "anyorder.txt"); }
}

function flash(button, text) {
  const before = button.dataset.label ?? button.textContent;
  button.dataset.label = before;
  button.textContent = text;
  setTimeout(() => { button.textContent = before; }, 1400);
}

function curlOf(side) {
  const question = questionOf(side, { plain: true });
  return `curl -s ${location.origin}${pathFor(question)} -H 'Content-Type: application/json'${apiKey ? " -H \"Authorization: Bearer $KEY\"" : ""} -d '${JSON.stringify(question).replaceAll("'", "'\\''")}'`;
}

/* The same question in Python; JSON's strings, numbers and lists are Python's too. */
function pythonOf(side) {
  const { model, source, photo, ...rest } = questionOf(side, { plain: true });
  const canvas = {}, options = {};
  for (const [key, value] of Object.entries(rest)) (["template", "must", "forbid"].includes(key) ? canvas : options)[key] = value;
  const given = photo ? "pathlib.Path(\"photo.jpg\")" : JSON.stringify(source ?? "");
  const named = Object.entries(options).map(([key, value]) => `, ${key}=${JSON.stringify(value)}`).join("");
  const call = Object.keys(canvas).length ? `complete(${given}, ${JSON.stringify(canvas)}${named})` : `generate(${given}${named})`;
  return `${photo ? "import pathlib\n\n" : ""}import anyorder\n\nmodel = anyorder.load(${JSON.stringify(model)})\nanswer = model.${call}\nprint(answer.text)\n`;
}

function fillExports() {
  const side = state.sides[0];
  const item = (text, action, needsTrace = true) => element("button", { type: "button", textContent: text, disabled: needsTrace && !side.trace, onclick: async () => { toggleExports(false); await action(); } });
  byId("exports").replaceChildren(
    item("Copy text", () => copy(side.trace.text, "Text")),
    item("Copy JSON", () => copy(JSON.stringify(side.trace.answer, null, 1), "JSON")),
    item("Copy curl", () => copy(curlOf(side), "curl"), false),
    item("Copy Python", () => copy(pythonOf(side), "Python"), false),
    item("Steps as SVG", () => download(new Blob([asSvg(side.player)], { type: "image/svg+xml" }), "steps.svg")),
    item("Steps as PNG", async () => download(await asPng(side.player), "steps.png")),
    item("Animation as GIF", () => download(asGif(side.player), "steps.gif")),
  );
}

function toggleExports(open = byId("exports").hidden) {
  if (open) fillExports();
  byId("exports").hidden = !open;
  byId("export").setAttribute("aria-expanded", String(open));
  if (open) byId("exports").querySelector("button:enabled")?.focus();
}

/* --- many sentences --- */

async function writeMany() {
  const sources = byId("lines").value.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!sources.length) { say("Write a source on each line first.", true); return; }
  say("");
  byId("write-many").disabled = true;
  try {
    const most = state.models[0].bounds.max_sources;
    const columns = [];
    for (const side of state.sides) {
      const answers = [];
      for (let first = 0; first < sources.length; first += most) {
        byId("said").textContent = `${first} of ${sources.length} written`;
        answers.push(...(await ask("/v1/generate", { model: side.model.value, sources: sources.slice(first, first + most), beam: Number(side.beam.value) })).answers);
      }
      columns.push([side.model.value, answers]);
    }
    showOrders(columns);
  } catch (error) { say(error.message, true); }
  byId("write-many").disabled = false;
}

function showOrders(columns) {
  byId("orders").replaceChildren(element("div", { className: "orders-grid" }, ...columns.flatMap(([name, answers]) => [orderPicture(answers, name)]), ...columns.map(([, answers]) => answerList(answers))));
}

async function openAnswers(file) {
  try {
    const answers = (await file.text()).split("\n").filter((line) => line.trim()).map((line) => JSON.parse(line)).filter((one) => one.hypotheses?.[0]?.positions);
    if (!answers.length) throw new Error("no answers in it");
    showOrders([[file.name, answers]]);
    say("");
  } catch (error) { say(`${file.name}: not what anyorder generate --json writes (${error.message})`, true); }
}

/* --- photos --- */

function readPhoto(file) {
  if (!file?.type.startsWith("image/")) { say("That is not a picture.", true); return; }
  const reader = new FileReader();
  reader.onload = () => {
    state.photo = { base64: reader.result.slice(reader.result.indexOf(",") + 1) };
    byId("preview").src = reader.result;
    byId("preview").hidden = false;
    run();
  };
  reader.readAsDataURL(file);
}

/* --- the page --- */

function setSource(text) { byId("source").value = text; fit(); }
function fit() { const area = byId("source"); area.style.height = "auto"; area.style.height = `${area.scrollHeight + 2}px`; }

function setSides(count) {
  while (state.sides.length < count) {
    const side = makeSide(state.sides.length);
    if (state.sides.length) {
      side.model.value = state.models[Math.min(1, state.models.length - 1)].name;
      side.beam.value = state.sides[0].beam.value;
      if (state.models.length === 1) side.order.value = "r2l";
    }
    state.sides.push(side);
  }
  state.sides.length = count;
  byId("compare").checked = count === 2;
  byId("sides").classList.toggle("two", count === 2);
  byId("sides").replaceChildren(...state.sides.map((side) => side.card));
}

function showFields() {
  const reads = new Set(state.sides.map((side) => modelOf(side).reads));
  byId("source-field").hidden = !reads.has("text");
  byId("photo-field").hidden = !reads.has("photos");
}

function chooseView(many) {
  byId("one").hidden = many;
  byId("many").hidden = !many;
  byId("tab-one").setAttribute("aria-selected", String(!many));
  byId("tab-many").setAttribute("aria-selected", String(many));
  byId("tab-one").tabIndex = many ? -1 : 0;
  byId("tab-many").tabIndex = many ? 0 : -1;
}

function nextTheme() {
  const themes = ["", "light", "dark"];
  const theme = themes[(themes.indexOf(document.documentElement.dataset.theme ?? "") + 1) % 3];
  if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
  byId("theme").textContent = { "": "◐", light: "○", dark: "●" }[theme];
  byId("theme").setAttribute("aria-label", `Colours: ${theme || "as the system has them"}`);
}

function pressed(event) {
  const target = event.target;
  if (event.key === "Escape") { closeMenu(); toggleExports(false); return; }
  if (target === byId("source") && event.key === "Enter" && !event.shiftKey) { event.preventDefault(); fresh(); return; }
  if (["text", "password", "textarea", "select-one"].includes(target.type) || event.ctrlKey || event.metaKey || event.altKey || target.closest("dialog")) return;
  if (event.key === "/") { event.preventDefault(); byId("source").focus(); }
  if (event.key === "?") byId("help-dialog").showModal();
  if (event.key === "u") undo();
  if (/^[1-5]$/.test(event.key) && state.sides[0]?.tab === "likely") state.sides[0].panel.querySelectorAll(".likely button")[Number(event.key) - 1]?.click();
}

/* A new question: what was pushed belongs to the old one. */
function fresh() {
  if (pushed() || state.pins.length) change(() => { forget(); state.pins = []; });
  run();
}

async function start() {
  fillLegend(document.querySelector(".legend div"));
  byId("ask").onsubmit = (event) => { event.preventDefault(); fresh(); };
  byId("source").oninput = fit;
  byId("compare").onchange = (event) => { setSides(event.target.checked ? 2 : 1); showFields(); if (event.target.checked && state.sides[0].trace) run(); else transport.load(state.sides.map((side) => side.player).filter(Boolean)); };
  byId("more").open = innerWidth > 700;
  byId("share").onclick = () => { remember(); copy(location.href, "Address"); };
  byId("export").onclick = () => toggleExports();
  byId("theme").onclick = nextTheme;
  byId("help").onclick = () => byId("help-dialog").showModal();
  byId("tab-one").onclick = () => chooseView(false);
  byId("tab-many").onclick = () => chooseView(true);
  byId("view-tabs").onkeydown = (event) => moveInTabs(event, [byId("tab-one"), byId("tab-many")]);
  byId("write-many").onclick = writeMany;
  byId("answers-file").onchange = (event) => event.target.files[0] && openAnswers(event.target.files[0]);
  byId("photo").onchange = (event) => readPhoto(event.target.files[0]);
  byId("drop").ondragover = (event) => { event.preventDefault(); byId("drop").classList.add("over"); };
  byId("drop").ondragleave = () => byId("drop").classList.remove("over");
  byId("drop").ondrop = (event) => { event.preventDefault(); byId("drop").classList.remove("over"); readPhoto(event.dataTransfer.files[0]); };
  transport.changed = () => { if (!transport.isPlaying) byId("said").textContent = state.sides.map((side) => side.player?.action.textContent).filter(Boolean).join("; "); };
  addEventListener("keydown", pressed);
  addEventListener("pointerdown", (event) => {
    if (!byId("menu").hidden && !byId("menu").contains(event.target)) byId("menu").hidden = true;
    if (!event.target.closest(".menu")) toggleExports(false);
  });
  try { state.models = (await ask("/v1/models")).models; } catch (error) { say(error.message, true); return; }
  setSides(1);
  state.sides.forEach((side) => { side.model.addEventListener("change", showFields); });
  const isShared = location.hash.length > 1 && restore();
  showFields();
  fit();
  document.body.dataset.ready = "true";
  if (isShared) run();
}

start();
