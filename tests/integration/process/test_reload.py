"""A configuration that changes while ``proreus run`` schedules."""

import asyncio
import hashlib
import json
import os
import signal
from collections import defaultdict

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text

from proreus.workbench.sandbox import Sandbox

RECORDER = '''
import json
import os

from proreus.config.fields import PluginArgs
from proreus.framework.plugin import (
    FilterPlugin, PermitPlugin, PostBindPlugin, PreBindPlugin, PreFilterPlugin, ReservePlugin,
    ScorePlugin,
)

FILE_SAYS = "first"


class Args(PluginArgs):
    version: str = ""
    path: str = ""


class Recorder(
    PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin, PermitPlugin, PreBindPlugin,
    PostBindPlugin,
):
    """Records which version of itself was called for which pod."""

    Args = Args

    def __init__(self, args, handle):
        super().__init__(args, handle)
        self._file = os.open(args.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _note(self, state, pod, point):
        state.write("attempt", state.get("attempt") or os.urandom(8).hex())
        line = [pod.name, state.read("attempt"), self.args.version + FILE_SAYS, point]
        os.write(self._file, json.dumps(line).encode() + b"\\n")

    def pre_filter(self, state, pod, nodes):
        self._note(state, pod, "PreFilter")

    def filter(self, state, pod, node):
        return None

    def score(self, state, pod, node):
        return 0

    def reserve(self, state, pod, node_name):
        self._note(state, pod, "Reserve")

    def unreserve(self, state, pod, node_name):
        pass

    def permit(self, state, pod, node_name):
        self._note(state, pod, "Permit")

    async def pre_bind(self, state, pod, node_name):
        self._note(state, pod, "PreBind")

    def post_bind(self, state, pod, node_name):
        self._note(state, pod, "PostBind")
'''


class Instance:
    """A running ``proreus`` with a configuration file that a test rewrites."""

    def __init__(self, live, sandbox, kubeconfig, folder):
        self.live, self.sandbox = live, sandbox
        self.config, self.plugins = folder / "config" / "scheduler.yaml", folder / "plugins"
        self.story = folder / "story"
        self._kubeconfig = kubeconfig
        self.config.parent.mkdir()
        self.plugins.mkdir()
        (self.plugins / "recorder.py").write_text(RECORDER)

    def content(self, version="a", profiles=("default-scheduler",), **more):
        args = {"version": version, "path": str(self.story)}
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": self._kubeconfig},
            "profiles": [
                {
                    "schedulerName": name,
                    "plugins": {"multiPoint": {"enabled": [{"name": "Recorder"}]}},
                    "pluginConfig": [{"name": "Recorder", "args": args}],
                }
                for name in profiles
            ],
            **more,
        }

    def write(self, content, mark=""):
        """Replace the configuration file by another one, as editors do.

        ``mark`` makes it different from others of the same content.
        """
        fresh = self.config.with_suffix(".new")
        fresh.write_text(f"# {mark}\n{yaml.safe_dump(content)}")
        os.replace(fresh, self.config)

    async def start(self, start, *flags):
        port = self.live.port()
        serving = (f"--secure-port={port}", "--bind-address=127.0.0.1")
        delegated = (
            f"--authentication-kubeconfig={self._kubeconfig}",
            f"--authorization-kubeconfig={self._kubeconfig}",
        )
        given = (f"--config={self.config}", f"--plugin-dir={self.plugins}")
        self.process = await start(*given, *serving, *delegated, *flags)
        self.pages = self.live.Pages(port, self.sandbox.token)
        await self.pages.ready()

    async def reloads(self):
        """Return the number of reloads by result."""
        _, body = await self.pages.get("/metrics")
        return {
            sample.labels["result"]: int(sample.value)
            for family in parse_text(body)
            if family.name == "proreus_config_reload"
            for sample in family.samples
            if sample.name.endswith("_total")
        }

    async def wait_for_reloads(self, result, count):
        async with asyncio.timeout(60):
            while (await self.reloads()).get(result, 0) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def create(self, name, scheduler="default-scheduler", cpu="10m"):
        pod = self.live.pod(name)
        pod["spec"]["schedulerName"] = scheduler
        pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu}
        self.sandbox.store.create("pods", pod)

    def node_of(self, name):
        return self.sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")

    async def wait_for_node(self, *names):
        """Wait until pods have nodes, and the plugin has recorded that they were bound."""
        await self.live.until(lambda: all(map(self.node_of, names)))

        def written():
            calls = self.calls()
            return all(
                "PostBind" in attempt for n in names for attempt in [*calls[n].values()][-1:]
            )

        await self.live.until(written)

    def calls(self):
        """Return, by pod and attempt, the version of the plugin called at each extension point."""
        calls = defaultdict(lambda: defaultdict(dict))
        for line in self.story.read_text().splitlines():
            pod, attempt, version, point = json.loads(line)
            calls[pod][attempt][point] = version
        return calls

    def versions(self, name):
        """Return the versions that were called for a pod, by attempt."""
        return list(self.calls()[name].values())

    def events(self):
        listed = self.sandbox.store.list("events", "default") + self.sandbox.store.list(
            "events", "kube-system"
        )
        return [(one.object()["reason"], one.object()["note"]) for one in listed]


@pytest.fixture
async def sandbox():
    async with Sandbox(nodes=20) as made:
        yield made


@pytest.fixture
def instance(live, sandbox, kubeconfig, tmp_path):
    return Instance(live, sandbox, kubeconfig, tmp_path)


async def test_pods_arrive_while_the_configuration_flips(instance, start):
    good = [instance.content("a"), instance.content("b")]
    bad = instance.content("c", podInitialBackoffSeconds=-1)
    instance.write(good[0])
    await instance.start(start)
    names = [f"p{number}" for number in range(1000)]
    flips = iter(range(50))
    for number, name in enumerate(names):
        instance.create(name)
        if number % 20 == 0:
            flip = next(flips)
            content = bad if flip % 3 == 2 else good[flip % 2]
            # They follow so fast that some are never read, but some of each kind certainly are.
            if flip % 18 in (2, 3):
                result = "failure" if content is bad else "success"
                seen = (await instance.reloads()).get(result, 0)
                instance.write(content, mark=flip)
                await instance.wait_for_reloads(result, seen + 1)
            else:
                instance.write(content, mark=flip)
                await asyncio.sleep(0.05)
    await instance.wait_for_node(*names)

    reloads = await instance.reloads()
    assert reloads["success"] >= 3
    assert reloads["failure"] >= 3
    calls = instance.calls()
    attempts = [versions for name in names for versions in calls[name].values()]
    assert not [versions for versions in attempts if len(set(versions.values())) > 1]
    points = {"PreFilter", "Reserve", "Permit", "PreBind", "PostBind"}
    assert all(list(calls[name].values())[-1].keys() == points for name in names)
    versions = {version for attempt in attempts for version in attempt.values()}
    assert versions == {"afirst", "bfirst"}
    assert instance.process.returncode is None


async def test_a_refused_configuration_changes_nothing_and_is_reported(instance, start):
    instance.write(instance.content("a"))
    await instance.start(start)
    instance.write(instance.content("b", percentageOfNodesToScore=101))
    await instance.wait_for_reloads("failure", 1)
    instance.create("p")
    await instance.wait_for_node("p")
    assert instance.versions("p")[-1]["PostBind"] == "afirst"
    _, body = await instance.pages.get("/configz")
    configz = json.loads(body)
    assert configz["componentconfig"]["percentageOfNodesToScore"] == 0
    assert configz["lastReload"]["result"] == "failure"
    assert "percentageOfNodesToScore" in configz["lastReload"]["error"]
    await instance.live.until(
        lambda: any(
            reason == "ConfigReloadFailed" and "percentageOfNodesToScore" in note
            for reason, note in instance.events()
        )
    )

    instance.write(instance.content("b", podInitialBackoffSeconds=-1))
    await instance.wait_for_reloads("failure", 2)
    # Another error is another Event, so that operators do not look for one that was repaired.
    await instance.live.until(
        lambda: any("podInitialBackoffSeconds" in note for _, note in instance.events())
    )

    instance.write(instance.content("b", percentageOfNodesToScore=50))
    await instance.wait_for_reloads("success", 1)
    _, body = await instance.pages.get("/configz")
    assert json.loads(body)["componentconfig"]["percentageOfNodesToScore"] == 50
    assert json.loads(body)["lastReload"]["result"] == "success"
    in_force = ("ConfigReloaded", "reload 3: the configuration is in force")
    await instance.live.until(lambda: in_force in instance.events())


async def test_a_changed_plugin_file_takes_over_and_a_broken_one_does_not(instance, start):
    instance.write(instance.content("a"))
    await instance.start(start)
    file = instance.plugins / "recorder.py"
    file.write_text(RECORDER.replace('"first"', '"second"'))
    await instance.wait_for_reloads("success", 1)
    instance.create("p")
    await instance.wait_for_node("p")
    assert instance.versions("p")[-1]["PostBind"] == "asecond"
    in_force = {
        "file": str(file),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "plugins": ["Recorder"],
        "package": "",
    }

    file.write_text("def broken(:\n")
    await instance.wait_for_reloads("failure", 1)
    instance.create("q")
    await instance.wait_for_node("q")
    assert instance.versions("q")[-1]["PostBind"] == "asecond"
    _, body = await instance.pages.get("/configz")
    assert json.loads(body)["pluginFiles"] == [in_force]
    error = json.loads(body)["lastReload"]["error"]
    assert error.count("recorder.py:1") == 1, "the refusal is logged once"
    _, body = await instance.pages.get("/pluginz")
    assert json.loads(body)["files"] == [in_force]
    _, body = await instance.pages.get("/metrics")
    [series] = [line for line in body.splitlines() if line.startswith("proreus_plugin_file_info{")]
    assert f'sha256="{in_force["sha256"]}"' in series
    assert float(series.rpartition(" ")[2]) == 1


CHECKS_FOR_EVER = """
    def problems(self, path, gates):
        while True:
            pass
"""
NEVER_RETURNS = RECORDER.replace('    path: str = ""\n', f'    path: str = ""\n{CHECKS_FOR_EVER}')


@pytest.mark.parametrize(
    ("source", "doing"),
    [
        ("while True:\n    pass\n", "loading the plugins"),
        ("import time\ntime.sleep(1000)\n", "loading the plugins"),
        (NEVER_RETURNS, "reading the configuration with the plugins' arguments"),
    ],
    ids=["a module that loops", "a module that sleeps", "arguments that are checked for ever"],
)
async def test_a_plugin_file_that_never_loads_is_refused_and_a_rollback_takes_force(
    instance, start, source, doing
):
    instance.write(instance.content())
    await instance.start(start, "--plugin-await-timeout=1s")
    file = instance.plugins / "recorder.py"
    file.write_text(source)
    await instance.wait_for_reloads("failure", 1)
    state = json.loads((await instance.pages.get("/configz"))[1])["lastReload"]
    assert state["error"].startswith(f"{file}:")
    assert f": {doing} has not ended after 1s" in state["error"]
    instance.create("meanwhile")
    await instance.wait_for_node("meanwhile")
    file.write_text(RECORDER.replace('"first"', '"second"'))
    await instance.wait_for_reloads("success", 1)
    instance.create("after")
    await instance.wait_for_node("after")
    assert set(instance.versions("after")[-1].values()) == {"asecond"}
    instance.process.send_signal(signal.SIGTERM)
    code, err = await instance.live.ended(instance.process)
    assert (code, "Traceback" in err) == (0, False)


async def test_a_mounted_configmap_that_is_swapped(instance, start):
    mount = instance.config.parent

    def publish(version):
        """Update a mounted ConfigMap as the kubelet does: a new folder, and a renamed link."""
        folder = mount / f"..{version}"
        folder.mkdir()
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(instance.content(version)))
        (mount / "..data_tmp").symlink_to(folder.name)
        os.replace(mount / "..data_tmp", mount / "..data")

    publish("a")
    instance.config.symlink_to("..data/scheduler.yaml")
    await instance.start(start)
    publish("b")
    await instance.wait_for_reloads("success", 1)
    instance.create("p")
    await instance.wait_for_node("p")
    assert instance.versions("p")[-1]["PostBind"] == "bfirst"


async def test_profiles_come_and_go_with_their_pods(instance, start):
    instance.write(instance.content("a", ["default-scheduler", "old"]))
    await instance.start(start)
    instance.create("huge", cpu="1000")
    instance.create("early", scheduler="new")
    await instance.live.until(lambda: instance.versions("huge"))
    before = len(instance.versions("huge"))
    instance.write(instance.content("b", ["default-scheduler", "new"]))
    await instance.wait_for_reloads("success", 1)
    await instance.wait_for_node("early")
    # A rejected pod is retried with the new configuration.
    await instance.live.until(lambda: len(instance.versions("huge")) > before)
    assert instance.versions("huge")[-1]["PreFilter"] == "bfirst"
    instance.create("late", scheduler="old")
    instance.create("p", scheduler="new")
    await instance.wait_for_node("p")
    assert instance.node_of("late") is None


async def test_sighup_reloads_if_files_are_not_followed(instance, start):
    instance.write(instance.content("a"))
    await instance.start(start, "--follow-files=false")
    instance.write(instance.content("b"))
    instance.create("p")
    await instance.wait_for_node("p")
    assert instance.versions("p")[-1]["PostBind"] == "afirst"
    instance.process.send_signal(signal.SIGHUP)
    await instance.wait_for_reloads("success", 1)
    instance.create("q")
    await instance.wait_for_node("q")
    assert instance.versions("q")[-1]["PostBind"] == "bfirst"
    instance.process.send_signal(signal.SIGTERM)
    code, err = await instance.live.ended(instance.process)
    assert (code, "Traceback" in err) == (0, False)
