// The charts of the overview: samples that the server sends, drawn by uPlot.
"use strict";
(() => {
  const KEPT = 900;
  const section = document.getElementById("charts");
  const connection = document.getElementById("connection");
  const samples = [];
  const perSecond = (value) => `${value.toFixed(value < 10 ? 1 : 0)}/s`;
  const seconds = (value) =>
    value === null ? "–" : value < 1 ? `${(value * 1000).toPrecision(3)} ms` : `${value.toPrecision(3)} s`;
  const whole = (value) => String(value);
  const descriptions = {
    queues: { show: whole, series: ["active", "backoff", "unschedulable", "gated"], of: (s) => s.queues },
    attempts: { show: perSecond, series: ["scheduled", "unschedulable", "error"], of: (s) => s.attempts },
    latency: { show: seconds, series: ["p50", "p99"], of: (s) => [s.attemptP50, s.attemptP99] },
    api: { show: perSecond, series: ["all", "failed"], of: (s) => [s.apiRequests, s.apiFailures] },
  };
  // Lines of the same colour mean the same in the first two charts.
  const colors = {
    active: 0, scheduled: 2, backoff: 1, unschedulable: 3, gated: 8, error: 4,
    p50: 0, p99: 1, all: 0, failed: 4,
  };
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
  const charts = new Map();

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function data(one) {
    const columns = [samples.map((s) => s.at)];
    one.series.forEach((_, place) => columns.push(samples.map((s) => one.of(s)[place])));
    return columns;
  }

  function draw() {
    for (const [name, one] of Object.entries(descriptions)) {
      const place = document.getElementById(name);
      charts.get(name)?.destroy();
      const axis = { stroke: color("--quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
      const chart = new uPlot({
        width: Math.max(place.clientWidth, 200),
        height: 200,
        cursor: { drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [0, Math.max(high || 0, name === "latency" ? 0.001 : 1)] } },
        axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map(one.show) }],
        series: [{}, ...one.series.map((label, number) => ({
          label, stroke: color(`--s${colors[label]}`), width: 2, dash: dashes[number],
          value: (_, value) => (value === null || value === undefined ? "–" : one.show(value)),
        }))],
      }, data(one), place);
      charts.set(name, chart);
    }
  }

  function update() {
    for (const [name, one] of Object.entries(descriptions)) {
      charts.get(name)?.setData(data(one));
      const last = samples.at(-1);
      if (last !== undefined) {
        const values = one.of(last);
        document.getElementById(`${name}-now`).textContent = "Now: " + one.series
          .map((label, number) => `${label} ${values[number] === null ? "–" : one.show(values[number])}`).join(", ");
      }
    }
  }

  function take(event, anew) {
    if (anew) samples.length = 0;
    samples.push(...JSON.parse(event.data));
    samples.splice(0, Math.max(samples.length - KEPT, 0));
    update();
  }

  function say(text) {
    // Only what changed: a screen reader reads each change of it.
    if (connection.textContent !== text) connection.textContent = text;
  }

  draw();
  const events = new EventSource(section.dataset.events);
  events.addEventListener("open", () => say("Live."));
  events.addEventListener("history", (event) => take(event, true));
  events.addEventListener("samples", (event) => take(event, false));
  events.addEventListener("error", () => {
    say(events.readyState === EventSource.CLOSED
      ? "Not connected. Load the page again."
      : "The connection is lost; connecting again …");
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; draw(); }
  });
})();
