// Draws each plot with the colours of the page, and again when they change.
"use strict";
(() => {
  const PRINT_WIDTH = 660;
  const root = document.documentElement;
  const config = { displayModeBar: false, responsive: true };

  // Colours come as "var(--name)", which plotly.js does not know.
  const painted = (value, css) => {
    if (typeof value === "string" && value.startsWith("var(--")) {
      return css.getPropertyValue(value.slice(4, -1)).trim();
    }
    if (Array.isArray(value)) return value.map((one) => painted(one, css));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, painted(one, css)]));
  };

  const draw = (box, width) => {
    const css = getComputedStyle(root);
    const { data, layout } = painted(JSON.parse(box.nextElementSibling.textContent), css);
    return Plotly.react(box, data, width ? { ...layout, width } : layout, config);
  };
  // A box in a closed part has no width yet; it is drawn when that opens.
  const drawAll = (width) => {
    for (const box of document.querySelectorAll(".plot")) {
      if (box.offsetParent !== null) draw(box, width);
    }
  };

  for (const part of document.querySelectorAll("details")) {
    part.addEventListener("toggle", () => {
      for (const box of part.open ? part.querySelectorAll(".plot") : []) draw(box);
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAll());

  // On paper all that is not too wide for it is open, and light.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open]):not(.wide)")];
    for (const part of opened) part.open = true;
    root.classList.add("printing");
    drawAll(PRINT_WIDTH);
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    for (const part of opened) part.open = false;
    drawAll();
  });
  drawAll();
})();
