// What the pages do without being asked: follow the output of a run, renew the list of runs, and a few keys.
"use strict";

const MOST_LINES = 5000;

function follow(log) {
  const live = document.getElementById("live");
  let from = log.dataset.from;
  const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  const source = new EventSource(`${log.dataset.stream}?form=parts&from=${from}`);
  log.scrollTop = log.scrollHeight;
  source.onmessage = (event) => {
    const stay = atEnd();
    const status = document.querySelector("h1 .status.queued");
    if (status) { status.className = "status running"; status.textContent = "running"; }
    const all = document.createDocumentFragment();
    JSON.parse(event.data).parts.forEach((parts, n) => {
      if (n) all.append("\n");
      for (const [classes, text] of parts) {
        if (!classes) { all.append(text); continue; }
        const span = document.createElement("span");
        span.className = classes;
        span.textContent = text;
        all.append(span);
      }
    });
    log.append(all);
    while (log.childNodes.length > MOST_LINES * 2) log.firstChild.remove();
    if (stay) log.scrollTop = log.scrollHeight;
  };
  source.onopen = () => { live.textContent = "live"; };
  source.onerror = () => { live.textContent = "connection lost, trying again"; };
  source.addEventListener("done", (event) => {
    source.close();
    live.textContent = JSON.parse(event.data).status;
    // Once more as a whole: now it has an end, figures and files.
    setTimeout(() => location.reload(), 700);
  });
}

async function renew(list) {
  if (document.hidden || list.contains(document.activeElement) || list.querySelector("details[open]")) return;
  const answer = await fetch(location.href, { headers: { accept: "text/html" } }).catch(() => null);
  if (!answer || !answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("list");
  if (fresh && fresh.textContent !== list.textContent) list.replaceChildren(...fresh.childNodes);
}

// On a phone the menu is one line that scrolls.
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
const log = document.getElementById("log");
if (log && log.dataset.stream) follow(log);
const list = document.getElementById("list");
if (list && "refresh" in list.dataset) setInterval(() => renew(list), 3000);

document.addEventListener("keydown", (event) => {
  const field = event.target.closest("input, select, textarea");
  if (field || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-key='/']");
    if (search) { search.focus(); event.preventDefault(); } else location.href = `${document.body.dataset.root}/search`;
  }
  if (event.key === "j" || event.key === "k") {
    const rows = [...document.querySelectorAll(".runs tbody a[href*='/runs/']")];
    const at = rows.indexOf(document.activeElement);
    const to = rows[at < 0 ? 0 : at + (event.key === "j" ? 1 : -1)];
    if (to) to.focus();
  }
});
document.addEventListener("submit", (event) => {
  const button = event.target.querySelector("button");
  if (event.target.method === "post" && button) setTimeout(() => { button.disabled = true; }, 0);
});

// Of a form whose fields are for one kind of thing: those of another kind are out of sight. The server ignores them, too.
for (const kind of document.querySelectorAll("form select[name=kind]")) {
  const parts = kind.form.querySelectorAll("[data-when]");
  const show = () => parts.forEach((part) => { part.hidden = !part.dataset.when.split(" ").includes(kind.value); });
  kind.addEventListener("change", show);
  if (parts.length) show();
}
document.addEventListener("click", (event) => {
  if (!("more" in event.target.dataset)) return;
  const many = event.target.closest("details").querySelector(".many");
  const n = many.children.length;
  const row = many.lastElementChild.cloneNode(true);
  for (const part of row.querySelectorAll("[id], [name], [for], [aria-describedby]")) {
    for (const name of ["id", "name", "for", "aria-describedby"]) {
      const value = part.getAttribute(name);
      if (value) part.setAttribute(name, value.replace(/(.*[.-])\d+([.-])/, `$1${n}$2`));
    }
    if ("value" in part && part.tagName !== "SELECT") part.value = "";
  }
  many.append(row);
  row.querySelector("input").focus();
});
