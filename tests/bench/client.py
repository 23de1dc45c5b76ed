"""The cost of the client: decoding of lists and watches, and bindings.

Run: python -P tests/bench/client.py (-P: this folder's file names shadow library modules)
"""

import asyncio
import json
import sys
import tempfile
import time
from types import SimpleNamespace

import uvloop

from proreus.client.credentials.credentials import Credentials, TlsFiles
from proreus.client.http.session import ApiClient
from proreus.client.watching.informer import Informer
from proreus.client.watching.watch import EventDecoder, LineSplitter, ListDecoder
from proreus.client.writing.dispatcher import Dispatcher
from proreus.objects.kinds import PODS
from proreus.objects.meta import ObjectMeta
from proreus.objects.pod import Pod
from proreus.server.certificates import self_signed

PODS_LISTED = 50_000
BINDINGS = 5_000


def pod(number: int) -> dict:
    """Return the JSON of a pod, as large (2.5 kB) as those of a Deployment."""
    fields = {f"f:field{i}": {".": {}, "f:x": {}} for i in range(25)}
    mount = {"name": "kube-api-access", "mountPath": "/var/run/secrets", "readOnly": True}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"web-7d4b9c6f5-{number:05d}",
            "generateName": "web-7d4b9c6f5-",
            "namespace": "default",
            "uid": f"5b1c2f70-0000-4000-8000-{number:012d}",
            "resourceVersion": str(100_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web-7d4b9c6f5",
                    "uid": "5b1c2f70-1111-4000-8000-000000000000",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [{"manager": "kcm", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "nodeName": f"node-{number % 5000}",
            "volumes": [{"name": "kube-api-access", "projected": {"sources": []}}],
            "containers": [
                {
                    "name": "web",
                    "image": "registry.k8s.io/pause:3.10",
                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                    "volumeMounts": [mount],
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": "node.kubernetes.io/not-ready",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "startTime": "2026-01-01T00:00:00Z",
        },
    }


async def bench_list() -> None:
    """Decode 50,000 pods in pages of 500."""
    items = [json.dumps(pod(number)).encode() for number in range(500)]
    page = b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(items) + b"]}"
    decoder = ListDecoder(Pod)
    await decoder.page(page)
    started = time.process_time()
    objects = []
    for _ in range(PODS_LISTED // 500):
        objects += (await decoder.page(page)).items
    seconds = time.process_time() - started
    print(
        f"list of {len(objects)} pods ({len(items[0])} bytes each): {seconds:.2f} s, "
        f"{seconds / len(objects) * 1e6:.1f} us a pod"
    )


async def bench_watch() -> None:
    """Split, decode, store and deliver 50,000 watch events in chunks of 64 KiB."""
    informer = Informer(None, PODS)  # type: ignore[arg-type]
    updates = [0]
    informer.add_handler(
        SimpleNamespace(
            on_add=lambda obj: None,
            on_update=lambda old, new: updates.__setitem__(0, updates[0] + 1),
            on_delete=lambda obj, unknown: None,
        )
    )
    informer.replace([Pod(metadata=ObjectMeta(name=f"web-7d4b9c6f5-{n:05d}")) for n in range(10)])
    lines = [
        json.dumps({"type": "MODIFIED", "object": pod(number)}).encode() + b"\n"
        for number in range(2_000)
    ]
    data = b"".join(lines)
    splitter, decoder = LineSplitter(), EventDecoder(Pod)
    started = time.process_time()
    for _ in range(25):
        for at in range(0, len(data), 65536):
            async for batch in decoder.batches(splitter.feed(data[at : at + 65536])):
                informer.apply(batch.events)
    seconds = time.process_time() - started
    print(f"watch: {seconds / 50_000 * 1e6:.1f} us an event, split, decoded, stored, handed on")

    big = (
        b'{"type":"ADDED","object":{"metadata":{"name":"x"},"pad":"' + b"x" * 32 * 2**20 + b'"}}\n'
    )
    started = time.process_time()
    for at in range(0, len(big), 65536):
        _ = [batch async for batch in decoder.batches(splitter.feed(big[at : at + 65536]))]
    print(f"one line of 32 MiB: {(time.process_time() - started) * 1e3:.0f} ms")


async def bench_bind() -> None:
    """POST bindings over TLS, 64 at a time, to a server in another process."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as certificate:
        certificate.write(self_signed())
        certificate.flush()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _SERVER, certificate.name),
            stdin=asyncio.subprocess.PIPE,  # closing it ends the server
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        tls = TlsFiles(ca_file=certificate.name)
        async with ApiClient(Credentials(f"https://127.0.0.1:{port}", tls, fetch=_token)) as client:
            await _bind(client)
        process.stdin.close()
        await process.wait()


async def _token(_: bool) -> str:
    return "Bearer admin-token"


async def _bind(client: ApiClient) -> None:
    pods = [
        Pod(metadata=ObjectMeta(name=f"p{n}", namespace="default", uid=str(n)))
        for n in range(BINDINGS)
    ]
    dispatcher = Dispatcher(client)
    await asyncio.gather(*(dispatcher.bind(pod, "n1") for pod in pods[:200]))
    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(dispatcher.bind(pod, "n1") for pod in pods))
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    print(
        f"bindings: {BINDINGS / seconds:.0f} /s, "
        f"{cpu / BINDINGS * 1e6:.0f} us of CPU each in the client"
    )


_SERVER = """
import asyncio, ssl, sys, threading, os
BODY = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\\n'
UID = b"5b1c2f70-0000-4000-8000-000000000000"
HEAD = [
    b"HTTP/1.1 201 Created", b"Audit-Id: " + UID, b"Cache-Control: no-cache, private",
    b"Content-Type: application/json", b"X-Kubernetes-Pf-Flowschema-Uid: " + UID,
    b"X-Kubernetes-Pf-Prioritylevel-Uid: " + UID, b"Date: Thu, 01 Jan 2026 00:00:00 GMT",
    b"Content-Length: %d" % len(BODY),
]
ANSWER = b"\\r\\n".join(HEAD) + b"\\r\\n\\r\\n" + BODY
class P(asyncio.Protocol):
    def connection_made(self, t): self.t = t
    def data_received(self, d): self.t.write(ANSWER)
async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1])
    s = await asyncio.get_running_loop().create_server(P, "127.0.0.1", 0, ssl=tls)
    print(s.sockets[0].getsockname()[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    await s.serve_forever()
asyncio.run(main())
"""


async def main() -> None:
    """Run all measurements."""
    await bench_list()
    await bench_watch()
    await bench_bind()


if __name__ == "__main__":
    uvloop.run(main())
