import io
import socket
from collections import Counter

import pytest
from rich.console import Console

from proreus.config.load import load
from proreus.config.types import PluginRef, Plugins, PluginSet
from proreus.engine.runtime.registry import Registry
from proreus.plugins import IN_TREE_PLUGINS
from proreus.workbench.cli.demo import free_address, workload
from proreus.workbench.cli.demo.progress import Progress, print_report
from proreus.workbench.sandbox.cluster import make_nodes
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.strategies import STRATEGIES


@pytest.fixture
def store():
    made = Store(STRATEGIES)
    for node in make_nodes(6, zones=3):
        made.create("nodes", node)
    return made


def test_the_workload_is_mixed():
    pods = list(workload.pods(1000))
    schedulers = Counter(pod["spec"]["schedulerName"] for pod in pods)
    assert schedulers == {"spread-out": 480, "bin-packing": 480, "default-scheduler": 40}
    assert len({pod["metadata"]["name"] for pod in pods}) == 1000
    apps = Counter(pod["metadata"]["labels"]["app"] for pod in pods)
    assert (apps["too-large"], apps["wants-a-disk"], apps["not-ours"]) == (5, 5, 40)


def test_the_configuration_is_written(tmp_path):
    path = workload.write_configuration(tmp_path / "config.yaml", "/kubeconfig")
    assert "schedulerName: spread-out" in path.read_text()


def test_given_plugins_are_enabled_in_both_profiles():
    def sets(name):
        return PluginSet(enabled=(PluginRef(name=name),))

    given = Plugins(multi_point=sets("Mine"), bind=sets("Mine"))
    config = load(workload.configuration("/kubeconfig", given), Registry(IN_TREE_PLUGINS))
    for profile in config.profiles:
        assert profile.plugins.multi_point.enabled[-1].name == "Mine"
        assert profile.plugins.bind.enabled == (PluginRef(name="Mine"),)


def test_progress_ends_when_every_pod_has_a_node_or_a_reason(store):
    progress = Progress(store)
    assert not progress.follow()
    workload.create_pods(store, 20)
    assert not progress.follow()
    names = [name for name, of in progress.scheduler_of.items() if of in workload.OURS]
    assert progress.waiting == len(names) == 19
    for name in names[1:]:
        set_status(store, name, node="node-0")
    assert not progress.follow()
    set_status(store, names[0], reason="0/6 nodes are available")
    assert progress.follow()
    assert progress.reason_of == {names[0]: "0/6 nodes are available"}
    set_status(store, names[0], node="node-1")
    assert progress.follow()
    assert progress.reason_of == {}
    assert progress.bound("spread-out") + progress.bound("bin-packing") == 19


def set_status(store, name, node="", reason=""):
    pod = store.get("pods", name, workload.NAMESPACE).object()
    if node:
        pod["spec"]["nodeName"] = node
    if reason:
        condition = {"type": "PodScheduled", "status": "False", "message": reason}
        pod["status"]["conditions"] = [condition]
    store.write("pods", pod)


def test_the_report_has_counts_by_zone_and_reasons(store):
    progress = Progress(store)
    workload.create_pods(store, 20)
    progress.follow()
    by_scheduler = {}
    for name, scheduler in progress.scheduler_of.items():
        by_scheduler.setdefault(scheduler, []).append(name)
    set_status(store, by_scheduler["spread-out"][0], node="node-0")
    set_status(store, by_scheduler["spread-out"][1], node="node-1")
    set_status(store, by_scheduler["bin-packing"][0], reason="Insufficient cpu")
    progress.follow()
    out = io.StringIO()
    print_report(Console(width=100, file=out), progress, store)
    text = out.getvalue()
    assert ["spread-out", "1", "1", "0", "2", "2"] in [
        [cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines()
    ]
    assert "Insufficient cpu" in text
    assert "1 of 1 pods for default-scheduler left untouched" in text


def test_a_port_in_use_is_not_taken():
    first = free_address(0)
    host, _, port = first.partition(":")
    with socket.socket() as taken:
        taken.bind((host, int(port)))
        taken.listen()
        other = free_address(int(port))
    assert host == "127.0.0.1"
    assert other.startswith("127.0.0.1:")
    assert other != first
