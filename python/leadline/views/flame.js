// Zoom on a click, search by a regular expression, the box under the pointer told in full.
"use strict";
(() => {
  const svg = document.querySelector("svg");
  const byId = (id) => svg.querySelector("#" + id);
  const wide = Number(svg.dataset.width), side = 10;
  const boxes = [...byId("boxes").children].map((g) => ({
    g, x: Number(g.dataset.x), w: Number(g.dataset.w), level: Number(g.dataset.l), name: g.dataset.n,
    told: g.querySelector("title").textContent, rect: g.querySelector("rect"), text: g.querySelector("text"),
  }));

  function fit(name, pixels) {
    const room = Math.floor((pixels - 5) / 6.6);
    return room < 3 ? "" : name.length <= room ? name : name.slice(0, room - 1) + "…";
  }

  // The box fills the width; what it was called by stays, as wide as it.
  function zoom(to) {
    const end = to.x + to.w + 1e-6;
    for (const b of boxes) {
      const above = b.level < to.level && b.x <= to.x + 1e-6 && b.x + b.w >= end - 2e-6;
      const within = b.level >= to.level && b.x >= to.x - 1e-6 && b.x + b.w <= end;
      b.g.setAttribute("visibility", above || within ? "visible" : "hidden");
      b.g.classList.toggle("above", above);
      if (!above && !within) continue;
      const x = side + (above ? 0 : ((b.x - to.x) / to.w) * wide), w = above ? wide : (b.w / to.w) * wide;
      b.rect.setAttribute("x", x);
      b.rect.setAttribute("width", w);
      b.text.setAttribute("x", x + 3);
      b.text.textContent = fit(b.name, w);
    }
    byId("reset").setAttribute("visibility", to.level ? "visible" : "hidden");
  }

  function search(pattern) {
    let wanted = null;
    try { wanted = pattern ? new RegExp(pattern, "i") : null; } catch { byId("found").textContent = "not a regular expression"; return; }
    const hits = [];
    for (const b of boxes) {
      const hit = wanted !== null && b.level > 0 && wanted.test(b.name);
      b.g.classList.toggle("hit", hit);
      if (hit) hits.push(b);
    }
    // A box within another hit counts once.
    hits.sort((a, b) => a.x - b.x || a.level - b.level);
    let share = 0, end = -1;
    for (const b of hits) {
      if (b.x + 1e-6 < end) continue;
      share += b.w;
      end = b.x + b.w;
    }
    byId("found").textContent = wanted === null ? "" : `${pattern}: ${(100 * share).toFixed(1)} %`;
  }

  const ask = () => {
    const pattern = prompt("Functions to mark (a regular expression):", "");
    if (pattern !== null) search(pattern);
  };
  byId("boxes").addEventListener("click", (e) => {
    const b = boxes.find((b) => b.g === e.target.closest("g"));
    if (b) zoom(b);
  });
  byId("boxes").addEventListener("mouseover", (e) => {
    const b = boxes.find((b) => b.g === e.target.closest("g"));
    byId("told").textContent = b ? b.told : "";
  });
  byId("reset").addEventListener("click", () => zoom(boxes[0]));
  byId("search").addEventListener("click", ask);
  window.addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key === "f") { e.preventDefault(); ask(); }
    if (e.key === "Escape") { zoom(boxes[0]); search(""); }
  });
  if (location.hash.startsWith("#s=")) search(decodeURIComponent(location.hash.slice(3)));
})();
