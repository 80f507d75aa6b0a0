"use strict";
// Shades the text by what the reader picks. Numbers come in rows of 16-bit roots: see `_row` in page.py.
const data = JSON.parse(document.getElementById("data").textContent);
const [text, legend, form, tip, overview] =
  ["text", "legend", "views", "tip", "overview"].map((name) => document.getElementById(name));
const pieces = [...text.querySelectorAll("span")];
const ownClass = pieces.map((piece) => (piece.classList.contains("u") ? "u " : ""));
const even = 1 / data.tokens; // what every token would weigh if all weighed the same
let shades = []; // of the present view, from -1 to 1
let current = -1; // the piece that the reader looks at
let label = 0; // that is explained: the page's own, or one of data.others
const backwards = getComputedStyle(text).direction === "rtl"; // the strip runs as the text does

function decode(row) {
  const bytes = Uint8Array.from(atob(row.values), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float64Array.from({ length: bytes.length / 2 }, (_, place) => {
    const root = view.getInt16(2 * place, true) / 32767;
    return row.largest * root * Math.abs(root);
  });
}

function mean(rows) {
  return rows[0].map((_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);
}

const rowsOf = (view) => (view === 0 && label ? [[data.others[label - 1].effect]] : data.views[view].rows);
const removed = () => (label ? data.others[label - 1] : data).removed;

const decoded = new Map();
function numbers(view, layer, head) { // head -1: all of them
  const key = [view === 0 ? label : 0, view, layer, head].join();
  if (!decoded.has(key)) {
    const heads = rowsOf(view)[layer];
    decoded.set(key, head < 0 ? mean(heads.map((_, one) => numbers(view, layer, one))) : decode(heads[head]));
  }
  return decoded.get(key);
}

function chosen() {
  const view = Number(form.elements.view.value), rows = data.views[view].rows;
  const { layer, head } = form.elements;
  layer.parentElement.hidden = rows.length < 2;
  head.parentElement.hidden = rows[0].length < 2;
  return { view, layer: rows.length < 2 ? 0 : Number(layer.value), head: rows[0].length < 2 ? -1 : Number(head.value) };
}

// As many decimals as give three digits of the largest number beside it.
const decimals = (largest) => (largest > 0 ? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(largest)))) : 1);
const signed = (value, digits) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits);
const times = (value) => `${(value / even).toFixed(1)}×`;

function shade() {
  const { view, layer, head } = chosen();
  const values = numbers(view, layer, head), isEffect = view === 0;
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  // Weights are shaded above an even share only, up to twice of it at least: a head that weighs all alike stays pale.
  const top = isEffect ? largest : Math.max(largest, 2 * even);
  const rootOf = isEffect
    ? (value) => Math.sign(value) * Math.sqrt(Math.abs(value) / (top || 1))
    : (value) => Math.sqrt(Math.max(0, value - even) / (top - even));
  shades = values.map(rootOf);
  pieces.forEach((piece, place) => {
    const level = Math.floor(data.levels * Math.abs(shades[place]));
    piece.className = ownClass[place] + (level ? (shades[place] < 0 ? "n" : "p") + level : "");
  });
  text.className = isEffect ? "text effect" : "text weights";
  legend.className = isEffect ? "legend effect" : "legend weights";
  const [low, high] = data.sides, digits = decimals(top);
  document.getElementById("least").textContent = isEffect ? `${signed(-top, digits)} ${low}` : "even share";
  document.getElementById("most").textContent = isEffect ? `${signed(top, digits)} ${high}` : `${times(top)} even`;
  drawOverview();
}

function drawOverview() {
  const scale = window.devicePixelRatio || 1;
  const width = (overview.width = Math.round(overview.clientWidth * scale));
  const height = (overview.height = Math.round(overview.clientHeight * scale));
  const style = getComputedStyle(text), pen = overview.getContext("2d");
  const bins = Math.min(pieces.length, Math.floor(overview.clientWidth / 2));
  for (let bin = 0; bin < bins; bin++) { // each as strong as its strongest piece
    const part = shades.slice(Math.floor((bin * pieces.length) / bins), Math.ceil(((bin + 1) * pieces.length) / bins));
    const peak = part.reduce((most, value) => (Math.abs(value) > Math.abs(most) ? value : most), 0);
    const tone = style.getPropertyValue(peak < 0 ? "--minus" : "--plus").trim().split(/\s+/);
    pen.fillStyle = `rgba(${tone},${Math.abs(peak)})`;
    const at = backwards ? bins - 1 - bin : bin;
    pen.fillRect((at * width) / bins, 0, Math.ceil(width / bins), height);
  }
}

function line(name, value, now) {
  const row = document.createElement("tr");
  row.className = now ? "now" : "";
  for (const part of [name, value]) row.insertCell().textContent = part;
  return row;
}

function describe(place) {
  const now = chosen(), piece = pieces[place];
  const head = document.createElement("b"), table = document.createElement("table");
  head.textContent = piece.dataset.token || piece.textContent.trim() || "white space";
  if (ownClass[place]) head.textContent += " (not in the vocabulary)";
  data.views.forEach(({ name, rows }, index) => {
    const isNow = index === now.view;
    const layer = isNow ? now.layer : rows.length - 1, one = isNow ? now.head : -1;
    const value = numbers(index, layer, one)[place];
    const which = rows.length > 1 ? [`layer ${layer + 1}`] : [];
    if (rows[0].length > 1) which.push(one < 0 ? "all heads" : `head ${one + 1}`);
    const digits = Math.min(6, 1 + decimals(numbers(0, 0, -1).reduce((most, one) => Math.max(most, Math.abs(one)), 0)));
    const shown = index ? `${Number(value.toPrecision(3))} (${times(value)} even)` : signed(value, digits);
    table.append(line([name, ...which].join(", "), shown, isNow));
    if (!index && place in removed()) table.append(line("Lost when removed", signed(removed()[place], digits)));
  });
  table.append(line("Place", `${(place + 1).toLocaleString("en")} of ${pieces.length.toLocaleString("en")}`));
  tip.replaceChildren(head, table);
}

function showTip(place) {
  current = place;
  describe(place);
  tip.hidden = false;
  const box = pieces[place].getClientRects()[0] || pieces[place].getBoundingClientRect();
  const above = box.top - tip.offsetHeight - 6;
  tip.style.left = `${Math.max(8, Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${above < 8 ? box.bottom + 6 : above}px`;
}

function goTo(place) {
  pieces[place].scrollIntoView({ block: "center" });
  showTip(place);
}

const hideTip = () => { tip.hidden = true; };
const placeOf = new Map(pieces.map((piece, place) => [piece, place]));
text.addEventListener("pointerover", (event) => {
  if (placeOf.has(event.target)) showTip(placeOf.get(event.target));
  else hideTip();
});
text.addEventListener("pointerleave", hideTip);
text.addEventListener("blur", hideTip);
text.addEventListener("keydown", (event) => {
  const step = { ArrowRight: backwards ? -1 : 1, ArrowLeft: backwards ? 1 : -1 }[event.key];
  if (event.key === "Escape") hideTip();
  if (!step || !pieces.length) return;
  event.preventDefault();
  goTo(Math.max(0, Math.min(pieces.length - 1, current + step)));
});
overview.addEventListener("click", (event) => {
  const share = event.offsetX / overview.clientWidth;
  if (pieces.length) goTo(Math.floor((backwards ? 1 - share : share) * (pieces.length - 1)));
});

// A word of the lists: mark all its places, and go to the next of them at every click.
let found = [], next = 0, asked = null;
document.querySelectorAll("button[data-places]").forEach((button) => {
  button.addEventListener("click", () => {
    found.forEach((place) => pieces[place].removeAttribute("data-found"));
    found = JSON.parse(button.dataset.places);
    found.forEach((place) => pieces[place].setAttribute("data-found", ""));
    next = asked === button ? (next + 1) % found.length : 0;
    asked = button;
    goTo(found[next]);
  });
});

// A label: show what belongs to it.
const labels = [...document.querySelectorAll("button[data-label]")];
labels.forEach((button) => {
  button.addEventListener("click", () => {
    label = Number(button.dataset.label);
    labels.forEach((one) => one.setAttribute("aria-pressed", one === button));
    document.querySelectorAll("[data-of]").forEach((part) => { part.hidden = Number(part.dataset.of) !== label; });
    hideTip();
    shade();
  });
});

form.hidden = overview.hidden = false;
form.addEventListener("change", shade);
window.addEventListener("resize", drawOverview);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawOverview);
shade();
