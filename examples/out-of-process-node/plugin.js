// QuietZones: limits the pods per node in quiet zones, prefers emptier zones. No dependencies.
"use strict";
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");

const DESCRIPTOR = {
  protocol: "v1",
  name: "QuietZones",
  points: ["filter", "score"],
  nodeColumns: ["labels.topology.kubernetes.io/zone", "podCount"],
  podFields: ["metadata.labels"],
  events: [
    { resource: "AssignedPod", actions: ["Delete"] },
    { resource: "Node", actions: ["Add", "UpdateNodeLabel"] },
  ],
  failureMode: "fail",
  normalize: "lowest", // scores are pods a zone: the fewest is the best
};
const ZONE = "labels.topology.kubernetes.io/zone";
let snapshot = ""; // what proreus has sent so far
let columns = {};
let profiles = {};

class OutOfSync extends Error {} // this process was restarted: proreus sends everything again

function takeProfiles({ profiles: news, check }) {
  if (!check) profiles = news; // else only validate them; all are valid here
  return {};
}

function takeNodes({ snapshot: id, version, base, size, rows, columns: news }) {
  if (rows === null) columns = {};
  else if (snapshot !== `${id} ${base}`) throw new OutOfSync();
  for (const [name, sent] of Object.entries(news)) {
    // texts are distinct values and a code a row; -1 = absent
    const values = Array.isArray(sent) ? sent : sent.codes.map((c) => (c < 0 ? null : sent.values[c]));
    const column = (columns[name] ??= []);
    column.length = size;
    values.forEach((value, index) => (column[rows === null ? index : rows[index]] = value));
  }
  snapshot = `${id} ${version}`;
  return {};
}

function rowsOf(body) {
  if (snapshot !== `${body.snapshot} ${body.version}`) throw new OutOfSync();
  return body.rows ?? columns.name.keys();
}

function filter(body) {
  const { quietZones = [], mostPods = 10 } = profiles[body.profile] ?? {};
  const quiet = new Set(quietZones);
  const rejected = [];
  for (const row of rowsOf(body)) {
    if (quiet.has(columns[ZONE][row]) && columns.podCount[row] >= mostPods) rejected.push(row);
  }
  return {
    rejected,
    statuses: [{ code: "Unschedulable", reasons: ["node(s) are quiet enough only as they are"] }],
  };
}

function score(body) {
  const rows = [...rowsOf(body)];
  const pods = new Map();
  columns[ZONE].forEach((zone, row) => pods.set(zone, (pods.get(zone) ?? 0) + columns.podCount[row]));
  return { scores: rows.map((row) => pods.get(columns[ZONE][row])) };
}

const HANDLERS = {
  "/v1/profiles": takeProfiles,
  "/v1/nodes": takeNodes,
  "/v1/filter": filter,
  "/v1/score": score,
};

const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let [status, content] = [200, request.url === "/v1/descriptor" ? DESCRIPTOR : {}];
  try {
    const handle = HANDLERS[request.url];
    if (request.method === "POST" && !handle) [status, content] = [404, { error: "no such request" }];
    else if (handle) content = handle(JSON.parse(Buffer.concat(chunks)));
  } catch (error) {
    status = error instanceof OutOfSync ? 409 : 500;
    content = { error: String(error.message || "resync") };
  }
  const body = JSON.stringify(content);
  response.writeHead(status, { "Content-Type": "application/json", "Content-Length": Buffer.byteLength(body) });
  response.end(body);
});
server.keepAliveTimeout = 120_000; // longer than proreus keeps an idle connection

// On a port of the loopback, or on a socket file if it is a path.
const place = process.argv[2] ?? "7071";
if (/^\d+$/.test(place)) {
  server.listen(Number(place), "127.0.0.1", () => {
    console.log(`QuietZones on http://127.0.0.1:${server.address().port}`);
  });
} else {
  fs.rmSync(place, { force: true }); // left by a former process
  server.listen(place, () => console.log(`QuietZones on unix://${path.resolve(place)}`));
}
