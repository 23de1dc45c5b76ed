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
known = {"snapshot": None, "columns": {}, "profiles": {}}  # what proreus has sent so far


class OutOfSync(Exception):
    """This process was restarted, or missed something: proreus sends everything again."""


def profiles(request):
    if not request.get("check"):  # else only validate them; all are valid here
        known["profiles"] = request["profiles"]
    return {}


def nodes(request):
    """Take the columns: of all rows, or of those that changed."""
    rows, size, columns = request["rows"], request["size"], known["columns"]
    if rows is None:
        rows = range(size)
        columns.clear()
    elif known["snapshot"] != (request["snapshot"], request["base"]):
        raise OutOfSync
    for name, values in request["columns"].items():
        if isinstance(values, dict):  # texts: distinct values, and a code a row; -1 = absent
            values = [values["values"][code] if code >= 0 else None for code in values["codes"]]
        column = columns.setdefault(name, [None] * size)
        column[size:] = [None] * (size - len(column))
        for row, value in zip(rows, values, strict=True):
            column[row] = value
    known["snapshot"] = (request["snapshot"], request["version"])
    return {}


def rows_of(request):
    if known["snapshot"] != (request["snapshot"], request["version"]):
        raise OutOfSync
    rows = request["rows"]
    return range(len(known["columns"]["name"])) if rows is None else rows


def filter_nodes(request):
    rows, racks = rows_of(request), known["columns"]["labels.example.com/rack"]
    hot = set(known["profiles"][request["profile"]].get("hotRacks", []))
    return {
        "rejected": [row for row in rows if racks[row] in hot],
        "statuses": [{"code": "Unschedulable", "reasons": ["node(s) are in a hot rack"]}],
    }


def score(request):
    rows = rows_of(request)
    used, there = known["columns"]["requested.cpu"], known["columns"]["allocatable.cpu"]
    return {"scores": [max(0, 100 - 100 * used[row] // (there[row] or 1)) for row in rows]}


HANDLERS = {"profiles": profiles, "nodes": nodes, "filter": filter_nodes, "score": score}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = 2**16  # headers and body leave together
    disable_nagle_algorithm = True

    def do_GET(self):
        self.respond(200, DESCRIPTOR if self.path == "/v1/descriptor" else {})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self.respond(200, HANDLERS[self.path.removeprefix("/v1/")](request))
        except OutOfSync:
            self.respond(409, {"error": "resync"})

    def respond(self, status, content):
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
        Handler.disable_nagle_algorithm = False  # such a socket does not have it


def serve(place):
    """Serve on a port of the loopback, or on a socket file if ``place`` is a path."""
    if place.isdigit():
        server = ThreadingHTTPServer(("127.0.0.1", int(place)), Handler)
        place = f"http://127.0.0.1:{server.server_port}"
    else:
        Path(place).unlink(missing_ok=True)  # left by a former process
        server = SocketFileServer(place, Handler)
        place = f"unix://{Path(place).absolute()}"
    print(f"CoolRacks on {place}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1] if sys.argv[1:] else "7070")
