"""A raw HTTP server whose every byte is scripted, for faults that no real server has.

kmock answers where a well-formed answer is wanted; cut lines, lost answers and silence need this.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from urllib.parse import parse_qsl, urlsplit

import pytest

from proreus.client.credentials.credentials import Credentials
from proreus.client.http.session import ApiClient


@dataclass
class Call:
    """A request, and methods to respond to it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    async def answer(self, code: int, body: object = b"", **headers: str) -> None:
        """Respond in one piece; a body other than bytes is sent as JSON."""
        content_type = "application/json"
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        elif body.lstrip()[:1] == b"<":
            content_type = "text/html"
        lines = [f"HTTP/1.1 {code} X", f"Content-Length: {len(body)}"]
        lines += [f"Content-Type: {content_type}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()

    async def refuse(self, code: int, reason: str, message: str = "no", **headers: str) -> None:
        """Respond with a Status."""
        await self.answer(code, status(code, reason, message), **headers)

    async def begin_stream(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        self.writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        self.writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await self.writer.drain()

    async def events(self, *events: dict) -> None:
        """Send events as lines, all in one chunk."""
        await self.chunk(b"".join(json.dumps(event).encode() + b"\n" for event in events))

    async def end_stream(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def cut(self) -> None:
        """Reset the connection."""
        self.writer.transport.abort()


Script = Callable[[Call], Awaitable[None]]


@dataclass
class ScriptedServer:
    """Passes each request to ``script``; ``calls`` has all of them."""

    url: str = ""
    script: Script | None = None
    calls: list[Call] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    def seen(self, method: str, path: str) -> list[Call]:
        return [call for call in self.calls if call.method == method and call.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                method, target, _ = first.split(" ")
                headers = dict(line.lower().split(": ", 1) for line in lines if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                url = urlsplit(target)
                call = Call(method, url.path, dict(parse_qsl(url.query)), headers, body, writer)
                self.calls.append(call)
                assert self.script is not None
                await self.script(call)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as fault:  # a failed assertion of the script fails the test
            self.faults.append(fault)
        finally:
            writer.close()


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(scripted.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    scripted.url = f"http://{host}:{port}"
    yield scripted
    listener.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for fault in scripted.faults:
        raise fault


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(Credentials(server.url)) as client:
        yield client


def status(code: int, reason: str, message: str = "no") -> dict:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


def pod(name: str, version: int = 1, uid: str = "", node: str = "", **spec: object) -> dict:
    """A pod as the apiserver sends it, with fields that the scheduler does not read."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {"nodeName": node, **spec} if node else dict(spec),
        "status": {"phase": "Pending"},
    }


def event(type_: str, obj: dict) -> dict:
    return {"type": type_, "object": obj}


def bookmark(version: int, *, initial_end: bool = False) -> dict:
    meta: dict = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    spec = {"containers": None}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec})


def pod_list(*pods: dict, version: int, token: str = "") -> dict:
    meta = {"resourceVersion": str(version)}
    if token:
        meta["continue"] = token
    return {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": list(pods)}


@pytest.fixture
def wire() -> SimpleNamespace:
    """Functions that build what the apiserver sends."""
    return SimpleNamespace(
        pod=pod, event=event, bookmark=bookmark, pod_list=pod_list, status=status
    )
