// Draws the charts in the colours of the reader's scheme, again when that changes.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const palettes = JSON.parse(document.getElementById("palettes").textContent);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function coloured(part, palette) {
    if (Array.isArray(part)) return part.map((item) => coloured(item, palette));
    if (part === null || typeof part !== "object") return part;
    const copy = {};
    for (const [key, value] of Object.entries(part)) copy[key] = key === "values" ? value : coloured(value, palette);
    if (Array.isArray(copy.range) && copy.range.length === 0 && copy.domain)
      copy.range = copy.domain.map((name) => palette[name] || palette[""]);
    return copy;
  }

  function draw() {
    const palette = palettes[scheme.matches ? "dark" : "light"];
    const small = window.innerWidth < 640;
    const axis = { labelColor: ink("--soft"), titleColor: ink("--soft"), gridColor: ink("--line"), domainColor: ink("--line"),
                   tickColor: ink("--line"), labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500 };
    const axisX = { tickCount: small ? 5 : 10 };
    const axisY = { labelLimit: small ? 90 : 200 };
    const config = { background: "transparent", font: "system-ui, sans-serif", view: { stroke: null }, axis, axisX, axisY,
                     legend: { labelColor: ink("--soft"), labelFontSize: 11, columns: small ? 2 : 4 },
                     rule: { color: ink("--ink") }, text: { color: ink("--ink"), fontSize: 11 } };
    for (const [id, spec] of Object.entries(charts)) {
      const place = document.getElementById(id);
      window.vegaEmbed(place, { ...coloured(spec, palette), config },
        { actions: false, renderer: "svg", ast: true, tooltip: { theme: scheme.matches ? "dark" : "light" } })
        .catch((error) => { place.textContent = "The chart cannot be drawn: " + error.message; });
    }
  }
  draw();
  scheme.addEventListener("change", draw);
})();
