"""``proreus run`` with extenders: whole objects off the watch, and what is refused at the start."""

import asyncio
import sys

import pytest
import yaml

from proreus.workbench.sandbox import Sandbox


@pytest.fixture
async def sandbox():
    async with Sandbox(nodes=3) as made:
        yield made


@pytest.fixture
async def start(sandbox, tmp_path):
    """Return a function that starts ``proreus run`` with extenders; it is ended at the end."""
    started = []

    async def run(*extenders):
        kubeconfig = str(sandbox.write_kubeconfig(tmp_path / "kubeconfig"))
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "leaderElection": {"leaderElect": False},
            "extenders": list(extenders),
        }
        path = tmp_path / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "run", f"--config={path}", "--secure-port=0"),
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.terminate()
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert b"Traceback" not in err, err.decode()


async def bound_to(sandbox, name):
    """Wait until a pod has a node; return the node's name."""
    async with asyncio.timeout(60):
        while True:
            spec = sandbox.store.get("pods", name, "default").object()["spec"]
            if spec.get("nodeName"):
                return spec["nodeName"]
            await asyncio.sleep(0.02)


async def test_it_sends_whole_objects(start, sandbox, start_extender):
    def last(call):
        return {"Nodes": {"items": call.json["Nodes"]["items"][-1:]}}

    extender = await start_extender(filter=last)
    await start({"urlPrefix": extender.url, "filterVerb": "filter"})
    container = {"name": "c", "image": "i", "env": [{"name": "A", "value": "1"}]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "managedFields": [{"manager": "me"}]},
        "spec": {"containers": [container], "dnsPolicy": "Default"},
    }
    sandbox.store.create("pods", pod)
    node_name = await bound_to(sandbox, "a")
    (call,) = extender.calls
    sent, nodes = call.json["Pod"], call.json["Nodes"]["items"]
    assert sent["spec"]["dnsPolicy"] == "Default"
    assert sent["spec"]["containers"][0]["env"] == container["env"]
    assert not {"kind", "apiVersion"} & {*sent, *nodes[0]}
    assert "managedFields" not in sent["metadata"]
    assert node_name == nodes[-1]["metadata"]["name"]
    stored = sandbox.store.get("nodes", node_name).object()
    assert nodes[-1]["status"].get("nodeInfo") == stored["status"].get("nodeInfo")


async def test_what_happens_meanwhile_waits(start, sandbox, start_extender):
    """A node goes while an extender is asked: the rows of the others must not move."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slowly(call):
        asked.set()
        await answer.wait()
        return {"NodeNames": call.json["NodeNames"][-1:]}

    extender = await start_extender(filter=slowly)
    await start({"urlPrefix": extender.url, "filterVerb": "filter", "nodeCacheCapable": True})
    names = [node.object()["metadata"]["name"] for node in sandbox.store.list("nodes")]
    sandbox.store.create(
        "pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    )
    await asyncio.wait_for(asked.wait(), 60)
    first, *_, chosen = extender.calls[0].json["NodeNames"]
    assert {first, chosen} <= set(names)
    sandbox.store.delete("nodes", first)
    await asyncio.sleep(0.2)
    answer.set()
    assert await bound_to(sandbox, "a") == chosen


async def test_extenders_that_cannot_be_built(start):
    tls = {"insecure": True, "caData": "eA=="}
    process = await start({"urlPrefix": "https://x", "filterVerb": "f", "tlsConfig": tls})
    code = await asyncio.wait_for(process.wait(), 30)
    assert process.stderr is not None
    err = (await process.stderr.read()).decode()
    assert code == 1
    expected = "specifying a root certificates file with the insecure flag is not allowed"
    assert f"couldn't build extenders: {expected}" in err
    assert "Traceback" not in err
