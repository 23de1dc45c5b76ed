// The heat map: a square for each node, in groups.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const REFRESH_MS = 10000;
  const map = document.getElementById("heatmap");
  const now = document.getElementById("map-now");
  const filters = document.getElementById("node-filters");
  let cells = null;
  let squares = [];
  let order = [];
  let perRow = 1;
  let current = -1;
  let shown = "";

  const level = (percent) =>
    percent < 0 ? "u-none" : percent > 100 ? "u6" : `u${Math.min(Math.floor(percent / 100 * 6), 5)}`;

  function text(node) {
    const percent = cells.percent[node];
    const group = cells.groups[cells.group[node]];
    return `${cells.names[node]}${group ? `, ${group}` : ""}: ` +
      (percent < 0 ? `no ${cells.resource}` : `${percent} % of ${cells.resource}`) +
      (cells.cordoned.has(node) ? ", cordoned" : "");
  }

  function build() {
    const size = cells.names.length > 2000 ? 10 : cells.names.length > 400 ? 14 : 20;
    const step = size + 2;
    perRow = Math.max(Math.floor((map.clientWidth - 8) / step), 1);
    const members = cells.groups.map(() => []);
    cells.group.forEach((group, node) => members[group].push(node));
    squares = [];
    order = members.flat();
    const parts = [];
    members.forEach((nodes, group) => {
      const heading = document.createElement("h3");
      heading.textContent = `${cells.groups[group] || `without ${cells.label}`} (${nodes.length})`;
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("width", String(Math.min(nodes.length, perRow) * step));
      svg.setAttribute("height", String(Math.ceil(nodes.length / perRow) * step));
      svg.setAttribute("aria-hidden", "true");
      nodes.forEach((node, place) => {
        const square = document.createElementNS(SVG, "rect");
        square.setAttribute("x", String((place % perRow) * step + 1));
        square.setAttribute("y", String(Math.floor(place / perRow) * step + 1));
        square.setAttribute("width", String(size));
        square.setAttribute("height", String(size));
        square.dataset.node = String(node);
        squares[node] = square;
        svg.append(square);
      });
      parts.push(heading, svg);
    });
    map.replaceChildren(...parts);
    current = -1;
  }

  function color() {
    squares.forEach((square, node) => {
      const name = `cell ${level(cells.percent[node])}` +
        (cells.cordoned.has(node) ? " cordoned" : "") + (node === current ? " current" : "");
      if (square.getAttribute("class") !== name) square.setAttribute("class", name);
    });
  }

  function select(node) {
    squares[current]?.classList.remove("current");
    current = node;
    squares[node].classList.add("current");
    squares[node].scrollIntoView({ block: "nearest" });
    now.textContent = text(node);
  }

  const open = (node) => { location.href = map.dataset.node + encodeURIComponent(cells.names[node]); };
  const nodeOf = (event) =>
    event.target.dataset?.node === undefined ? -1 : Number(event.target.dataset.node);

  async function load() {
    const form = new FormData(filters);
    const query = new URLSearchParams({ resource: form.get("resource"), label: form.get("label") });
    let answer;
    try {
      answer = await fetch(`${map.dataset.cells}?${query}`, { credentials: "same-origin" });
    } catch {
      answer = null;
    }
    if (!answer?.ok) {
      now.textContent = "The nodes could not be read; trying again.";
      return;
    }
    const failed = now.textContent.startsWith("The nodes could not");
    cells = await answer.json();
    cells.cordoned = new Set(cells.unschedulable);
    // Built anew only if nodes came or went: a selection stays otherwise.
    const key = JSON.stringify([cells.names, cells.group, cells.groups]);
    if (key !== shown) { shown = key; build(); }
    color();
    if (failed) now.textContent = "";
  }

  map.addEventListener("click", (event) => { if (nodeOf(event) >= 0) open(nodeOf(event)); });
  map.addEventListener("mouseover", (event) => { if (nodeOf(event) >= 0) now.textContent = text(nodeOf(event)); });
  map.addEventListener("keydown", (event) => {
    if (cells === null || order.length === 0) return;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: perRow, ArrowUp: -perRow };
    if (event.key in steps) {
      const place = current < 0 ? 0 : order.indexOf(current) + steps[event.key];
      select(order[Math.min(Math.max(place, 0), order.length - 1)]);
    } else if (event.key === "Home") {
      select(order[0]);
    } else if (event.key === "End") {
      select(order[order.length - 1]);
    } else if (event.key === "Enter" && current >= 0) {
      open(current);
      return;
    } else {
      return;
    }
    event.preventDefault();
  });
  filters.addEventListener("change", () => { load(); });
  addEventListener("resize", () => { if (cells !== null) { build(); color(); } });
  setInterval(load, REFRESH_MS);
  load();
})();
