"""Slots: processes register and withdraw at run time on the secure port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys

import aiohttp
import pytest

from proreus.base.errors import ConfigError, UnknownPluginSlot
from proreus.base.metrics import SchedulerMetrics
from proreus.framework.events import ALL_EVENTS
from proreus.process.loading.load import PluginSources, load
from proreus.process.remote_plugins import connect_plugins
from proreus.workbench.sandbox import Sandbox

from ..reserved_ports import SHARE_PORT_FLAG, reserved_port
from .conftest import World, rejecting, scoring, until


@pytest.fixture
async def slot():
    """A slot for the plugin Far, and a cluster whose profile has it."""
    async with connect_plugins((), ("Far",), SchedulerMetrics()) as served:
        (plugin,) = served.classes.values()
        world = World(plugin, args={"limit": 1})
        world.add_nodes("n0", "n1", "n2")
        for instance in world.scheduler.profiles["default-scheduler"].plugins:
            if instance.name == "Far":
                plugin.endpoint.sync.set_args("default-scheduler", {"limit": 1})
        yield served, world
        await world.scheduler.close()


async def test_pods_go_on_without_a_plugin_in_an_empty_slot(slot):
    served, world = slot
    assert await world.place() != ""
    assert world.pod().spec.node_name
    assert served.slots() == [{"name": "Far", "endpoint": "", "points": (), "answers": False}]


async def test_one_that_registers_takes_part_until_it_is_withdrawn(slot, start):
    served, world = slot
    far = await start("filter", filter=rejecting("n0", "n2"))
    state = await served.register(far.address)
    assert state == {
        "name": "Far",
        "endpoint": far.address,
        "points": ("filter",),
        "answers": True,
    }
    assert await world.place("a") == "n1"
    assert far.profiles == {"default-scheduler": {"limit": 1}}
    calls = len(far.calls)
    assert await served.register(far.address) == state
    assert await world.place("b") == "n1"
    assert "nodes" not in far.paths()[calls:], (
        "a process that registers again gets no whole snapshot"
    )
    await served.withdraw("Far")
    assert await world.place("c") != ""
    assert len(far.asked("filter")) == 2


async def test_another_process_may_have_other_points(slot, start):
    served, world = slot
    first = await start("filter", filter=rejecting("n0", "n1", "n2"))
    await served.register(first.address)
    assert await world.place("a") == ""
    second = await start("score", score=scoring(n2=7), normalize="highest")
    await served.register(second.address)
    assert await world.place("b") == "n2"
    assert len(first.asked("filter")) == 1


async def test_a_slot_registers_for_all_events(slot, start):
    served, world = slot
    far = await start("filter", events=[{"resource": "Node", "actions": ["Add"]}])
    await served.register(far.address)
    (plugin,) = (
        p for p in world.scheduler.profiles["default-scheduler"].plugins if p.name == "Far"
    )
    assert {*ALL_EVENTS} < {*plugin.events_to_register()}


async def test_a_slot_that_is_emptied_under_a_probe_stays_empty(slot, start):
    served, world = slot
    far = await start("filter", filter=rejecting("n0", "n2"))
    await served.register(far.address)
    endpoint = world.endpoint
    endpoint.open("a test says so", endpoint.connection)

    async def leaving(body):
        await served.withdraw("Far")
        return body

    real = endpoint.connection.get

    async def get(path, seconds):
        body = await real(path, seconds)
        return await leaving(body) if path == "/v1/descriptor" else body

    endpoint.connection.get = get
    await endpoint._recovery.probe()
    assert endpoint.is_open
    assert endpoint.descriptor.points == ()
    assert await world.place() != ""


async def test_a_late_failure_is_not_held_against_the_next_one(slot, start):
    served, world = slot
    release = asyncio.Event()

    async def slow(*_):
        await release.wait()

    first = await start("filter", filter=slow)
    second = await start("filter", filter=rejecting("n0", "n1"))
    await served.register(first.address)
    attempt = asyncio.create_task(world.place("a"))
    await until(lambda: len(first.asked("filter")) == 1)
    await served.register(second.address)
    release.set()
    await attempt
    assert not world.endpoint.is_open
    assert await world.place("b") == "n2"


async def test_invalid_registrations_are_refused(slot, start):
    served, _ = slot
    other = await start("filter")
    other.descriptor["name"] = "Near"
    with pytest.raises(UnknownPluginSlot, match=r'no slot for a plugin "Near".*kept: Far'):
        await served.register(other.address)
    with pytest.raises(ConfigError, match="allowed are unix:"):
        await served.register("http://example.com:80")
    with pytest.raises(ConfigError, match="connect"):
        await served.register("http://127.0.0.1:9")
    strict = await start("filter")
    strict.answers["profiles"] = lambda *_: aiohttp.web.json_response(
        {"error": "args.limit: too low"}, status=400
    )
    with pytest.raises(ConfigError, match=r"args\.limit: too low"):
        await served.register(strict.address)
    with pytest.raises(UnknownPluginSlot):
        await served.withdraw("Near")


async def test_a_posted_descriptor_is_what_the_process_serves(slot, start):
    served, _ = slot
    far = await start("filter")
    descriptor = {"protocol": "v1", **far.descriptor}
    posted = json.dumps(descriptor).encode()
    assert (await served.register(far.address, posted))["points"] == ("filter",)
    await served.withdraw("Far")
    other = json.dumps(descriptor | {"points": ["score"], "timeoutSeconds": 2}).encode()
    with pytest.raises(ConfigError, match=r"another descriptor .* points, timeoutSeconds$"):
        await served.register(far.address, other)
    faulty = json.dumps(descriptor | {"points": ["sore"]}).encode()
    with pytest.raises(ConfigError, match=r'request: descriptor: points\[0\]: "sore" is unknown'):
        await served.register(far.address, faulty)
    assert not served.slots()[0]["answers"]


async def test_slots_have_names_of_plugins():
    with pytest.raises(ConfigError, match=r'^--plugin-slot: "a b" must begin with a letter'):
        async with connect_plugins((), ("a b",), SchedulerMetrics()):
            pass


async def test_a_slot_under_a_name_that_is_taken_is_refused_with_its_flag():
    async with connect_plugins((), ("NodeName",), SchedulerMetrics()) as served:
        (refusal,) = load(PluginSources(packages=False), served.classes).refusals
    assert str(refusal) == (
        '--plugin-slot NodeName: there is a plugin "NodeName" already (in-tree); '
        "it needs another name"
    )


@pytest.mark.parametrize("mode", ["ignore", "fail"])
async def test_a_process_that_is_away_refuses_no_configuration_if_it_may_be_ignored(mode, start):
    far = await start("filter", failureMode=mode)
    async with connect_plugins((far.address,), (), SchedulerMetrics()) as served:
        (plugin,) = served.classes.values()
        config = World(plugin).scheduler.profile_set.configuration
        await served.check_args(config)
        assert far.asked("profiles") == [{"profiles": {"default-scheduler": {}}, "check": True}]
        await far.runner.cleanup()
        plugin.endpoint.open("a test says so", plugin.endpoint.connection)
        refused = pytest.raises(ConfigError, match="/v1/profiles: connect")
        with refused if mode == "fail" else contextlib.nullcontext():
            await served.check_args(config)


# ---- a process on the embedded cluster -----------------------------------------------------------


class Port:
    """The secure port of a process."""

    def __init__(self, port: int) -> None:
        self._url = f"https://127.0.0.1:{port}"

    async def ask(self, method: str, path: str, token: str, body=None):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.request(method, self._url + path, json=body) as answer,
        ):
            text = await answer.text()
            return answer.status, json.loads(text) if text.startswith("{") else text

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if (await self.ask("GET", "/readyz", ""))[0] == 200:
                        return
                await asyncio.sleep(0.05)


def pod(name):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }


@pytest.fixture
async def run():
    """Return a function that starts ``proreus run`` with a secure port."""
    started = []
    kept = contextlib.ExitStack()

    async def begin(sandbox, kubeconfig, *flags) -> Port:
        port = kept.enter_context(reserved_port())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proreus", "run", f"--kubeconfig={kubeconfig}"),
            *(f"--authentication-kubeconfig={kubeconfig}", "--leader-elect=false"),
            *(f"--authorization-kubeconfig={kubeconfig}", "--bind-address=127.0.0.1"),
            *(f"--secure-port={port}", SHARE_PORT_FLAG, *flags),
            stderr=asyncio.subprocess.DEVNULL,
        )
        started.append(process)
        made = Port(port)
        await made.ready()
        return made

    yield begin
    for process in started:
        process.kill()
        await process.wait()
    kept.close()


async def test_on_the_embedded_cluster(run, start, tmp_path):
    near = await start("filter", filter=rejecting("node-0", "node-2"))
    near.descriptor["name"] = "Near"
    far = await start("filter", filter=rejecting("node-0", "node-1"))
    async with Sandbox(nodes=3) as sandbox:
        kubeconfig = str(sandbox.write_kubeconfig(tmp_path / "kubeconfig"))

        async def place(name) -> str:
            sandbox.store.create("pods", pod(name))

            def node() -> str:
                spec = sandbox.store.get("pods", name, "default").object()["spec"]
                return spec.get("nodeName", "")

            await until(lambda: node() != "", 60)
            return node()

        flags = (f"--plugin-endpoint={near.address}", "--plugin-slot=Far")
        port = await run(sandbox, kubeconfig, *flags)
        path, token = "/plugins/v1/register", sandbox.token
        assert await place("a") == "node-1"

        near.answers["filter"] = None
        body = {"endpoint": far.address, "descriptor": {"protocol": "v1", **far.descriptor}}
        assert (await port.ask("POST", path, "", body))[0] == 403
        assert (await port.ask("POST", path, "wrong", body))[0] == 401
        assert (await port.ask("POST", path, token, {"address": "x"}))[0] == 400
        assert (await port.ask("PUT", path, token, body))[0] == 405
        status, answer = await port.ask("POST", path, token, {"endpoint": near.address})
        assert (status, answer["error"][:32]) == (404, 'there is no slot for a plugin "N')
        assert far.calls == []

        status, state = await port.ask("POST", path, token, body)
        assert (status, state["points"]) == (200, ["filter"])
        assert await place("b") == "node-2"
        assert await port.ask("GET", path, token) == (200, {"slots": [state]})
        assert (await port.ask("DELETE", path, token, {"name": "Far"}))[0] == 200
        asked = len(far.asked("filter"))
        assert await place("c") != ""
        assert len(far.asked("filter")) == asked
        _, metrics = await port.ask("GET", "/metrics", token)
        up = [line for line in metrics.splitlines() if line.startswith("proreus_remote_plugin_up")]
        assert up == [
            'proreus_remote_plugin_up{plugin="Far"} 0.0',
            'proreus_remote_plugin_up{plugin="Near"} 1.0',
        ]
