// The page: its address is its whole state. Every change of it asks the server again, which answers with numbers and their SQL.
"use strict";

const at = (id) => document.getElementById(id);
const NEXT = ["event", "statement", "session", "application", "user", "database", "client"];
const LEAST_S = 0.05;
let about, chart, marks = [], asked = 0, all = false, lastKey = 0;

function make(name, attributes, ...children) {
  const out = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") out.addEventListener("click", value);
    else if (value !== undefined && value !== null) out.setAttribute(key, value);
  }
  out.append(...children);
  return out;
}

// -- figures ---------------------------------------------------------------------------------------------------------

function seconds(value) {
  if (value === 0) return "0";
  if (value < 0.1) return value.toPrecision(2);
  if (value < 1) return value.toFixed(3);
  if (value < 10) return value.toFixed(2);
  return value < 1000 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}

const share = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)}%` : "");
const rank = (name) => { const found = about.classes.findIndex((c) => c.name === name); return found < 0 ? 99 : found; };
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const colour = (name) => (about.classes.find((c) => c.name === name) || about.unknown)[isDark() ? "dark" : "light"];
const label = (by) => (about.rankings.find((r) => r.name === by) || { label: by }).label;

// -- state -----------------------------------------------------------------------------------------------------------

const state = () => new URLSearchParams(location.search);
const from = () => Number(state().get("from") || 0);
const to = () => Number(state().get("to") || about.window_s);

function go(change, replace) {
  const next = state();
  for (const [name, value] of Object.entries(change)) value === null ? next.delete(name) : next.set(name, value);
  const depth = (history.state && history.state.depth) || 0, query = next.toString();
  const to = query ? `?${query}` : location.pathname;
  if (replace) history.replaceState({ depth }, "", to);
  else history.pushState({ depth: depth + 1 }, "", to);
  all = false;
  refresh();
}

function choose(low, high, replace) {
  if (high - low < LEAST_S) [low, high] = [(low + high - LEAST_S) / 2, (low + high + LEAST_S) / 2];
  const length = Math.min(high - low, about.window_s);
  low = Math.min(Math.max(low, 0), about.window_s - length);
  const whole = (value, round) => (round(value * 1000) / 1000).toFixed(3).replace(/\.?0+$/, "");
  const first = whole(low, Math.floor), last = whole(low + length, Math.ceil);
  go({ from: first === "0" ? null : first, to: Number(last) >= about.window_s ? null : last }, replace);
}

function move(part) { const by = (to() - from()) * part; if (from() > 0 || to() < about.window_s) choose(from() + by, to() + by, again()); }
function zoom(factor) { const middle = (from() + to()) / 2, half = ((to() - from()) * factor) / 2; choose(middle - half, middle + half, again()); }
// Keys that follow each other quickly are one step for the back button.
function again() { const now = Date.now(), quick = now - lastKey < 700; lastKey = now; return quick; }
function back() { if (history.state && history.state.depth > 0) history.back(); else go({ from: null, to: null }); }

function filter(by, key) {
  const taken = state();
  const next = NEXT.find((name) => name !== by && !taken.has(name)) || "event";
  go({ [by]: key, by: taken.get("by") === by || (!taken.has("by") && by === "event") || by === "statement" || by === "session" ? next : taken.get("by") });
}

// -- parts of the page -----------------------------------------------------------------------------------------------

async function ask(what) {
  const answer = await fetch(`/api/${what}${what === "about" || what === "findings" ? "" : location.search}`, { headers: { accept: "application/json" } });
  const value = await answer.json();
  if (!answer.ok) throw new Error([value.error.message, value.error.hint].filter(Boolean).join(": "));
  return value;
}

function sql(id, texts) {
  at(id).replaceChildren(...texts.flatMap((text) => {
    const copy = make("button", { type: "button", on: () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; }) }, "Copy");
    return [make("pre", { tabindex: 0 }, text), copy];
  }), make("p", { class: "soft" }, `Run it: leadline sql ${about.path} - and paste it`));
}

function swatch(name) {
  const out = make("span", { class: "swatch", "aria-hidden": "true" });
  out.style.background = colour(name);
  return out;
}

function showFilters(filters) {
  at("filters").replaceChildren(...filters.map((f) => make(
    "button", { type: "button", class: "filter", title: f.label, "aria-label": `Remove the filter ${label(f.by)} ${f.label}`, "data-by": f.by, on: () => go({ [f.by]: null }) },
    make("span", { class: "soft" }, label(f.by)), " ", make("span", { class: "value" }, f.label), make("span", { "aria-hidden": "true" }, " ×"),
  )));
}

// Seconds of the steps in which no pass was made.
function unseen(time) {
  const seen = new Set(time.passes.map((row) => row.step));
  let sum = 0;
  for (let step = 0; step <= time.last; step++) if (!seen.has(step)) sum += chart.edges(step)[1] - chart.edges(step)[0];
  return sum;
}

function showLegend(time) {
  const rows = time.rows;
  const sums = new Map();
  for (const piece of pieces(rows)) sums.set(piece.name, (sums.get(piece.name) || 0) + piece.seconds);
  const total = [...sums.values()].reduce((a, b) => a + b, 0);
  const taken = state().get("class");
  at("legend").replaceChildren(...[...sums].sort((a, b) => rank(a[0]) - rank(b[0])).map(([name, spent]) => {
    const of = name === "run queue" ? "CPU" : name, meaning = (about.classes.find((c) => c.name === name) || {}).meaning;
    return make("button", { type: "button", title: meaning, disabled: taken ? "" : null, on: () => filter("class", of) }, swatch(name), `${name} `,
      make("b", {}, `${seconds(spent)} s`), make("span", { class: "soft" }, ` ${share(spent, total)}`));
  }));
  const gap = unseen(time);
  if (gap > 0) at("legend").append(make("span", { class: "gaps" }, make("span", { class: "swatch", "aria-hidden": "true" }), "not seen ", make("b", {}, `${seconds(gap)} s`)));
  at("show-locks").hidden = !sums.has("Lock") || state().has("locks");
  at("total").textContent = `${seconds(total)} s in the window`;
}

function bars(row, most) {
  const out = svg("svg", { class: "part", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  let x = 0;
  for (const part of row.classes) {
    const width = (100 * part.seconds) / most, rect = svg("rect", { x, y: 0, width, height: 10 });
    rect.style.fill = colour(part.wait_class);
    rect.append(svg("title", {}, `${part.wait_class} ${seconds(part.seconds)} s`));
    out.append(rect);
    x += width;
  }
  return out;
}

function showRanking(answer) {
  const most = answer.rows.length ? answer.rows[0].seconds : 0, first = all ? answer.rows : answer.rows.slice(0, 10);
  at("by").value = answer.by;
  at("what").textContent = label(answer.by);
  at("rows").tBodies[0].replaceChildren(...first.map((row) => {
    const choose = answer.by === "object" ? () => go({ locks: "1" }) : () => filter(answer.by, row.key);
    const taken = answer.by !== "object" && state().has(answer.by);
    const name = make("button", { type: "button", class: "name", title: row.label, disabled: taken ? "" : null, on: choose }, row.label);
    const classes = row.classes.slice(0, 3).map((part) => `${part.wait_class} ${share(part.seconds, row.seconds)}`).join(", ");
    const cell = make("td", { class: "bars" }, bars(row, most), make("span", { class: "unseen" }, classes));
    cell.title = classes;
    return make("tr", { "data-key": row.key }, make("th", { scope: "row" }, name), make("td", { class: "n" }, seconds(row.seconds)),
      make("td", { class: "n" }, share(row.seconds, answer.total_s)), cell);
  }));
  const left = answer.rows.length - first.length;
  const rest = answer.there - answer.rows.length;
  at("more").replaceChildren(...[
    left > 0 ? make("button", { type: "button", on: () => { all = true; showRanking(answer); } }, `${left} more`) : "",
    rest > 0 ? ` ${rest.toLocaleString("en")} smaller ones are not listed; the SQL below without its limit has them` : "",
    answer.rows.length ? "" : answer.by === "object" ? "No wait for a lock or a buffer names an object here." : "No session was active here.",
  ]);
  at("note").textContent = answer.by === "object"
    ? "Waits for locks count by the looks at their waiters. Waits for buffers are divided among the objects by where their waiters were seen, of all sessions." : "";
  sql("ranking-sql", answer.sql);
}

function waiters(list) {
  return make("ul", {}, ...list.map((w) => make("li", {}, make("b", {}, `pid ${w.pid} ${w.who}`), ` waited ${seconds(w.seconds)} s for ${w.mode} on ${w.object}${w.queued ? " (in the queue)" : ""}`,
    ...(w.statement ? [make("code", { title: w.statement }, w.statement)] : []), ...(w.waiters.length ? [waiters(w.waiters)] : []))));
}

function showLocks(answer) {
  const root = (tree) => `${tree.pid ? `pid ${tree.pid} ` : ""}${tree.who}`;
  at("trees").replaceChildren(...answer.trees.map((tree) => make("div", { class: "tree" },
    make("p", {}, make("b", {}, root(tree)), `: ${tree.state}${tree.xact_age_s === null ? "" : `, transaction ${seconds(tree.xact_age_s)} s old`}; ${seconds(tree.seconds)} s lost by ${tree.victims} behind it`),
    ...(tree.statement ? [make("code", { title: tree.statement }, tree.statement)] : []), waiters(tree.waiters))));
  if (!answer.trees.length) at("trees").textContent = "No session waited for a lock here.";
  if (answer.there > answer.trees.length) at("trees").append(make("p", { class: "soft" }, `${answer.there - answer.trees.length} smaller chains`));
  sql("locks-sql", answer.sql);
}

function showFindings(list) {
  marks = list.map((finding, number) => ({ ...finding, number: String(number + 1) }));
  at("findings").replaceChildren(...marks.map((f) => make("li", {},
    make("button", { type: "button", class: "finding", title: `Show seconds ${f.from_s.toFixed(1)} to ${f.to_s.toFixed(1)}`, on: () => choose(f.from_s, f.to_s) },
      make("b", {}, f.id), " ", make("span", { class: `severity ${f.severity}` }, f.severity), f.cost_s === null ? "" : ` ${seconds(f.cost_s)} s`),
    make("div", { class: "said" }, f.statement))));
  if (!list.length) at("findings").replaceChildren(make("li", { class: "soft" }, "No rule found anything in this capture."));
  chart.mark(marks);
}

// -- all of it -------------------------------------------------------------------------------------------------------

async function refresh() {
  const mine = ++asked;
  const by = state().get("by") || "event";
  try {
    const wanted = [ask("time"), ask("ranking"), state().has("locks") ? ask("locks") : null];
    const [time, ranking, locks] = await Promise.all(wanted);
    if (mine !== asked) return; // a later question has been asked meanwhile
    at("error").hidden = true;
    chart.show(time, about.cpu_count);
    showFilters(time.filters);
    showLegend(time);
    sql("chart-sql", time.sql);
    showRanking(ranking);
    at("locks").hidden = !locks;
    if (locks) showLocks(locks);
    const isWhole = !state().has("from") && !state().has("to");
    at("window").textContent = isWhole ? "" : `› ${time.from_s.toFixed(2)} to ${time.to_s.toFixed(2)} s`;
    at("whole").disabled = isWhole;
    at("back").disabled = isWhole && !(history.state && history.state.depth > 0);
    at("left").disabled = at("right").disabled = at("out").disabled = isWhole;
    document.body.dataset.ready = location.search || "?";
    document.title = `${about.name}${isWhole ? "" : ` ${time.from_s.toFixed(1)} to ${time.to_s.toFixed(1)} s`}: leadline explore`;
  } catch (error) {
    if (mine !== asked) return;
    at("error").textContent = error.message;
    at("error").hidden = false;
    at("by").value = by;
  }
}

const KEYS = {
  ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
  Home: () => go({ from: null, to: null }), Backspace: back, Escape: back,
};

async function start() {
  try {
    about = await ask("about");
  } catch (error) {
    at("error").textContent = error.message;
    at("error").hidden = false;
    return;
  }
  at("name").textContent = about.name;
  const began = about.began ? `from ${about.began.slice(0, 19).replace("T", " ")} UTC` : "";
  at("about").textContent = [began, `${seconds(about.window_s)} s`, about.rate_hz ? `${about.rate_hz} passes a second` : ""].filter(Boolean).join(", ");
  at("notes").replaceChildren(...about.notes.map((note) => make("p", { class: "note" }, note)));
  at("by").replaceChildren(...about.rankings.map((r) => make("option", { value: r.name }, r.label)));
  chart = new Chart(at("chart"), choose, rank, colour);
  at("by").addEventListener("change", () => go({ by: at("by").value }));
  for (const [id, act] of Object.entries({ back, whole: KEYS.Home, left: KEYS.ArrowLeft, right: KEYS.ArrowRight, in: KEYS["+"], out: KEYS["-"], "show-locks": () => go({ locks: "1" }), "close-locks": () => go({ locks: null }) }))
    at(id).addEventListener("click", act);
  at("chart").addEventListener("keydown", (event) => {
    if (!KEYS[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  addEventListener("popstate", () => { all = false; refresh(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refresh);
  await refresh();
  ask("findings").then((answer) => showFindings(answer.findings), (error) => at("findings").replaceChildren(make("li", { class: "alert" }, error.message)));
}

start();
