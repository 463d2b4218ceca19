/* Asks the server: JSON in, JSON or a stream of steps out. */
let apiKey = "";

class Refused extends Error {
  constructor(message, status) { super(message); this.status = status; }
}

async function ask(path, body, onStep) {
  const headers = { "Content-Type": "application/json" };
  if (apiKey) headers.Authorization = `Bearer ${apiKey}`;
  let answer;
  try {
    answer = await fetch(path, body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) });
  } catch {
    throw new Refused("The server can't be reached. Is it still running?", 0);
  }
  if (answer.status === 401 && await askForKey()) return ask(path, body, onStep);
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw new Refused(said.error ?? `The server said ${answer.status}.`, answer.status);
  }
  if (!(answer.headers.get("content-type") ?? "").startsWith("text/event-stream")) return answer.json();
  return readEvents(answer, onStep);
}

async function readEvents(answer, onStep) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done) throw new Refused("The server stopped before the answer was complete.", 0);
    waiting += value;
    const events = waiting.split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const kind = event.match(/^event: (.*)$/m)?.[1];
      const data = event.match(/^data: (.*)$/m)?.[1];
      if (kind === "step") onStep?.(JSON.parse(data));
      if (kind === "answer") return JSON.parse(data);
      if (kind === "error") throw new Refused(JSON.parse(data).error, 422);
    }
  }
}

function askForKey() {
  const dialog = byId("key-dialog");
  return new Promise((settled) => {
    dialog.onclose = () => { apiKey = byId("key").value.trim(); settled(dialog.returnValue === "ok" && apiKey !== ""); };
    dialog.returnValue = "";
    dialog.showModal();
  });
}

/* A trace from an answer and the steps that were streamed before it: the player's form, and what it might have done. */
function traceOf(answer, steps) {
  const best = answer.hypotheses[0];
  const words = [], writtenAt = [];
  best.tokens.forEach((token, number) => {
    words[best.positions[number] - 1] = token;
    writtenAt[best.positions[number] - 1] = number + 1;
  });
  const probabilities = best.tokens.map((_, number) => Math.exp(best.word_scores[number] + best.gap_scores[number]));
  const trace = { words, writtenAt, probabilities, score: best.score, text: best.text, finished: best.finished, answer, steps };
  trace.gaps = best.tokens.map((_, number) => best.positions.slice(0, number).filter((other) => other < best.positions[number]).length);
  trace.tokens = best.tokens;
  trace.path = pathOf(trace, steps);
  trace.options = trace.path.map((hypothesis, step) => steps[step]?.options[hypothesis] ?? null);
  return trace;
}

/* Which hypothesis of each step the best one grew from, from step 0. */
function pathOf(trace, steps) {
  const path = [0];
  trace.tokens.forEach((token, number) => {
    const parent = path[number];
    const found = steps[number]?.beam.findIndex((one) => one.parent === parent && one.token === token && one.gap === trace.gaps[number]);
    path.push(found === undefined || found < 0 ? 0 : found);
  });
  return path;
}

/* Kendall's tau of an order with left to right: concordant less discordant pairs, by all pairs. */
function tauOf(positions) {
  let pairs = 0, total = 0;
  for (let later = 1; later < positions.length; later += 1) {
    for (let earlier = 0; earlier < later; earlier += 1) {
      total += Math.sign(positions[later] - positions[earlier]);
      pairs += 1;
    }
  }
  return pairs ? total / pairs : null;
}

/* The order that a name means, as positions by step, where it follows from the length alone. */
const ORDERS = {
  l2r: (n) => Array.from({ length: n }, (_, step) => step + 1),
  r2l: (n) => Array.from({ length: n }, (_, step) => n - step),
  odd: (n) => [...Array.from({ length: Math.ceil(n / 2) }, (_, i) => 2 * i + 1), ...Array.from({ length: Math.floor(n / 2) }, (_, i) => 2 * i + 2)],
};

/* The steps that write words, given from left to right, in an order of positions. */
function stepsInOrder(words, positions) {
  return positions.map((position, step) => ({
    token: words[position - 1],
    gap: positions.slice(0, step).filter((other) => other < position).length,
  }));
}
