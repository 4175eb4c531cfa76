// The page: its address is its whole state. Every change of it asks the server again, which answers with numbers and their SQL.
"use strict";

const at = (id) => document.getElementById(id);
const NEXT = ["event", "statement", "session", "application", "user", "database", "client"];
const LEAST_S = 0.05;
const OF_ALL = new Set(["opening", "about", "findings", "marks"]); // questions that do not depend on the window
const MOST_LISTED = 50, FIRST = 5, AGAIN_MS = 1000;
let about, chart, findings = [], kinds = [], asked = 0, all = false, lastKey = 0, timer;
let isMarked = false; // the marks have come
let found = null, of = null; // findings of the whole capture; the window whose own findings are shown

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

// Seconds as the address has them.
const figure = (value, round = Math.round) => (round(value * 1000) / 1000).toFixed(3).replace(/\.?0+$/, "");

function choose(low, high, replace) {
  if (high - low < LEAST_S) [low, high] = [(low + high - LEAST_S) / 2, (low + high + LEAST_S) / 2];
  const length = Math.min(high - low, about.window_s);
  low = Math.min(Math.max(low, 0), about.window_s - length);
  const first = figure(low, Math.floor), last = figure(low + length, Math.ceil);
  go({ from: first === "0" ? null : first, to: Number(last) >= about.window_s ? null : last }, replace);
}

function move(part) { const by = (to() - from()) * part; if (from() > 0 || to() < about.window_s) choose(from() + by, to() + by, again()); }
function zoom(factor) { const middle = (from() + to()) / 2, half = ((to() - from()) * factor) / 2; choose(middle - half, middle + half, again()); }
// Keys that follow each other quickly are one step for the back button.
function again() { const now = Date.now(), quick = now - lastKey < 700; lastKey = now; return quick; }
function back() { if (history.state && history.state.depth > 0) history.back(); else go({ from: null, to: null }); }

// What this window can be compared with: a name and its seconds.
function choices() {
  const low = from(), high = to(), isWhole = low === 0 && high >= about.window_s, other = about.other;
  const of = [["", "Compare with…", null]];
  if (other) {
    of.push(["other", `all of ${other.name}`, null]);
    if (low < other.window_s) of.push(["same", `the same seconds of ${other.name}`, null]);
  } else {
    if (low > 0) of.push(["before", "the time before, as long", [Math.max(2 * low - high, 0), low]]);
    if (!isWhole) of.push(["all", "the whole capture", [0, about.window_s]]);
    of.push(["this", "this window; then choose another", [low, high]]);
  }
  for (const { words, window } of about.earlier) of.push([`at ${window}`, `the same time ${words}`, null]);
  if (isWindow()) of.push(["another", "another window of the recorder\u2026", null]);
  if (state().has("vs")) of.push(["off", "nothing", null]);
  return of;
}

const isWindow = () => location.pathname.startsWith(document.body.dataset.windows);

// The address of a window of the recorder, or of one that is compared with another.
const windowAt = (name) => `${document.body.dataset.windows}${name}${document.body.dataset.end}`;

// The name of the window that is shown, without the one that it is compared with.
const ownName = () => location.pathname.slice(document.body.dataset.windows.length).match(/^[0-9.]+-[0-9.]+/)[0];

// The moments of a window's name, for people.
function moments(name) {
  const [low, high] = name.split("-").map((second) => new Date(Number(second) * 1000).toISOString().slice(0, 19).replace("T", " "));
  return `${low} to ${low.slice(0, 10) === high.slice(0, 10) ? high.slice(11) : high} UTC`;
}

function versus(name) {
  if (name === "another") {
    location.href = `${at("recorder").getAttribute("href")}?beside=${ownName()}`;
    return;
  }
  if (name.startsWith("at ")) {
    const next = state();
    next.set("vs", "same");
    location.href = `${windowAt(name.slice(3))}?${next}`;
    return;
  }
  if (name === "same" || name === "other") { go({ vs: name === "same" ? "same" : "all" }); return; }
  const seconds = (choices().find((choice) => choice[0] === name) || [])[2];
  go({ vs: seconds ? `${figure(seconds[0], Math.floor)}-${figure(Math.min(seconds[1], about.window_s), Math.floor)}` : null });
}

function filter(by, key) {
  const taken = state();
  const next = NEXT.find((name) => name !== by && !taken.has(name)) || "event";
  go({ [by]: key, by: taken.get("by") === by || (!taken.has("by") && by === "event") || by === "statement" || by === "session" ? next : taken.get("by") });
}

// -- parts of the page -----------------------------------------------------------------------------------------------

async function got(address, options) {
  try {
    return await fetch(address, options);
  } catch {
    throw new Error("leadline explore has ended, or cannot be reached: see where it was started");
  }
}

async function ask(what) {
  const answer = await got(`api/${what}${OF_ALL.has(what) ? "" : location.search}`, { headers: { accept: "application/json" } });
  const value = await answer.json();
  if (!answer.ok) throw new Error([value.error.message, value.error.hint].filter(Boolean).join(": "));
  return value;
}

// paths: of each text, where they differ.
function sql(id, texts, paths = []) {
  at(id).replaceChildren(...texts.flatMap((text) => {
    const copy = make("button", { type: "button", on: () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; }) }, "Copy");
    return [make("pre", { tabindex: 0 }, text), copy];
  }), ...(paths.length ? paths : [about.path]).map((path, number) => make("p", { class: "soft" }, `Run ${paths.length ? `number ${number + 1}` : "it"}: leadline sql ${path} - and paste it`)));
}

function swatch(name) {
  const out = make("span", { class: "swatch", "aria-hidden": "true" });
  out.style.background = colour(name);
  return out;
}

function showFilters(filters) {
  const vs = state().get("vs"), words = { same: "the same seconds", all: "all" }[vs] || (vs ? `${vs.replace("-", " to ")} s` : "");
  const compared = `${words}${about.other ? ` of ${about.other.name}` : ""}`;
  const chip = vs ? [make("button", { type: "button", class: "filter", "aria-label": `Remove: compared with ${compared}`, on: () => go({ vs: null }) },
    make("span", { class: "soft" }, "compared with"), " ", make("span", { class: "versus" }, compared), make("span", { "aria-hidden": "true" }, " ×"))] : [];
  const beside = state().get("beside");
  if (beside) chip.push(make("button", { type: "button", class: "filter", "aria-label": `Remove: to be compared with ${moments(beside)}`, on: () => go({ beside: null }) },
    make("span", { class: "soft" }, "to be compared with"), " ", make("span", { class: "value" }, moments(beside)), make("span", { "aria-hidden": "true" }, " ×")));
  at("filters").replaceChildren(...chip, ...filters.map((f) => make(
    "button", { type: "button", class: "filter", title: f.label, "aria-label": `Remove the filter ${label(f.by)} ${f.label}`, "data-by": f.by, on: () => go({ [f.by]: null }) },
    make("span", { class: "soft" }, label(f.by)), " ", make("span", { class: "value" }, f.label), make("span", { "aria-hidden": "true" }, " ×"),
  )));
}

// Seconds of the steps in which no pass was made.
function unseen(time) {
  const seen = new Set(time.passes.map((row) => row.step));
  let sum = 0;
  for (let step = 0; step <= time.last; step++) if (!seen.has(step) && !chart.isUnread(step)) sum += chart.edges(step)[1] - chart.edges(step)[0];
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
  const later = chart.unread().length;
  if (later > 0) at("legend").append(make("span", { class: "gaps" }, make("span", { class: "swatch unread", "aria-hidden": "true" }), "not read yet ", make("b", {}, `${later} of ${time.pieces} pieces`)));
  if (state().has("vs")) at("legend").append(make("span", { class: "line" }, make("span", { class: "swatch", "aria-hidden": "true" }), "compared window, from its begin"));
  at("show-locks").hidden = about.recorder || !sums.has("Lock") || state().has("locks");
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

const listed = (texts) => make("ul", {}, ...texts.map((text) => make("li", {}, text)));

// Sessions active on average in both windows, what grew first.
function showGrowth(answer) {
  const [a, b] = answer.windows, shown = all ? answer.rows : answer.rows.slice(0, 15);
  const active = (value) => (value === null ? "not seen" : value.toFixed(3));
  const told = (name, of) => `${name}: ${of.from_s.toFixed(2)} to ${of.to_s.toFixed(2)} s of ${of.name}: ${active(of.sessions)} sessions active on average, ${seconds(of.observed_s)} s seen`;
  at("said").replaceChildren(
    make("p", {}, told("A", a)), make("p", {}, told("B", b)),
    answer.comparable ? make("p", { class: "soft" }, answer.text)
      : make("div", { class: "refused" }, answer.text, listed(answer.must_agree.slice(0, FIRST)),
        ...(answer.must_agree.length > FIRST ? [make("details", {}, make("summary", {}, `${answer.must_agree.length - FIRST} more`), listed(answer.must_agree.slice(FIRST)))] : [])),
    ...(answer.overlap ? [make("p", { class: "soft" }, "The two windows overlap: what lies in both is in A and in B.")] : []),
    ...(answer.measured.length ? [make("details", {}, make("summary", {}, "Measured differently"), listed(answer.measured))] : []));
  at("by").value = answer.by;
  at("what-grew").textContent = label(answer.by);
  at("grown").tBodies[0].replaceChildren(...shown.map((row) => {
    const choose = answer.by === "object" ? () => go({ locks: "1" }) : () => filter(answer.by, row.key);
    const taken = row.key === null || (answer.by !== "object" && state().has(answer.by));
    const name = make("button", { type: "button", class: "name", title: row.label, disabled: taken ? "" : null, on: choose }, row.label);
    return make("tr", { "data-key": row.key }, make("th", { scope: "row" }, name), make("td", { class: "n" }, row.a.toFixed(3)), make("td", { class: "n" }, row.b.toFixed(3)),
      make("td", { class: `n${row.change > 0 ? " more-of-it" : ""}` }, `${row.change > 0 ? "+" : row.change < 0 ? "\u2212" : ""}${Math.abs(row.change).toFixed(3)}`));
  }));
  const left = answer.rows.length - shown.length, rest = answer.there - answer.rows.length;
  at("more").replaceChildren(...[
    left > 0 ? make("button", { type: "button", on: () => { all = true; showGrowth(answer); } }, `${left} more`) : "",
    rest > 0 ? ` ${rest.toLocaleString("en")} that moved less are not listed; the SQL below has them` : "",
    answer.why || (answer.rows.length ? "" : "No session was active in either."),
  ]);
  at("note").textContent = "Sessions active on average, in the seconds that were seen.";
  sql("ranking-sql", answer.sql, about.other ? [about.path, about.other.path] : []);
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

const span = (mark) => (mark.to_s - mark.from_s < 0.05 ? chart.when(mark.from_s, 2) : chart.between(mark.from_s, mark.to_s, 1));

function chooseMark(mark) {
  const around = Math.max((mark.to_s - mark.from_s) / 4, 0.5);
  choose(mark.from_s - around, mark.to_s + around);
}

// A list for each kind of mark that the window has; what is there and not drawn is said, too.
function showMarks() {
  if (!isMarked) return;
  const open = new Set([...at("marks").querySelectorAll("details[open]")].map((details) => details.dataset.kind));
  const shown = kinds.map((kind) => [kind, chart.within(kind.marks)]).filter(([, marks]) => marks.length);
  at("marks").replaceChildren(...shown.map(([kind, marks]) => make("details", { "data-kind": kind.name, open: open.has(kind.name) ? "" : null },
    make("summary", {}, make("span", { class: `swatch ${kind.name}`, "aria-hidden": "true" }), `${kind.label} `, make("b", {}, String(marks.length))),
    make("p", { class: "soft" }, `Each is ${kind.seen}.`),
    make("ol", {}, ...marks.slice(0, MOST_LISTED).map((mark) => make("li", {},
      make("button", { type: "button", class: "at", on: () => chooseMark(mark) }, span(mark)), ` ${mark.text}`))),
    ...(marks.length > MOST_LISTED ? [make("p", { class: "soft" }, `${marks.length - MOST_LISTED} more in this window`)] : []),
    ...(kind.there > kind.marks.length ? [make("p", { class: "soft" }, `The capture has ${kind.there.toLocaleString("en")}; the longest ${kind.marks.length} are drawn.`)] : []))));
  if (about.recorder) at("marks").append(...kinds.filter((kind) => kind.why).map((kind) => make("p", { class: "soft" }, `${kind.label}: not known: ${kind.why}`)));
  sql("marks-sql", kinds.flatMap((kind) => kind.sql.map((text) => `-- ${kind.label}: ${kind.there || "none"}\n${text}`)));
  at("marks-sql").append(...kinds.filter((kind) => kind.why).map((kind) => make("p", { class: "soft" }, `${kind.label}: not known: ${kind.why}`)));
}

function showFindings(list) {
  findings = list.map((finding, number) => ({ ...finding, number: String(number + 1) }));
  at("findings").replaceChildren(...findings.map((f) => make("li", {},
    make("button", { type: "button", class: "finding", title: `Show seconds ${f.from_s.toFixed(1)} to ${f.to_s.toFixed(1)}`, on: () => choose(f.from_s, f.to_s) },
      make("b", {}, f.id), " ", make("span", { class: `severity ${f.severity}` }, f.severity), f.cost_s === null ? "" : ` ${seconds(f.cost_s)} s`),
    make("div", { class: "said" }, f.statement))));
  if (!list.length) at("findings").replaceChildren(make("li", { class: "soft" }, "No rule found anything."));
  chart.mark(findings, kinds);
}

function showWindow(time, ranking, locks, compares) {
  sql("chart-sql", time.sql);
  at("coarse").hidden = !(about.counted_s > time.to_s - time.from_s);
  at("coarse").textContent = `Time in the run queue that no sample shows is read each ${figure(about.counted_s)} s: a window this short has all of the readings in it, or none.`;
  at("rows").hidden = compares;
  at("grown").hidden = at("said").hidden = !compares;
  at("ranking-label").textContent = compares ? "What grew, by" : "Database time by";
  (compares ? showGrowth : showRanking)(ranking);
  at("vs").replaceChildren(...choices().map(([name, text]) => make("option", { value: name }, text)));
  at("locks").hidden = !locks;
  if (locks) showLocks(locks);
}

// A recorder: what it takes to open the window, and its sums once more while pieces are being read.
function showPieces(time) {
  const size = time.bytes < 1e6 ? `${Math.ceil(time.bytes / 1e3)} kB` : `${Math.round(time.bytes / 1e6).toLocaleString("en")} MB`;
  at("open-window").textContent = `${state().has("beside") ? "Compare with" : "Open"} this window (${time.pieces} piece${time.pieces === 1 ? "" : "s"}, ${size} to read)`;
  at("open-window").disabled = time.pieces === 0;
  clearTimeout(timer);
  if (time.unread.length) timer = setTimeout(() => { if (!chart.isDragged) refresh(); askMarks(); }, AGAIN_MS);
}

// The rules over the rows of this window alone; until another window is chosen.
async function evaluate() {
  const window = location.search;
  at("evaluate").disabled = true;
  tell("The rules are evaluated over this window…");
  try {
    const answer = await ask("findings-of");
    if (location.search !== window) return;
    showFindings(answer.findings);
    tell(`Of this window alone: ${answer.findings.length} found, ${answer.clean} rules found nothing, ${answer.left.length} need evidence that a part of the capture does not have.`);
    of = window;
  } catch (error) {
    tell(error.message);
  }
}

function tell(text) { at("findings-of").textContent = text; at("findings-of").hidden = !text; }

// Findings of another window go, those of the whole capture come back.
function showAgain(isWhole) {
  at("evaluate").disabled = isWhole || of === location.search;
  if (of === location.search) return;
  tell("");
  if (of !== null && found) showFindings(found);
  of = null;
}

function openWindow() {
  const { from_s, to_s } = chart.data, beside = state().get("beside");
  const name = `${(about.epoch_s + from_s).toFixed(3)}-${(about.epoch_s + to_s).toFixed(3)}`;
  location.href = beside ? `${windowAt(`${beside}~${name}`)}?vs=all` : windowAt(name);
}

// They stand above the ranking: a click there may miss until they are drawn, and the page is not settled before.
async function askMarks() {
  try {
    kinds = (await ask("marks")).kinds;
    isMarked = true;
    chart.mark(findings, kinds);
    showMarks();
  } catch (error) {
    at("marks").replaceChildren(make("p", { class: "alert" }, error.message));
  }
  document.body.dataset.marks = kinds.length;
}

// -- all of it -------------------------------------------------------------------------------------------------------

async function refresh() {
  const mine = ++asked;
  const by = state().get("by") || "event";
  try {
    const compares = state().has("vs");
    const wanted = about.recorder ? [ask("time")] : [ask("time"), ask(compares ? "compare" : "ranking"), state().has("locks") ? ask("locks") : null];
    const [time, ranking, locks] = await Promise.all(wanted);
    if (mine !== asked) return; // a later question has been asked meanwhile
    at("error").hidden = true;
    chart.show(time, about.cpu_count, compares && ranking ? ranking.outline : null);
    showFilters(time.filters);
    showLegend(time);
    showMarks();
    if (about.recorder) showPieces(time);
    else showWindow(time, ranking, locks, compares);
    const isWhole = !state().has("from") && !state().has("to");
    at("window").textContent = isWhole ? "" : `› ${chart.between(time.from_s, time.to_s, 2)}`;
    at("whole").disabled = isWhole;
    if (!about.recorder) showAgain(isWhole);
    at("back").disabled = isWhole && !(history.state && history.state.depth > 0);
    at("left").disabled = at("right").disabled = at("out").disabled = isWhole;
    document.body.dataset.ready = location.search || "?";
    document.title = `${about.name}${isWhole ? "" : ` ${chart.between(time.from_s, time.to_s, 1)}`}: leadline explore`;
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

// A large capture takes a while: which step of how many runs.
async function opened() {
  for (;;) {
    const state = await ask("opening");
    if (state.ready) return;
    at("step").textContent = state.of ? `step ${state.done + 1} of ${state.of}: ${state.what}` : "";
    await new Promise((later) => { setTimeout(later, 200); });
  }
}

async function start() {
  try {
    await opened();
    about = await ask("about");
    at("loading").hidden = true;
  } catch (error) {
    at("loading").hidden = true;
    at("error").textContent = error.message;
    at("error").hidden = false;
    return;
  }
  at("name").textContent = about.name;
  at("recorder").hidden = !isWindow();
  at("whole-of").textContent = about.recorder ? " recorder" : isWindow() ? " window" : " capture";
  for (const id of ["columns", "vs", "chart-sql-of", "marks-sql-of"]) at(id).hidden = Boolean(about.recorder);
  at("open-window").hidden = !about.recorder;
  at("open-window").addEventListener("click", openWindow);
  at("evaluate").addEventListener("click", evaluate);
  const began = about.began ? `from ${about.began.slice(0, 19).replace("T", " ")} UTC` : "";
  at("about").textContent = [began, `${seconds(about.window_s)} s`, about.rate_hz ? `${about.rate_hz} passes a second` : "", about.pieces ? `${about.pieces} pieces of a recorder; times are UTC` : ""].filter(Boolean).join(", ");
  at("notes").replaceChildren(...about.notes.map((note) => make("p", { class: "note" }, note)));
  at("by").replaceChildren(...about.rankings.map((r) => make("option", { value: r.name }, r.label)));
  chart = new Chart(at("chart"), choose, rank, colour, about.epoch_s);
  at("by").addEventListener("change", () => go({ by: at("by").value }));
  at("vs").addEventListener("change", () => versus(at("vs").value));
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
  askMarks();
  if (!about.recorder) ask("findings").then((answer) => showFindings(found = answer.findings), (error) => at("findings").replaceChildren(make("li", { class: "alert" }, error.message)));
}

start();
