"""CoolRacks: keep pods off racks that are too hot, prefer nodes with free CPU. No dependencies."""

import json
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DESCRIPTOR = {
    "protocol": "v1",
    "name": "CoolRacks",
    "points": ["filter", "score"],
    "nodeColumns": ["labels.example.com/rack", "allocatable.cpu", "requested.cpu"],
    "podFields": ["requests"],
    "events": [{"resource": "Node", "actions": ["Add", "UpdateNodeLabel"]}],
    "failureMode": "ignore",
    "rowLocal": True,
}
told = {"snapshot": None, "columns": {}, "profiles": {}}  # what proreus has told us so far


class OutOfStep(Exception):
    """We were started anew, or missed something: proreus tells us everything again."""


def profiles(question):
    if not question.get("check"):  # else they are not in force yet; we would take any
        told["profiles"] = question["profiles"]
    return {}


def nodes(question):
    """Take the columns: of all rows, or of those that changed."""
    rows, size, columns = question["rows"], question["size"], told["columns"]
    if rows is None:
        rows = range(size)
        columns.clear()
    elif told["snapshot"] != (question["snapshot"], question["base"]):
        raise OutOfStep
    for name, values in question["columns"].items():
        if isinstance(values, dict):  # texts: distinct values, and a code a row; -1 = absent
            values = [values["values"][code] if code >= 0 else None for code in values["codes"]]
        column = columns.setdefault(name, [None] * size)
        column[size:] = [None] * (size - len(column))
        for row, value in zip(rows, values, strict=True):
            column[row] = value
    told["snapshot"] = (question["snapshot"], question["version"])
    return {}


def rows_of(question):
    if told["snapshot"] != (question["snapshot"], question["version"]):
        raise OutOfStep
    rows = question["rows"]
    return range(len(told["columns"]["name"])) if rows is None else rows


def filter_nodes(question):
    rows, racks = rows_of(question), told["columns"]["labels.example.com/rack"]
    hot = set(told["profiles"][question["profile"]].get("hotRacks", []))
    return {
        "rejected": [row for row in rows if racks[row] in hot],
        "statuses": [{"code": "Unschedulable", "reasons": ["node(s) are in a hot rack"]}],
    }


def score(question):
    rows = rows_of(question)
    used, there = told["columns"]["requested.cpu"], told["columns"]["allocatable.cpu"]
    return {"scores": [max(0, 100 - 100 * used[row] // (there[row] or 1)) for row in rows]}


ANSWERS = {"profiles": profiles, "nodes": nodes, "filter": filter_nodes, "score": score}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = 2**16  # headers and body leave together
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer(200, DESCRIPTOR if self.path == "/v1/descriptor" else {})

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.answer(200, ANSWERS[self.path.removeprefix("/v1/")](question))
        except OutOfStep:
            self.answer(409, {"error": "resync"})

    def answer(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class SocketFileServer(ThreadingHTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)
        Handler.disable_nagle_algorithm = False  # which such a socket does not have


def serve(place):
    """Serve on a port of the loopback, or on a socket file if ``place`` is a path."""
    if place.isdigit():
        server = ThreadingHTTPServer(("127.0.0.1", int(place)), Handler)
        place = f"http://127.0.0.1:{server.server_port}"
    else:
        Path(place).unlink(missing_ok=True)  # of the process before us
        server = SocketFileServer(place, Handler)
        place = f"unix://{Path(place).absolute()}"
    print(f"CoolRacks on {place}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1] if sys.argv[1:] else "7070")
