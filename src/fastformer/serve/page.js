"use strict";
// The page of a server. It knows no task: a model says in /info which panels show what it can do.
// A panel is a template of page.html, `panel-NAME`, and the function `panels.NAME(root, model)`.

// ---- small tools ----------------------------------------------------------------------------------------------------

const one = (selector, root = document) => root.querySelector(selector);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const percent = (chance) =>
  chance >= 0.9995 && chance < 1 ? ">99.9%" : chance > 0 && chance < 0.0005 ? "<0.1%" : `${(100 * chance).toFixed(1)}%`;
const signed = (value) => (value < 0 ? "−" : "+") + Number(Math.abs(value).toPrecision(3));
const count = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
const pause = (seconds, signal) =>
  new Promise((done, fail) => {
    const timer = setTimeout(done, 1000 * seconds);
    signal?.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); });
  });

function bars(entries, largest = 1) { // [name, share, written, class]
  return entries.flatMap(([name, share, written, side]) => {
    const bar = make("div", { className: "bar" });
    bar.style.width = `${(100 * Math.min(1, Math.abs(share) / (largest || 1))).toFixed(1)}%`;
    return [
      make("dt", { title: name, className: side === "explained" ? side : "" }, name),
      make("dd", { className: "number" }, written),
      make("dd", { className: side || "" }, bar),
    ];
  });
}

// What is said of a panel: nothing, that it works, an error, or that too many ask.
function say(state, kind = "", text = "") {
  state.className = `state ${kind}`;
  state.setAttribute("role", kind === "error" ? "alert" : "status");
  state.textContent = text;
}

// ---- asking the server ----------------------------------------------------------------------------------------------

let key = sessionStorage.getItem("key") || "";

class Refused extends Error {
  constructor(status, message, kind, retry) {
    super(message);
    Object.assign(this, { status, kind, retry });
  }
}

async function request(path, body, signal) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  let content = {};
  try { content = await answer.json(); } catch { /* an error without a text */ }
  if (answer.status === 401) one("#key").hidden = false;
  const message = content.error?.message || content.error || `${answer.status} ${answer.statusText}`;
  throw new Refused(answer.status, message, content.error_type, Number(answer.headers.get("Retry-After")) || 1);
}

// Asks again, as often as too many ask at once, and shows that it waits.
async function patiently(state, path, body, signal) {
  for (let turn = 0; ; turn++) {
    try {
      return await request(path, body, signal);
    } catch (error) {
      if (error.status !== 429 || turn === 20) throw error;
      for (let left = error.retry; left > 0; left--) {
        say(state, "busy", `Many people ask at the moment. Trying again in ${count(left, "second")}.`);
        await pause(1, signal);
      }
    }
  }
}

// Only the newest question of a panel is answered; an older one is given up.
function latest(state, work) {
  let running;
  const start = async () => {
    running?.abort();
    const mine = (running = new AbortController());
    try {
      await work(mine.signal);
    } catch (error) {
      if (!mine.signal.aborted) say(state, "error", error.message);
    }
  };
  start.stop = () => running?.abort();
  return start;
}

function debounced(work, milliseconds = 350) {
  let timer;
  return () => { clearTimeout(timer); timer = setTimeout(work, milliseconds); };
}

// Files that are dropped on an element, or chosen with an input.
function takesFiles(area, take) {
  for (const kind of ["dragenter", "dragover"]) {
    area.addEventListener(kind, (event) => { event.preventDefault(); area.classList.add("dragging"); });
  }
  for (const kind of ["dragleave", "drop"]) area.addEventListener(kind, () => area.classList.remove("dragging"));
  area.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length) take(event.dataTransfer.files[0]);
  });
}

const isTable = (file) => /\.(csv|tsv|jsonl|ndjson)$/i.test(file.name);

// ---- tables ---------------------------------------------------------------------------------------------------------

function parseTable(name, text) { // -> {columns, rows: [[…]]}
  text = text.replace(/^\ufeff/, "");
  if (/\.(jsonl|ndjson)$/i.test(name)) {
    const objects = text.split(/\r?\n/).flatMap((line, place) => {
      if (!line.trim()) return [];
      try { return [JSON.parse(line)]; } catch { throw new Error(`Line ${place + 1} is not JSON.`); }
    });
    const columns = [...new Set(objects.flatMap((object) => Object.keys(object)))];
    return { columns, rows: objects.map((object) => columns.map((column) => object[column] ?? "")) };
  }
  if (/\.txt$/i.test(name)) {
    return { columns: ["text"], rows: text.split(/\r?\n/).filter((line) => line.trim()).map((line) => [line]) };
  }
  const separator = /\.tsv$/i.test(name) ? "\t" : ",";
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') { cell += '"'; at++; } else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === separator) { row.push(cell); cell = ""; }
    else if (letter === "\n" || letter === "\r") {
      if (letter === "\r" && text[at + 1] === "\n") at++;
      rows.push([...row, cell]); row = []; cell = "";
    } else cell += letter;
  }
  if (cell || row.length) rows.push([...row, cell]);
  const [columns = [], ...found] = rows.filter((cells) => cells.length > 1 || cells[0]);
  return { columns, rows: found };
}

function guessColumn({ columns, rows }) {
  const known = ["text", "review", "body", "content", "sentence", "document", "article", "message", "title"];
  const named = known.find((name) => columns.some((column) => column.toLowerCase() === name));
  if (named) return columns.find((column) => column.toLowerCase() === named);
  const length = (place) => rows.slice(0, 50).reduce((sum, row) => sum + String(row[place] ?? "").length, 0);
  return columns.reduce((best, column, place) => (length(place) > length(columns.indexOf(best)) ? column : best), columns[0]);
}

const csvCell = (value) => {
  const text = typeof value === "string" ? value : value === undefined ? "" : JSON.stringify(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// ---- answers --------------------------------------------------------------------------------------------------------

const isTableOfNumbers = (value) =>
  value && typeof value === "object" && !Array.isArray(value) && Object.values(value).every((v) => typeof v === "number");

// Any answer: its first plain value is the headline, numbers by name are bars.
function show(answer) {
  const parts = [];
  let headline = null;
  for (const [name, value] of Object.entries(answer)) {
    if (isTableOfNumbers(value)) {
      const ranked = Object.entries(value).sort((a, b) => b[1] - a[1]).slice(0, 8);
      parts.push(make("dl", { className: "bars" },
        ...bars(ranked.map(([label, chance]) => [label, chance, percent(chance), label === headline ? "explained" : ""]))));
    } else if (Array.isArray(value) && value.length && value.every(isTableOfNumbers)) {
      value.forEach((table, place) => parts.push(make("h3", {}, `${name} ${place + 1}`), ...show({ table })));
    } else {
      const written = Array.isArray(value)
        ? (value.every((item) => typeof item !== "object") ? value.slice(0, 12).join(", ") || "none" : JSON.stringify(value))
        : typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
      if (headline === null) {
        headline = typeof value === "string" ? value : "";
        const chance = answer.probabilities?.[value];
        const small = make("small", {}, chance === undefined ? name.replaceAll("_", " ") : percent(chance));
        parts.unshift(make("h2", { className: "answer" }, written, " ", small));
      } else parts.push(make("p", {}, `${name.replaceAll("_", " ")}: ${written}`));
    }
  }
  return parts;
}

function flat(answer) { // one line of a table: what a download has
  const cells = {};
  for (const [name, value] of Object.entries(answer)) {
    if (isTableOfNumbers(value)) {
      const best = Object.entries(value).sort((a, b) => b[1] - a[1])[0];
      if (best) cells.probability = Number(best[1].toFixed(6));
    } else cells[name] = typeof value === "object" ? JSON.stringify(value) : value;
  }
  return cells;
}

// ---- panels ---------------------------------------------------------------------------------------------------------

const panels = {};

panels.text = (root, model) => {
  const form = one("form", root), state = one(".state", root), found = one(".found", root), shaded = one(".shaded", root);
  const area = form.elements.text, explain = model.service("shade");
  const answer = latest(state, async (signal) => {
    const text = area.value;
    if (!text.trim()) {
      say(state);
      found.replaceChildren();
      shaded.hidden = true;
      return;
    }
    say(state, "loading", "Reading…");
    found.classList.add("stale");
    let cut = "";
    const ask = (more) => patiently(state, model.path("predict"), { inputs: text, full: true, ...more }, signal);
    const answered = await ask().catch((error) => {
      if (error.kind !== "Tokenizer") throw error;
      cut = `The text is longer than the model reads: it was cut after ${count(model.info.max_input_length, "token")}.`;
      return ask({ truncate: true });
    });
    found.replaceChildren(...show(await answered.json()));
    found.classList.remove("stale");
    say(state, "", cut);
    if (!explain) return;
    try {
      const why = await (await patiently(state, model.path(explain), { text }, signal)).json();
      say(state, "", cut);
      shade(shaded, text, why);
    } catch (error) {
      if (signal.aborted) throw error;
      shaded.hidden = true;
      say(state, "", `It cannot be shaded: ${error.message}`);
    }
  });
  area.addEventListener("input", debounced(answer));
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.sample.addEventListener("click", () => { area.value = model.info.sample; answer(); });
  form.elements.clear.addEventListener("click", () => { area.value = ""; answer(); area.focus(); });
  takesFiles(form, async (file) => {
    if (isTable(file)) return model.open("file", file);
    area.value = await file.text();
    answer();
  });
  one("[name=save]", root).addEventListener("click", async () => {
    try {
      const page = await (await patiently(state, model.path(explain), { text: area.value, html: true })).blob();
      const link = make("a", { href: URL.createObjectURL(page), download: "explanation.html" });
      link.click();
      URL.revokeObjectURL(link.href);
      say(state, "", "The explanation is in explanation.html.");
    } catch (error) { say(state, "error", error.message); }
  });
};

const LEVELS = 8;

function shade(box, text, why) {
  const letters = Array.from(text); // places are in characters, not in JavaScript's halves of some of them
  const largest = why.pieces.reduce((most, [, , effect]) => Math.max(most, Math.abs(effect)), 0);
  const parts = [];
  let at = 0;
  for (const [start, end, effect] of why.pieces) {
    if (start === end) continue;
    const level = largest ? Math.floor(LEVELS * Math.sqrt(Math.abs(effect) / largest)) : 0;
    const name = level ? (effect < 0 ? "n" : "p") + level : "";
    parts.push(letters.slice(at, start).join(""));
    parts.push(make("span", { className: name, title: signed(effect) }, letters.slice(start, end).join("")));
    at = end;
  }
  parts.push(letters.slice(at).join(""));
  one(".text", box).replaceChildren(...parts);
  one(".least", box).textContent = `${signed(-largest)} against`;
  one(".most", box).textContent = `${signed(largest)} for`;
  const levels = Array.from({ length: 2 * LEVELS + 1 }, (_, place) => place - LEVELS);
  one(".scale", box).replaceChildren(
    ...levels.map((level) => make("span", { className: level ? (level < 0 ? "n" : "p") + Math.abs(level) : "" })));
  const sure = why.rank_correlation;
  one(".trust", box).textContent = (why.explained === null ? "Shaded by the effect on the number."
    : `Shaded by the effect on “${why.explained}”.`) + (sure === null ? ""
    : ` Really removing ${count(why.tokens_removed, "token")} agrees with the colours at a rank correlation of ${sure.toFixed(2)}.`);
  box.hidden = false;
}

panels.file = (root, model, given) => {
  const form = one("form", root), state = one(".state", root), row = one(".row", root), bar = one("progress", root);
  const table = one("table", root), stop = form.elements.stop, link = one("a.button", root), scroll = one(".scroll", root);
  const SHOWN = 300, AT_ONCE = 64;
  let data = null, running = null;

  async function open(file) {
    running?.abort();
    link.hidden = bar.hidden = scroll.hidden = true;
    try {
      data = parseTable(file.name, await file.text());
      if (!data.rows.length) throw new Error(`${file.name} has no rows.`);
    } catch (error) {
      row.hidden = true;
      return say(state, "error", error.message);
    }
    form.elements.column.replaceChildren(...data.columns.map((name) => make("option", {}, name)));
    form.elements.column.value = guessColumn(data);
    row.hidden = false;
    say(state, "", `${file.name}: ${count(data.rows.length, "row")}.`);
  }

  // The answers of some texts. Where a request is refused for one of them, each is asked for alone.
  async function answers(texts, signal, notes) {
    const ask = async (inputs, more) =>
      (await patiently(state, model.path("predict"), { inputs, full: true, ...more }, signal)).json();
    try {
      return await ask(texts);
    } catch (error) {
      if (error.status !== 422 && error.status !== 413) throw error;
      if (texts.length > 1) return (await Promise.all(texts.map((text) => answers([text], signal, notes)))).flat();
      if (error.kind !== "Tokenizer") return [{ error: error.message }];
      notes.cut++;
      return ask(texts, { truncate: true });
    }
  }

  async function run() {
    const mine = (running = new AbortController()), place = data.columns.indexOf(form.elements.column.value);
    const found = [], notes = { cut: 0 }, body = one("tbody", table);
    body.replaceChildren();
    bar.hidden = stop.hidden = false;
    link.hidden = true;
    try {
      for (let at = 0; at < data.rows.length; at += AT_ONCE) {
        bar.value = at / data.rows.length;
        say(state, "loading", `${at.toLocaleString("en")} of ${count(data.rows.length, "row")}`);
        const texts = data.rows.slice(at, at + AT_ONCE).map((cells) => String(cells[place] ?? ""));
        const some = (await answers(texts, mine.signal, notes)).map(flat);
        if (!at) one("thead", table).replaceChildren(make("tr", {}, ...["row", data.columns[place], ...Object.keys(some[0])]
          .map((name) => make("th", { scope: "col", className: name === "row" || typeof some[0][name] === "number" ? "number" : "" },
            name))));
        scroll.hidden = false;
        some.forEach((cells, number) => {
          if (at + number >= SHOWN) return;
          const text = texts[number];
          body.append(make("tr", {}, make("td", { className: "number" }, String(at + number + 1)),
            make("td", {}, text.length > 200 ? `${text.slice(0, 200)}…` : text),
            ...Object.entries(cells).map(([name, value]) => make("td", {
              className: name === "error" ? "wrong" : typeof value === "number" ? "number" : "",
            }, String(value)))));
        });
        found.push(...some);
      }
      bar.value = 1;
      say(state, "", `${count(found.length, "row")} answered.`
        + (found.length > SHOWN ? ` The first ${SHOWN} are shown; the download has all.` : "")
        + (notes.cut ? ` ${count(notes.cut, "text")} longer than the model reads ${notes.cut === 1 ? "was" : "were"} cut.` : ""));
    } catch (error) {
      if (mine.signal.aborted) say(state, "", `Stopped after ${count(found.length, "row")}.`);
      else say(state, "error", `After ${count(found.length, "row")}: ${error.message}`);
    }
    stop.hidden = true;
    bar.hidden = bar.value === 1;
    if (!found.length) return;
    const names = [...new Set(found.flatMap(Object.keys))];
    const lines = [[...data.columns, ...names], ...found.map((cells, number) =>
      [...data.columns.map((_, cell) => data.rows[number][cell]), ...names.map((name) => cells[name])])];
    URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([lines.map((line) => line.map(csvCell).join(",")).join("\r\n") + "\r\n"],
      { type: "text/csv" }));
    link.hidden = false;
  }

  form.elements.file.addEventListener("change", () => form.elements.file.files.length && open(form.elements.file.files[0]));
  takesFiles(form, open);
  form.addEventListener("submit", (event) => { event.preventDefault(); if (data) run(); });
  stop.addEventListener("click", () => running.abort());
  if (given) open(given);
  root.take = open;
};

panels.search = (root, model) => {
  const form = one("form", root), state = one(".state", root), results = one(".results", root);
  const { query, documents } = form.elements;
  const search = latest(state, async (signal) => {
    const blocks = documents.value.split(/\r?\n\s*\r?\n/).map((text) => text.trim()).filter(Boolean);
    const texts = blocks.length > 1 ? blocks : documents.value.split(/\r?\n/).map((text) => text.trim()).filter(Boolean);
    if (!query.value.trim() || !texts.length) {
      results.replaceChildren();
      return say(state, "", texts.length ? "Say what to search for." : "");
    }
    say(state, "loading", `Reading ${count(texts.length, "text")}…`);
    results.classList.add("stale");
    const body = { query: query.value, texts, return_text: true, truncate: true };
    const found = await (await patiently(state, model.path("rerank"), body, signal)).json();
    results.classList.remove("stale");
    results.replaceChildren(...found.slice(0, 20).map(({ passage, score, index }) => make("li", {},
      make("span", {}, passage, " ", make("small", {}, `text ${index + 1}`)),
      make("span", { className: "number", title: "cosine" }, score.toFixed(3)))));
    say(state, "", `The nearest of ${count(texts.length, "text")} first, each by its nearest passage; the number is the cosine with the query.`);
  });
  form.addEventListener("input", debounced(search, 500));
  form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  takesFiles(form, async (file) => { documents.value = await file.text(); search(); });
};

panels.choose = (root, model) => {
  const [finding, own] = root.querySelectorAll("form"), state = one(".state", root);
  const [articles, history, results] = [".found-articles", ".history", ".results"].map((name) => one(name, root));
  const read = []; // {id, title}; a title of one's own has no id
  const recommend = latest(state, async (signal) => {
    results.classList.add("stale");
    say(state, "loading", "Choosing…");
    const ids = read.filter(({ id }) => id).map(({ id }) => id), texts = read.filter(({ id }) => !id).map(({ title }) => title);
    const found = await (await patiently(state, model.path("recommend"), { history: ids, texts, top: 10 }, signal)).json();
    results.replaceChildren(...found.map(({ id, title, category, score }) => make("li", {},
      make("span", {}, title, " ", make("small", {}, category)), make("span", { className: "number" }, score.toFixed(2)),
      adder(id, title))));
    results.classList.remove("stale");
    say(state, "", read.length ? `After ${count(read.length, "article")}.` : "Nothing is read yet: this is for somebody new.");
  });
  const adder = (id, title) => {
    const button = make("button", { type: "button", ariaLabel: `Read: ${title}` }, "Read");
    button.addEventListener("click", () => { read.push({ id, title }); list(); });
    return button;
  };
  function list() {
    history.replaceChildren(...read.map(({ title }, place) => {
      const button = make("button", { type: "button", ariaLabel: `Remove: ${title}` }, "Remove");
      button.addEventListener("click", () => { read.splice(place, 1); list(); });
      return make("li", {}, make("span", {}, title), button);
    }));
    if (!read.length) history.append(make("li", {}, make("span", { className: "note" }, "Nothing yet. Pick an article.")));
    recommend();
  }
  const find = latest(state, async (signal) => {
    const body = { query: finding.elements.query.value, top: 30 };
    const found = await (await patiently(state, model.path("articles"), body, signal)).json();
    articles.replaceChildren(...found.map(({ id, title, category }) => make("li", {},
      make("span", {}, title, " ", make("small", {}, category)), adder(id, title))));
    if (!found.length) articles.append(make("li", {}, make("span", { className: "note" }, "No title has these words.")));
  });
  finding.addEventListener("input", debounced(find));
  finding.addEventListener("submit", (event) => { event.preventDefault(); find(); });
  own.addEventListener("submit", (event) => {
    event.preventDefault();
    const title = own.elements.title.value.trim();
    if (!title) return;
    own.reset();
    read.push({ title });
    list();
  });
  find();
  list();
};

panels.write = (root, model) => {
  const form = one("form", root), state = one(".state", root), cards = one(".cards", root), written = one(".written", root);
  const route = model.service("write"), stop = form.elements.stop;
  const write = latest(state, async (signal) => {
    const text = form.elements.text.value;
    if (!text.trim()) return say(state, "error", "There is no text yet. Paste one, or try the sample.");
    say(state, "loading", "Reading…");
    cards.hidden = true;
    const answer = await patiently(state, model.path(route), { text, stream: true }, signal);
    cards.hidden = stop.hidden = false;
    written.classList.add("writing");
    for (const name of [".written", ".lead", ".score"]) one(name, root).textContent = "";
    say(state, "loading", "Writing…");
    try {
      for await (const [kind, content] of events(answer)) {
        if (kind === "error") throw new Error(content.error);
        written.textContent = content.summary;
        if (kind !== "done") continue;
        one(".lead", root).textContent = content.lead;
        one(".score", root).textContent = content.score === null ? "" : `Mean log-probability of its words: ${content.score}`;
        say(state, "", content.summary ? "Written." : "There is nothing in this text to write about.");
      }
    } finally {
      written.classList.remove("writing");
      stop.hidden = true;
    }
  });
  form.addEventListener("submit", (event) => { event.preventDefault(); write(); });
  form.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) write(); });
  stop.addEventListener("click", () => { write.stop(); say(state, "", "Stopped."); });
  form.elements.sample.addEventListener("click", () => { form.elements.text.value = model.info.sample; write(); });
  takesFiles(form, async (file) => { form.elements.text.value = await file.text(); write(); });
};

async function* events(answer) { // of a stream of server-sent events: [kind, content]
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const kind = /^event: (.*)$/m.exec(part)?.[1], data = /^data: (.*)$/m.exec(part)?.[1];
      if (data) yield [kind, JSON.parse(data)];
    }
  }
}

panels.weigh = (root, model) => {
  const form = one("form", root), state = one(".state", root), chance = one(".chance", root), moved = one(".moved", root);
  const route = model.service("weigh"), { example } = model.info.services[route], heading = moved.previousElementSibling;
  const side = Object.keys(example.side || {});
  one(".side", root).replaceChildren(...side.map((name) => make("label", {}, name, make("input", { name: `side-${name}` }))));
  const number = (value) => (value.trim() === "" ? null : Number.isFinite(Number(value)) ? Number(value) : value);
  const weigh = latest(state, async (signal) => {
    const { ad, behaviors } = form.elements;
    if (!ad.value.trim()) {
      chance.textContent = "";
      heading.hidden = true;
      moved.replaceChildren();
      return say(state, "", "Write an ad, or try the sample.");
    }
    say(state, "loading", "Judging…");
    const did = behaviors.value.split(/\r?\n/).map((text) => text.trim()).filter(Boolean);
    const values = Object.fromEntries(side.map((name) => [name, number(form.elements[`side-${name}`].value)]));
    const body = { behaviors: did, ads: [ad.value], side: values, moved: true };
    const [found] = await (await patiently(state, model.path(route), body, signal)).json();
    chance.textContent = percent(found.probability);
    const largest = Math.max(...found.moved.map(({ change }) => Math.abs(change)), 0);
    moved.replaceChildren(...bars(found.moved.map(({ behavior, change }) =>
      [behavior, change, `${change < 0 ? "−" : "+"}${Math.abs(100 * change).toFixed(2)} points`, change < 0 ? "minus" : "for"]), largest));
    heading.hidden = !found.moved.length;
    say(state, "", did.length ? "" : "Nothing is known of this person.");
  });
  form.addEventListener("input", debounced(weigh));
  form.addEventListener("submit", (event) => { event.preventDefault(); weigh(); });
  form.elements.sample.addEventListener("click", () => {
    form.elements.behaviors.value = example.behaviors.join("\n");
    form.elements.ad.value = example.ads[0];
    weigh();
  });
  say(state, "", "Write an ad, or try the sample.");
};

// ---- the models, and the tabs of one ---------------------------------------------------------------------------------

const TITLES = { text: "A text", file: "A file", search: "Search", choose: "Recommend", write: "Summarize", weigh: "Judge an ad" };

function wanted(info) { // which panels a model has
  const own = Object.values(info.services).map(({ panel }) => panel).filter((name) => name in panels);
  if (own.length) return own;
  const found = [];
  const readable = Object.values(info.fields).some((kind) => kind !== "vector"); // which is not for people
  if (info.takes_texts && readable) found.push("text", "file");
  if (info.takes_texts && info.has_vectors) found.push("search");
  return found;
}

function open(name, info) {
  const main = one("#panels"), tabs = one("#tabs"), names = wanted(info), roots = {};
  const model = {
    info,
    path: (route) => `models/${encodeURIComponent(name)}/${route}`,
    service: (panel) => Object.keys(info.services).find((route) => info.services[route].panel === panel),
    open: (panel, file) => { choose(panel); roots[panel]?.take?.(file); },
  };
  one("#name").replaceChildren(name, " ", make("small", {}, info.task));
  document.title = `${name} · fastformer`;
  main.replaceChildren();
  tabs.replaceChildren();
  tabs.hidden = names.length < 2;
  say(one("#state"), "", names.length ? "" : "This model has no panel here; its routes are listed under “Routes”.");
  names.forEach((panel, number) => {
    const template = one(`#panel-${panel}`);
    const root = make("div", { id: `show-${panel}`, hidden: number > 0 });
    root.append(template.content.cloneNode(true));
    for (const part of root.querySelectorAll("[id], [for], [aria-describedby]")) {
      for (const attribute of ["id", "for", "aria-describedby"]) {
        const value = part.getAttribute(attribute);
        if (value) part.setAttribute(attribute, value.replace("$", `${panel}-`));
      }
    }
    main.append(root);
    roots[panel] = root;
    panels[panel](root, model);
    if (names.length < 2) return;
    root.setAttribute("role", "tabpanel");
    root.setAttribute("aria-labelledby", `tab-${panel}`);
    const tab = make("button", { id: `tab-${panel}`, type: "button", role: "tab" }, TITLES[panel]);
    tab.setAttribute("aria-controls", root.id);
    tab.addEventListener("click", () => choose(panel));
    tabs.append(tab);
  });
  function choose(panel) {
    names.forEach((other) => {
      roots[other].hidden = other !== panel;
      const tab = one(`#tab-${other}`);
      if (!tab) return;
      tab.setAttribute("aria-selected", String(other === panel));
      tab.tabIndex = other === panel ? 0 : -1;
    });
  }
  tabs.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], now = names.findIndex((panel) => !roots[panel].hidden);
    if (!step) return;
    const next = names[(now + step + names.length) % names.length];
    choose(next);
    one(`#tab-${next}`).focus();
  };
  if (names.length) choose(names[0]);
}

async function start() {
  const state = one("#state");
  say(state, "loading", "Asking the server what it has…");
  try {
    const names = (await (await request("v1/models")).json()).data.map(({ id }) => id);
    one("#key").hidden = true;
    const menu = one("#choose-model").elements.model;
    menu.replaceChildren(...names.map((name) => make("option", {}, name)));
    one("#choose-model").hidden = names.length < 2;
    const turn = async () => {
      const name = menu.value;
      try {
        const about = await (await request(`models/${encodeURIComponent(name)}/info`)).json();
        if (name === menu.value) open(name, about);  // else another was chosen meanwhile
      } catch (error) { say(state, "error", error.message); }
    };
    menu.onchange = turn;
    await turn();
  } catch (error) {
    one("#name").textContent = "fastformer";
    if (error.status !== 401) say(state, "error", error.message);
    else say(state, key ? "error" : "", key ? "This is not the server's key." : "");
  }
}

one("#facts").append(" · ", make("a", { href: "docs" }, "Routes"));
one("#key").addEventListener("submit", (event) => {
  event.preventDefault();
  key = event.target.elements.key.value;
  sessionStorage.setItem("key", key);
  start();
});
start();
