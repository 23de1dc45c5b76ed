"""``proreus run`` with plugins whose results no encoding has."""

import yaml

ODD = """\
from proreus.framework import FilterPlugin, PreBindPlugin, Status

class Odd(FilterPlugin, PreBindPlugin):
    def filter(self, state, pod, node):
        if pod.name == "rejected":
            return Status.unschedulable("caf\\ud800e")
        if pod.name == "raised":
            raise ValueError("caf\\ud800e")
        return None

    async def pre_bind(self, state, pod, node):
        return Status.error("caf\\ud800e") if pod.name == "failed" else None
"""


def message_of(sandbox, name):
    found = sandbox.store.get("pods", name, "default").object()
    conditions = found.get("status", {}).get("conditions", [])
    return next((one["message"] for one in conditions if one["type"] == "PodScheduled"), "")


async def test_lone_surrogates_do_not_end_scheduling(sandbox, kubeconfig, start, tmp_path, live):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "odd.py").write_text(ODD)
    config = tmp_path / "config.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"plugins": {"multiPoint": {"enabled": [{"name": "Odd"}]}}}],
    }
    config.write_text(yaml.safe_dump(document))
    process = await start(f"--config={config}", f"--plugin-dir={folder}", "--secure-port=0")
    for name in ("rejected", "raised", "failed", "plain"):
        sandbox.store.create("pods", live.pod(name))
    await live.until(
        lambda: sandbox.store.get("pods", "plain", "default").object()["spec"].get("nodeName")
    )
    for name in ("rejected", "raised", "failed"):
        await live.until(lambda name=name: "caf\ufffde" in message_of(sandbox, name))
    process.terminate()
    code, err = await live.ended(process)
    assert code == 0
    assert "UnicodeEncodeError" not in err
