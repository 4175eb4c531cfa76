// The chart: sessions active on average, stacked by wait class. Steps without a pass are drawn as gaps, never as zero.
"use strict";

const GAP = "not seen: no pass was made", UNREAD = "not read yet";
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes, text) {
  const out = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes || {})) out.setAttribute(key, value);
  if (text !== undefined) out.textContent = text;
  return out;
}

// Rows of the answer as pieces: what waited for a CPU stands apart from what ran on one.
function pieces(rows) {
  const out = [];
  for (const row of rows) {
    const rest = row.seconds - row.queue_s;
    if (row.wait_class !== "CPU" || rest > 0) out.push({ step: row.step, name: row.wait_class, seconds: row.wait_class === "CPU" ? rest : row.seconds });
    if (row.wait_class === "CPU" && row.queue_s > 0) out.push({ step: row.step, name: "run queue", seconds: row.queue_s });
  }
  return out;
}

// Sessions active by step, of all that was seen.
function totals(of) {
  const sums = new Map();
  for (const row of of.rows) sums.set(row.step, (sums.get(row.step) || 0) + row.seconds);
  return new Map(of.passes.filter((row) => row.observed_s > 0).map((row) => [row.step, (sums.get(row.step) || 0) / row.observed_s]));
}

function roundSteps(span, most) {
  const rough = span / most, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.9999) || 10 * power;
}

const CLOCK_STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800];

// A moment of the wall clock; of a step of minutes or more without its seconds.
function clock(epoch_s, step) {
  const [day, time] = new Date(Math.round(epoch_s * 1000)).toISOString().split("T");
  if (step >= 86400) return day.slice(5);
  return `${time.slice(0, 8) === "00:00:00" && step >= 60 ? `${day.slice(5)} ` : ""}${time.slice(0, step >= 60 ? 5 : 8)}`;
}

class Chart {
  // epoch_s: the wall clock at second 0, where the axis shows that; else undefined.
  // place: element. choose(from_s, to_s): called with a window that was dragged. rank(name): order of the stack.
  constructor(place, choose, rank, colour, epoch_s) {
    Object.assign(this, { place, choose, rank, colour, epoch_s, findings: [], kinds: [], data: null });
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.tip.setAttribute("aria-hidden", "true");
    place.addEventListener("pointerdown", (event) => this.begin(event));
    place.addEventListener("pointermove", (event) => this.move(event));
    place.addEventListener("pointerup", (event) => this.end(event));
    place.addEventListener("pointercancel", () => this.forget());
    place.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    new ResizeObserver(() => this.width !== place.clientWidth && this.draw()).observe(place);
  }

  // outline: another window in steps of the same length, or null.
  show(data, cpus, outline) {
    Object.assign(this, { data, cpus, outline });
    this.draw();
  }

  // findings: in lines of their own. kinds: other marks, a line for each kind that has a short name; those without are drawn as gaps.
  mark(findings, kinds) {
    Object.assign(this, { findings, kinds });
    this.draw();
  }

  within(marks) {
    return !this.data ? [] : marks.filter((mark) => mark.to_s >= this.data.from_s && mark.from_s <= this.data.to_s);
  }

  x(seconds) {
    const { from_s, to_s } = this.data;
    return this.left + ((seconds - from_s) / (to_s - from_s)) * (this.width - this.left - this.right);
  }

  seconds(x) {
    const { from_s, to_s } = this.data;
    const part = (x - this.left) / (this.width - this.left - this.right);
    return from_s + Math.min(Math.max(part, 0), 1) * (to_s - from_s);
  }

  edges(step) {
    const { from_s, to_s, step_s, last } = this.data;
    return [from_s + step * step_s, step === last ? to_s : from_s + (step + 1) * step_s];
  }

  draw() {
    if (!this.data) return;
    const kinds = this.kinds.filter((kind) => kind.short && this.within(kind.marks).length), lanes = this.lanes();
    this.width = Math.max(this.place.clientWidth, 200);
    Object.assign(this, { left: 40, right: 8, top: 10, plot: 170 });
    const axis = this.top + this.plot, height = axis + 24 + (kinds.length + lanes.length) * 11;
    const out = svg("svg", { width: this.width, height, viewBox: `0 0 ${this.width} ${height}`, role: "img", "aria-label": this.told() });
    out.append(this.hatching());
    const seen = new Map(this.data.passes.map((row) => [row.step, row.observed_s]));
    const stacks = new Map(), tops = new Map();
    for (const piece of pieces(this.data.rows).sort((a, b) => this.rank(a.name) - this.rank(b.name))) {
      const observed = seen.get(piece.step);
      if (!observed) continue;
      const below = tops.get(piece.step) || 0, above = below + piece.seconds / observed;
      tops.set(piece.step, above);
      if (!stacks.has(piece.name)) stacks.set(piece.name, []);
      stacks.get(piece.name).push([piece.step, below, above]);
    }
    this.tops = tops;
    this.others = this.outline ? totals(this.outline) : new Map();
    const most = Math.max(0, ...tops.values(), ...this.others.values());
    const withCpus = this.cpus && this.cpus <= Math.max(3 * most, most === 0 ? this.cpus : 0);
    const high = Math.max(most, withCpus ? this.cpus : 0, 0.001) * 1.06;
    const y = (value) => axis - (value / high) * this.plot;
    const step = roundSteps(high, 5);
    for (let value = 0; value <= high; value += step) {
      out.append(svg("line", { class: "grid", x1: this.left, x2: this.width - this.right, y1: y(value), y2: y(value) }));
      out.append(svg("text", { class: "tick", x: this.left - 6, y: y(value) + 4, "text-anchor": "end" }, String(+value.toPrecision(6))));
    }
    for (const mark of this.unread()) {
      const [x, to] = this.ends(mark), later = svg("rect", { class: "unread", x, y: this.top, width: to - x, height: this.plot });
      later.append(svg("title", {}, UNREAD));
      out.append(later);
    }
    for (let at = 0; at <= this.data.last; at++) {
      if (seen.has(at) || this.isUnread(at)) continue;
      const from = at;
      while (at < this.data.last && !seen.has(at + 1) && !this.isUnread(at + 1)) at++;
      const x = this.x(this.edges(from)[0]), width = Math.max(this.x(this.edges(at)[1]) - x, 1);
      const gap = svg("rect", { class: "gap", x, y: this.top, width, height: this.plot, fill: "url(#hatching)" });
      gap.append(svg("title", {}, GAP));
      out.append(gap);
    }
    for (const mark of this.kinds.filter((kind) => !kind.short).flatMap((kind) => this.within(kind.marks))) {
      const [from, to] = this.ends(mark);
      if (to - from >= 1) out.append(svg("rect", { class: "gap", x: from, y: this.top, width: to - from, height: this.plot, fill: "url(#hatching)" }));
    }
    for (const [name, parts] of stacks) {
      const d = parts.map(([at, below, above]) => {
        const [from, to] = this.edges(at).map((s) => this.x(s).toFixed(2));
        return `M${from} ${y(below).toFixed(2)}V${y(above).toFixed(2)}H${to}V${y(below).toFixed(2)}Z`;
      }).join("");
      const path = svg("path", { d });
      path.dataset.name = name;
      path.style.fill = this.colour(name);
      out.append(path);
    }
    if (this.others.size) {
      const d = this.stairs(y);
      out.append(svg("path", { class: "outline halo", d }), svg("path", { class: "outline", d }));
    }
    if (this.cpus) {
      const at = withCpus ? y(this.cpus) : this.top;
      if (withCpus) out.append(svg("line", { class: "cpus", x1: this.left, x2: this.width - this.right, y1: at, y2: at }));
      const text = `${this.cpus} CPU${this.cpus === 1 ? "" : "s"}${withCpus ? "" : ": above this scale"}`;
      out.append(svg("text", { class: "cpus", x: this.width - this.right - 4, y: at + (at < 24 ? 13 : -4), "text-anchor": "end" }, text));
    }
    this.times(out, axis);
    kinds.forEach((kind, number) => out.append(this.row(kind, axis + 27 + number * 11)));
    lanes.forEach((lane, number) => lane.forEach((mark) => out.append(this.line(mark, axis + 27 + (kinds.length + number) * 11))));
    this.chosen = svg("rect", { class: "chosen", y: this.top, height: this.plot, width: 0, x: 0 });
    this.cursor = svg("line", { class: "cursor", y1: this.top, y2: axis, x1: -9, x2: -9 });
    out.append(this.chosen, this.cursor);
    this.place.replaceChildren(out, this.tip);
  }

  // The outline: from step to step where both were seen, else anew.
  stairs(y) {
    const { from_s, step_s } = this.data, { last, length_s } = this.outline;
    let d = "", before = -2;
    for (const at of [...this.others.keys()].sort((a, b) => a - b)) {
      const from = this.x(from_s + at * step_s).toFixed(2), to = this.x(from_s + (at === last ? length_s : (at + 1) * step_s)).toFixed(2);
      d += `${before === at - 1 ? "V" : `M${from} `}${y(this.others.get(at)).toFixed(2)}H${to}`;
      before = at;
    }
    return d;
  }

  // What a thread of the server reads later.
  unread() {
    return (this.data.unread || []).map(([from_s, to_s]) => ({ from_s, to_s }));
  }

  isUnread(step) {
    const [from, to] = this.edges(step);
    return this.unread().some((mark) => mark.from_s < to && mark.to_s > from);
  }

  when(seconds, digits) {
    return this.epoch_s === undefined ? `${seconds.toFixed(digits)} s` : `${clock(this.epoch_s + seconds, 1)}`;
  }

  between(from, to, digits) {
    return this.epoch_s === undefined ? `${from.toFixed(digits)} to ${to.toFixed(digits)} s` : `${this.when(from)} to ${this.when(to)}`;
  }

  told() {
    const { from_s, to_s, rows } = this.data;
    const seconds = rows.reduce((sum, row) => sum + row.seconds, 0);
    return `From ${this.between(from_s, to_s, 2)}: ${seconds.toFixed(2)} seconds of database time; by wait class in the legend below`;
  }

  hatching() {
    const defs = svg("defs"), pattern = svg("pattern", { id: "hatching", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(svg("line", { class: "hatch", x1: 0, x2: 0, y1: 0, y2: 6 }));
    defs.append(pattern);
    return defs;
  }

  times(out, axis) {
    const { from_s, to_s } = this.data, span = to_s - from_s, most = this.width < 600 ? 4 : 10, zero = this.epoch_s || 0;
    const step = this.epoch_s === undefined || span < most ? roundSteps(span, most) : CLOCK_STEPS.find((one) => one * most >= span) || 2592000;
    for (let at = Math.ceil((zero + from_s) / step - 1e-9) * step - zero; at <= to_s + 1e-9; at += step) {
      const x = this.x(at), anchor = x > this.width - 24 ? "end" : x < this.left + 10 ? "start" : "middle";
      out.append(svg("line", { class: "grid", x1: x, x2: x, y1: axis, y2: axis + 4 }));
      out.append(svg("text", { class: "tick", x, y: axis + 16, "text-anchor": anchor }, this.epoch_s === undefined ? `${+at.toPrecision(9)} s` : clock(zero + at, step)));
    }
  }

  // Findings in as few lines as hold them beside each other; at most three lines.
  lanes() {
    const lanes = [], { from_s, to_s } = this.data, room = (to_s - from_s) * 0.04;
    for (const mark of this.within(this.findings)) {
      let lane = lanes.find((those) => those.every((other) => mark.from_s > other.to_s + room || other.from_s > mark.to_s + room));
      if (!lane && lanes.length < 3) lanes.push((lane = []));
      if (lane) lane.push(mark);
    }
    return lanes;
  }

  // Of a mark on the page, within the chart.
  ends(mark) {
    return [mark.from_s, mark.to_s].map((s) => Math.min(Math.max(this.x(s), this.left), this.width - this.right));
  }

  row(kind, y) {
    const group = svg("g", { class: `event ${kind.name}` });
    group.append(svg("text", { x: this.left - 4, y: y + 3, "text-anchor": "end" }, kind.short));
    for (const mark of this.within(kind.marks)) {
      const [from, to] = this.ends(mark), width = Math.max(to - from, 3);
      group.append(svg("rect", { x: Math.min(from, this.width - this.right - width), y: y - 4, width, height: 8 }));
    }
    return group;
  }

  // Marks of all kinds at a place of the axis, as lines for the tip; what is narrower than a finger counts a little wider.
  under(x) {
    const here = (mark) => this.ends(mark)[0] - 4 <= x && x <= this.ends(mark)[1] + 4;
    return this.kinds.flatMap((kind) => this.within(kind.marks).filter(here).map((mark) => `${kind.label}: ${mark.text}`));
  }

  line(mark, y) {
    const [from, end] = this.ends(mark), to = Math.max(end, from + 3);
    const group = svg("g", { class: `mark ${mark.severity}` });
    group.append(svg("line", { x1: from, x2: to, y1: y, y2: y }));
    group.append(svg("line", { x1: from, x2: from, y1: y - 4, y2: y + 4 }));
    group.append(svg("text", { x: Math.max(from - 4, 12), y: y + 4, "text-anchor": "end" }, mark.number));
    group.append(svg("title", {}, `${mark.number}. ${mark.id}: ${mark.statement}`));
    return group;
  }

  get isDragged() {
    return this.from !== undefined;
  }

  place_x(event) {
    return event.clientX - this.place.getBoundingClientRect().left;
  }

  begin(event) {
    if (!this.data || event.button || !event.isPrimary) return;
    this.from = this.place_x(event);
    this.place.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.data || !this.chosen) return;
    const x = this.place_x(event);
    if (this.from !== undefined) {
      const [low, high] = [Math.min(this.from, x), Math.max(this.from, x)].map((v) => Math.min(Math.max(v, this.left), this.width - this.right));
      this.chosen.setAttribute("x", low);
      this.chosen.setAttribute("width", high - low);
    }
    this.hover(x);
  }

  hover(x) {
    if (x < this.left || x > this.width - this.right) { this.tip.hidden = true; return; }
    const { from_s, step_s, last } = this.data, step = Math.min(Math.floor((this.seconds(x) - from_s) / step_s), last);
    const [from, to] = this.edges(step), observed = (this.data.passes.find((row) => row.step === step) || {}).observed_s;
    const lines = [this.between(from, to, 3)];
    if (!observed) lines.push(this.isUnread(step) ? UNREAD : GAP);
    else {
      const here = pieces(this.data.rows.filter((row) => row.step === step)).sort((a, b) => b.seconds - a.seconds);
      lines.push(`${(this.tops.get(step) || 0).toFixed(2)} sessions active`, ...here.map((piece) => `${piece.name} ${(piece.seconds / observed).toFixed(2)}`));
    }
    if (this.others.has(step)) lines.push(`compared: ${this.others.get(step).toFixed(2)}`);
    const marks = this.under(x);
    lines.push(...marks.slice(0, 4).map((text) => (text.length > 70 ? `${text.slice(0, 69)}…` : text)), ...(marks.length > 4 ? [`${marks.length - 4} more marks`] : []));
    this.tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(x + 14, this.width - this.tip.offsetWidth - 4)}px`;
    if (x + 14 + this.tip.offsetWidth > this.width) this.tip.style.left = `${Math.max(x - this.tip.offsetWidth - 14, 0)}px`;
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
  }

  end(event) {
    if (this.from === undefined) return;
    const from = this.from, to = this.place_x(event);
    this.forget();
    if (Math.abs(to - from) < 6) return;
    this.choose(...[this.seconds(from), this.seconds(to)].sort((a, b) => a - b));
  }

  forget() {
    this.from = undefined;
    if (this.chosen) this.chosen.setAttribute("width", 0);
  }
}
