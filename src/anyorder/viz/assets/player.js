"use strict";
/* What the replay page, the studio and notebooks share: a canvas on which words drop into their gaps, and the transport
   that goes through its steps. Data is inserted as text and never read as markup. */
const byId = (id) => document.getElementById(id);
const stillness = matchMedia("(prefers-reduced-motion: reduce)");
const SECONDS_A_STEP = 0.9;
const ICONS = { play: "M8 5v14l11-7z", pause: "M7 5h3.5v14H7zM13.5 5H17v14h-3.5z" };
const RIGHT_TO_LEFT = /^[^A-Za-z\u00c0-\u024f\u0370-\u052f\u3040-\u9fff\uac00-\ud7af]*[\u0590-\u08ff\ufb1d-\ufefc]/;

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

function tinted(made, step, count) {
  made.classList.add("tinted");
  made.style.setProperty("--along", count > 1 ? (step - 1) / (count - 1) : 0);
  return made;
}

/* Scripts that are written from right to left run that way on the canvas too, gaps included. */
function setDirection(made, text) {
  made.dir = RIGHT_TO_LEFT.test(text) ? "rtl" : "ltr";
  if (/[\u3040-\u30ff]/.test(text)) made.lang = "ja";
  else if (/[\u4e00-\u9fff]/.test(text)) made.lang = "zh";
  else if (/[\uac00-\ud7af]/.test(text)) made.lang = "ko";
  else made.removeAttribute("lang");
}

const shownScore = (score) => score.toFixed(2).replace("-", "−");
const shownP = (p) => (p >= 0.995 || p < 0.005 ? p.toFixed(3) : p.toFixed(2));

/* The canvas of one trace: `words` from left to right, the step that wrote each (`writtenAt`), and the probability of each
   step. All words are there from the start, in their final order, and are hidden until their step: an insertion only shows
   one more. options.gap and options.word make elements with more than text, for the studio. */
class Player {
  constructor(trace, options = {}) {
    this.trace = trace;
    this.count = trace.words.length;
    this.options = options;
    const makeWord = options.word ?? ((word) => element("span", { className: "word", textContent: word }));
    this.items = trace.words.map((word, index) => {
      const step = trace.writtenAt[index];
      const chip = tinted(makeWord(word, index), step, this.count);
      chip.dir = "auto";
      const when = element("span", { className: "when", textContent: step, title: `written at step ${step}` });
      return element("li", {}, chip, when);
    });
    const edges = ["<s>", "</s>"].map((name) => element("li", { "aria-hidden": "true" }, element("span", { className: "boundary", textContent: name })));
    this.gaps = options.gap ? [...trace.words, null].map((_, index) => options.gap(index)) : [];
    const parts = this.items.flatMap((item, index) => (options.gap ? [this.gaps[index], item] : [item]));
    if (options.gap) parts.push(this.gaps[this.count]);
    this.canvas = element("ol", { className: "canvas" }, edges[0], ...parts, edges[1]);
    setDirection(this.canvas, trace.words.join(" "));
    this.action = element("p", { className: "action" });
  }

  isShown(index, step) { return this.trace.writtenAt[index] <= step; }

  /* The tokens on the canvas of a step, from left to right. */
  canvasAt(step) { return this.trace.words.filter((_, index) => this.isShown(index, step)); }

  /* The gap that a step's word goes into: the number of words to its left. */
  gapOf(step) {
    const index = this.trace.writtenAt.indexOf(step);
    return this.trace.writtenAt.slice(0, index).filter((other) => other < step).length;
  }

  describe(step) {
    const { trace, count } = this;
    if (step === 0) return ["The canvas is empty: the only gap is between <s> and </s>."];
    const index = trace.writtenAt.indexOf(step);
    const shown = (other) => trace.writtenAt[other] < step;
    let left = index - 1, right = index + 1;
    while (left >= 0 && !shown(left)) left -= 1;
    while (right < count && !shown(right)) right += 1;
    const bold = (text) => element("b", { textContent: text, dir: "auto" });
    const probability = trace.probabilities[step - 1];
    return [
      `Step ${step}: `, bold(trace.words[index]), " between ",
      bold(left < 0 ? "<s>" : trace.words[left]), " and ", bold(right === count ? "</s>" : trace.words[right]),
      probability === null || probability === undefined ? "" : `, p = ${shownP(probability)}`,
    ];
  }

  /* Words glide from where they were to where they are now; a new one drops into its gap. */
  show(step, speed = 1) {
    step = Math.min(step, this.count);
    const moving = [...this.canvas.children];
    const before = moving.map((item) => (item.hidden ? null : item.getBoundingClientRect()));
    this.items.forEach((item, index) => {
      item.hidden = !this.isShown(index, step);
      item.classList.toggle("newest", this.trace.writtenAt[index] === step);
      if (this.gaps.length) this.gaps[index].hidden = item.hidden;
    });
    this.action.replaceChildren(...this.describe(step));
    this.options.shown?.(this, step);
    if (stillness.matches) return;
    moving.forEach((item) => item.getAnimations().forEach((animation) => animation.cancel()));
    const duration = Math.min(520, 620 * SECONDS_A_STEP / speed);
    moving.forEach((item, number) => {
      if (item.hidden) return;
      const from = before[number];
      if (from === null) {
        item.animate(
          [{ opacity: 0, transform: "translateY(-22px) scale(.94)" }, { opacity: 1, transform: "none" }],
          { duration, easing: "cubic-bezier(.2, .9, .3, 1.15)", delay: duration / 4, fill: "backwards" });
        return;
      }
      const now = item.getBoundingClientRect();
      const x = from.left - now.left, y = from.top - now.top;
      if (x || y) item.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], { duration, easing: "cubic-bezier(.3, .7, .2, 1)" });
    });
  }

  /* A canvas is as high as its finished sentence needs, so that nothing below it jumps while it grows. */
  keepHeight() {
    const all = [...this.items, ...this.gaps];
    const hidden = all.map((item) => item.hidden);
    this.canvas.style.minHeight = "";
    all.forEach((item) => { item.hidden = false; });
    this.canvas.style.minHeight = `${this.canvas.offsetHeight}px`;
    all.forEach((item, index) => { item.hidden = hidden[index]; });
  }
}

function verdict(trace) {
  const made = element("div", { className: "verdict" });
  if (trace.equalsReference === true) made.append(element("span", { className: "good", textContent: "✓ exact", title: "equal to the reference" }));
  if (trace.equalsReference === false) made.append(element("span", { className: "bad", textContent: "✗ differs", title: "not equal to the reference" }));
  if (typeof trace.equalsReference === "boolean" && typeof trace.score === "number") made.append(" · ");
  if (typeof trace.score === "number") made.append(`score ${shownScore(trace.score)}`);
  return made;
}

function fillLegend(legend) {
  legend.append(...Array.from({ length: 9 }, (_, number) => tinted(element("i"), number + 1, 9)));
}

/* Goes through the steps of all players together, by buttons, slider and keys. */
class Transport {
  constructor() {
    this.players = [];
    this.step = 0;
    this.timer = null;
    this.changed = () => {};
    byId("previous").onclick = () => this.stepBy(-1);
    byId("next").onclick = () => this.stepBy(1);
    byId("play").onclick = () => this.toggle();
    byId("slider").oninput = (event) => { this.pause(); this.goTo(Number(event.target.value)); };
    addEventListener("resize", () => this.players.forEach((player) => player.keepHeight()));
    addEventListener("keydown", (event) => this.pressed(event));
  }

  get last() { return Math.max(0, ...this.players.map((player) => player.count)); }
  get speed() { return Number(byId("speed").value); }
  get isPlaying() { return this.timer !== null; }

  load(players, step) {
    this.pause();
    this.players = players;
    players.forEach((player) => player.keepHeight());
    this.goTo(step ?? this.last);
  }

  goTo(step) {
    const last = this.last;
    this.step = Math.min(Math.max(step, 0), last);
    this.players.forEach((player) => player.show(this.step, this.speed));
    byId("slider").max = last;
    byId("slider").value = this.step;
    byId("slider").setAttribute("aria-valuetext", `step ${this.step} of ${last}`);
    byId("progress").textContent = `step ${this.step} of ${last}`;
    byId("previous").disabled = this.step === 0;
    byId("next").disabled = this.step === last;
    this.changed(this.step);
  }

  play() {
    if (this.step === this.last) this.goTo(0);
    const advance = () => {
      this.goTo(this.step + 1);
      this.timer = null;
      if (this.step < this.last) wait(); else this.showPlaying();
    };
    const wait = () => { this.timer = setTimeout(advance, 1000 * SECONDS_A_STEP / this.speed); };
    wait();
    this.showPlaying();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.showPlaying();
  }

  toggle() { if (this.isPlaying) this.pause(); else this.play(); }
  stepBy(change) { this.pause(); this.goTo(this.step + change); }

  showPlaying() {
    byId("play").setAttribute("aria-label", this.isPlaying ? "Pause" : "Play");
    byId("play").querySelector("path").setAttribute("d", this.isPlaying ? ICONS.pause : ICONS.play);
    // A screen reader can't keep up with a replay; it reads the step again when the replay stops.
    byId("progress").setAttribute("aria-live", this.isPlaying ? "off" : "polite");
  }

  /* The focused element comes first: a slider, a text and a list use the arrows, a button uses the space bar. */
  pressed(event) {
    const focused = event.target.tagName;
    const writes = focused === "SELECT" || focused === "TEXTAREA" || event.target.type === "text" || event.target.type === "password";
    if (event.ctrlKey || event.metaKey || event.altKey || writes || event.target.closest?.("[role=tablist], dialog")) return;
    if (event.key === " " && focused !== "BUTTON" && focused !== "SUMMARY" && focused !== "A") { event.preventDefault(); this.toggle(); }
    if (focused === "INPUT") return;
    if (event.key === "ArrowLeft") { event.preventDefault(); this.stepBy(-1); }
    if (event.key === "ArrowRight") { event.preventDefault(); this.stepBy(1); }
  }
}
