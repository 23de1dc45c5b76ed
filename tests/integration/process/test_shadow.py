"""A candidate in parallel with the one in force, as docs/operating.md shows it."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml

from proreus.workbench.sandbox import Sandbox

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operating.md"

TIDY = """
from proreus.framework import ScorePlugin


class Tidy(ScorePlugin):
    def score(self, state, pod, node):
        return 100 if node.name.endswith("{digit}") else 0
"""
BROKEN = TIDY.replace("return", "return 1 // 0 +")


def section() -> str:
    text = PAGE.read_text()
    return text[text.index("### Trying a change in the shadow") : text.index("### Rolling back")]


def fence(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", section(), re.DOTALL)
    return found


class Instance:
    """A running ``proreus`` with the flags of the page."""

    def __init__(self, live, sandbox, kubeconfig, folder):
        self.live, self.sandbox, self.folder = live, sandbox, folder
        self._kubeconfig = kubeconfig
        for name, digit in (("plugins", 1), ("plugins-next", 2)):
            (folder / name).mkdir()
            self.write(name, TIDY.format(digit=digit))
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(self.config()))
        self._names = (f"p{number}" for number in range(10_000))

    def config(self, **more):
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": self._kubeconfig},
            "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Tidy"}]}}}],
            **more,
        }

    def write(self, folder, text):
        fresh = self.folder / "fresh"
        fresh.write_text(text)
        fresh.replace(self.folder / folder / "tidy.py")

    async def start(self, start, *more):
        port = self.live.port()
        kubeconfig = self._kubeconfig
        _run, *args = yaml.safe_load(fence("yaml"))["args"]
        flags = [arg.replace("/etc/proreus", str(self.folder)) for arg in args]
        self.process = await start(
            *flags,
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            *more,
        )
        self.pages = self.live.Pages(port, self.sandbox.token)
        await self.pages.ready()

    async def page(self, path="/shadowz"):
        return json.loads((await self.pages.get(path))[1])

    async def trial(self, result):
        """Return the trial once it has a result and, while it runs, can compare pods."""
        async with asyncio.timeout(60):
            while True:
                trial = (await self.page())["trial"]
                if trial and trial["result"] == result and ("compared" in trial or trial["reason"]):
                    return trial
                await asyncio.sleep(0.05)

    async def schedule(self, pods):
        """Schedule pods; return their nodes."""
        names = [next(self._names) for _ in range(pods)]
        for name in names:
            self.sandbox.store.create("pods", self.live.pod(name))
        await self.live.until(lambda: all(map(self.node_of, names)))
        return [self.node_of(name) for name in names]

    async def schedule_until(self, result):
        """Schedule pods until the trial has ended; return their nodes and the trial."""
        nodes = []
        async with asyncio.timeout(60):
            # More than the trial compares: on a busy machine it leaves some out for want of time.
            while (trial := (await self.page())["trial"])["result"] == "running":
                nodes += await self.schedule(1)
        assert trial["result"] == result, trial
        return nodes, trial

    def node_of(self, name):
        return self.sandbox.store.get("pods", name, "default").object()["spec"].get("nodeName")

    def reasons(self):
        listed = self.sandbox.store.list("events", "default") + self.sandbox.store.list(
            "events", "kube-system"
        )
        return {one.object()["reason"] for one in listed}


@pytest.fixture
async def sandbox():
    async with Sandbox(nodes=9) as made:
        yield made


@pytest.fixture
def instance(live, sandbox, kubeconfig, tmp_path):
    return Instance(live, sandbox, kubeconfig, tmp_path)


async def test_a_candidate_that_passes_is_adopted(instance, start):
    await instance.start(start, "--shadow-max-differences=1")
    await instance.trial("running")
    nodes, trial = await instance.schedule_until("adopted")
    # The first pods of the candidate, if any, were scheduled while the page was being read.
    assert {node[-1] for node in nodes[:20]} == {"1"}
    shown = json.loads(fence("json"))
    page = await instance.page()
    assert page.keys() == shown.keys()
    assert page["trial"].keys() == shown["trial"].keys()
    for part in ("outcomes", "decisions"):
        assert trial[part].keys() == shown["trial"][part].keys()
    assert trial["examples"][0].keys() == shown["trial"]["examples"][0].keys()
    assert trial["calls"][0].keys() == shown["trial"]["calls"][0].keys()
    assert trial["outcomes"]["moved"] == trial["compared"] == 20

    assert {node[-1] for node in await instance.schedule(5)} == {"2"}
    (file,) = (await instance.page("/pluginz"))["files"]
    assert file["file"] == str(instance.folder / "plugins-next" / "tidy.py")
    assert (await instance.page("/configz"))["lastReload"]["adopted"] is True
    _, metrics = await instance.pages.get("/metrics")
    assert 'proreus_shadow_trials_total{result="adopted"} 1' in metrics
    assert 'proreus_shadow_pods_total{outcome="moved"} 20' in metrics
    await instance.live.until(lambda: "ShadowAdopted" in instance.reasons())

    # The files of the process are what it says they are, once one of them changes.
    instance.write("plugins", TIDY.format(digit=3))
    async with asyncio.timeout(60):
        while (await instance.schedule(1))[0][-1] != "3":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await instance.trial("running")
    instance.process.terminate()
    code, err = await instance.live.ended(instance.process)
    assert code == 0, err
    assert "Traceback" not in err


async def test_a_candidate_that_differs_too_much_is_dropped(instance, start):
    await instance.start(start, "--shadow-max-differences=0.9")
    await instance.trial("running")
    _, trial = await instance.schedule_until("dropped")
    assert "20 of 20 pods" in trial["reason"]
    assert {node[-1] for node in await instance.schedule(5)} == {"1"}

    # Another version is another trial.
    instance.write("plugins-next", TIDY.format(digit=1))
    await instance.trial("running")
    _, trial = await instance.schedule_until("adopted")
    assert trial["outcomes"]["same"] == 20


async def test_a_candidate_that_fails_or_cannot_be_loaded_harms_nobody(instance, start):
    instance.write("plugins-next", BROKEN.format(digit=1))
    await instance.start(start)
    await instance.trial("running")
    nodes, trial = await instance.schedule_until("dropped")
    assert {node[-1] for node in nodes} == {"1"}
    assert trial["failures"][0]["plugin"] == "Tidy"
    assert trial["compared"] < 20

    instance.write("plugins-next", f"import no_such_module\n{TIDY.format(digit=1)}")
    trial = await instance.trial("refused")
    assert "tidy.py" in trial["reason"]
    assert {node[-1] for node in await instance.schedule(2)} == {"1"}
    instance.process.terminate()
    code, err = await instance.live.ended(instance.process)
    assert code == 0
    assert "Plugin in the shadow raised" in err
