"use strict";

const byId = (id) => document.getElementById(id);
const COLOURS = 4;
const WHOLE = { minimumFractionDigits: 0, maximumFractionDigits: 0 };
const ONE = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
const TWO = { minimumFractionDigits: 2, maximumFractionDigits: 2 };
const number = (value, form) =>
  value === null || !Number.isFinite(value) ? "–" : value.toLocaleString("en", form);

let model = null;
let running = null;

// -- the server -------------------------------------------------------------------------------

function headers() {
  const key = byId("key").value;
  const found = { "content-type": "application/json" };
  return key ? { ...found, authorization: `Bearer ${key}` } : found;
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  const error = new Error(body?.error?.message ?? `the server answered ${response.status}`);
  error.status = response.status;
  return error;
}

async function connect() {
  try {
    const response = await fetch("v1/models", { headers: headers() });
    if (!response.ok) throw await failure(response);
    model = (await response.json()).data[0];
    const { lossy } = model.outrider;
    const loss = lossy ? `, LOSSY (${lossy}): answers may differ from the model's own` : "";
    byId("server").textContent = `${model.id}, ready${loss}`;
    byId("server").classList.toggle("bad", Boolean(lossy));
    byId("speculative-title").textContent = lossy ? `Speculative, LOSSY (${lossy})` : "Speculative";
    showDrafters(model.outrider.drafters);
    say("");
  } catch (error) {
    byId("server").textContent = error.message;
    if (error.status === 401) byId("key-field").hidden = false;
    else setTimeout(connect, 2000);
  }
}

function showDrafters(drafters) {
  const named = drafters.filter((name) => name !== "prediction");
  const options = named.map((name) => new Option(name, name));
  byId("drafter").replaceChildren(new Option("all", ""), ...options);
  const entries = named.map((name) => entry(`accepted ${colour(name)}`, `guessed by ${name}`));
  byId("legend").replaceChildren(
    ...entries,
    entry("recovered", "the target's, after a wrong guess"),
    entry("bonus", "the target's, after right guesses"),
    entry("", "the target's, nothing guessed"),
  );
}

const titles = {
  accepted: (drafter) => `guessed by ${drafter ?? "a drafter"}`,
  recovered: () => "the target's, after a wrong guess",
  bonus: () => "the target's, after right guesses",
};

function entry(classes, text) {
  const item = document.createElement("li");
  const sample = document.createElement("span");
  sample.className = classes;
  sample.textContent = "token";
  item.append(sample, ` ${text}`);
  return item;
}

function colour(drafter) {
  const place = model.outrider.drafters.indexOf(drafter);
  return place < 0 ? "of-any" : `of-${place % COLOURS}`;
}

// -- one answer -------------------------------------------------------------------------------

function body(isPlain, seed) {
  const prompt = byId("prompt").value;
  const drafter = byId("drafter").value;
  const speculation = { details: true, enabled: !isPlain };
  if (drafter && !isPlain) speculation.drafter = drafter;
  const asked = model.outrider.has_chat_template
    ? { messages: [{ role: "user", content: prompt }] }
    : { prompt };
  return {
    ...asked,
    model: model.id,
    max_tokens: Number(byId("tokens").value),
    temperature: Number(byId("temperature").value),
    seed,
    stream: true,
    speculation,
  };
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the stream ended early");
    const lines = (held + value).split("\n\n");
    held = lines.pop();
    for (const line of lines) {
      const data = line.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

class Panel {
  constructor(id) {
    this.section = byId(id);
    this.textBox = this.section.querySelector(".text");
    this.figures = this.section.querySelector(".figures");
    this.split = this.section.querySelector(".split");
    this.isPlain = id === "plain";
    this.clear();
  }

  clear() {
    this.text = "";
    this.first = this.last = null;
    this.told = null;
    this.textBox.replaceChildren();
    this.figures.replaceChildren();
    this.split.replaceChildren();
  }

  async write(seed, signal) {
    this.textBox.setAttribute("aria-busy", "true");
    try {
      const path = model.outrider.has_chat_template ? "v1/chat/completions" : "v1/completions";
      const request = { method: "POST", headers: headers(), signal };
      const sent = JSON.stringify(body(this.isPlain, seed));
      const response = await fetch(path, { ...request, body: sent });
      if (!response.ok) throw await failure(response);
      for await (const event of events(response)) {
        if (event.speculation) this.add(event.speculation);
      }
    } finally {
      this.textBox.setAttribute("aria-busy", "false");
    }
  }

  add(told) {
    const now = performance.now();
    if (this.first === null) this.first = { at: now, tokens: told.tokens };
    this.last = { at: now, tokens: told.tokens };
    this.told = told;
    const isAtEnd =
      this.textBox.scrollTop + this.textBox.clientHeight >= this.textBox.scrollHeight - 4;
    for (const piece of told.pieces) this.addPiece(piece);
    if (isAtEnd) this.textBox.scrollTop = this.textBox.scrollHeight;
    this.show();
  }

  addPiece(piece) {
    this.text += piece.text;
    const classes = { accepted: `accepted ${colour(piece.drafter)}`, plain: "" };
    const className = classes[piece.source] ?? piece.source;
    const last = this.textBox.lastElementChild;
    if (last !== null && last.className === className) {
      last.textContent += piece.text;
      return;
    }
    const span = document.createElement("span");
    span.className = className;
    span.title = titles[piece.source]?.(piece.drafter) ?? "the target's";
    span.textContent = piece.text;
    this.textBox.append(span);
  }

  get speed() {
    const tokens = this.last ? this.last.tokens - this.first.tokens : 0;
    return tokens ? (1000 * tokens) / (this.last.at - this.first.at) : null;
  }

  show() {
    const { tokens, rounds, acceptance_length: length, speedup, seconds } = this.told;
    const figures = [
      ["tokens/s", number(this.speed, ONE)],
      ["acceptance length", number(length, TWO)],
      ["tokens", number(tokens, WHOLE)],
      ["rounds", number(rounds, WHOLE)],
    ];
    const isAlone = byId("plain").hidden;
    if (!this.isPlain && isAlone && speedup !== null && this.speed !== null) {
      figures.push(["plain tokens/s (estimate)", number(this.speed / speedup, ONE)]);
    }
    this.figures.replaceChildren(...figures.map(figure));
    this.showSplit(seconds);
  }

  showSplit(seconds) {
    const names = { prefill: "prompt", score: "target", draft: "drafters", host: "all else" };
    const total = Object.values(seconds).reduce((sum, part) => sum + part, 0) || 1;
    const share = (part) => (100 * seconds[part]) / total;
    const bars = Object.keys(names).map((part) => {
      const bar = document.createElement("span");
      bar.className = `part-${part}`;
      bar.style.width = `${share(part)}%`;
      return bar;
    });
    this.split.replaceChildren(...bars);
    const words = Object.entries(names).map(([part, name]) => `${name} ${share(part).toFixed(0)}%`);
    this.split.setAttribute("aria-label", `time: ${words.join(", ")}`);
    this.split.title = words.join(", ");
  }
}

function figure([name, value]) {
  const box = document.createElement("div");
  const term = document.createElement("dt");
  const description = document.createElement("dd");
  term.textContent = name;
  description.textContent = value;
  box.append(term, description);
  return box;
}

// -- the form ---------------------------------------------------------------------------------

function say(text, isError = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("error", isError);
}

function conclude(speculative, plain) {
  const isSame = speculative.text === plain.text;
  const ratio = number(speculative.speed / plain.speed, TWO);
  byId("verdict").textContent = isSame
    ? `${ratio} times as fast as plain decoding, and the same text`
    : "the texts differ";
  byId("verdict").classList.toggle("bad", !isSame);
  byId("verdict").classList.toggle("good", isSame && speculative.speed > plain.speed);
  byId("verdict").hidden = false;
}

async function write() {
  if (model === null || running !== null || !byId("form").reportValidity()) return;
  running = new AbortController();
  byId("write").disabled = true;
  byId("stop").disabled = false;
  byId("verdict").hidden = true;
  const hasPlain = byId("beside").checked;
  byId("plain").hidden = !hasPlain;
  panels.forEach((panel) => panel.clear());
  // One seed for both: with it sampling is as repeatable as greedy decoding.
  const seed = crypto.getRandomValues(new Uint32Array(1))[0];
  try {
    say("writing");
    await panels[0].write(seed, running.signal);
    if (hasPlain) {
      say("writing again, plainly");
      await panels[1].write(seed, running.signal);
      conclude(...panels);
    }
    say("done");
  } catch (error) {
    const wasStopped = error.name === "AbortError";
    say(wasStopped ? "stopped" : error.message, !wasStopped);
    if (error.status === 401) byId("key-field").hidden = false;
  } finally {
    running = null;
    byId("write").disabled = false;
    byId("stop").disabled = true;
  }
}

const panels = [new Panel("speculative"), new Panel("plain")];
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  write();
});
byId("stop").addEventListener("click", () => running?.abort());
byId("beside").addEventListener("change", () => {
  if (running === null) byId("plain").hidden = !byId("beside").checked;
});
byId("key").addEventListener("change", connect);
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write();
  if (event.key === "Escape") running?.abort();
});
connect();
