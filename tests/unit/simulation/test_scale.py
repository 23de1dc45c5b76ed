"""The bar of issue-sized clusters: 5,000 nodes and 30,000 pods are loaded in five seconds."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from clusters import settings

from proreus.bench.simulation import _node as node_json
from proreus.bench.simulation import _pod as pod_json
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.simulation.cluster_objects import ClusterObjects
from proreus.simulation.object_files import SnapshotInfo, read_cluster
from proreus.simulation.scenario import Scenario
from proreus.simulation.scenario_run import run_scenario
from proreus.simulation.snapshot import write_snapshot

NODE_COUNT, POD_COUNT, SECONDS = 5_000, 30_000, 5.0


def test_a_large_cluster_is_loaded_in_time(tmp_path: Path) -> None:
    made = ClusterObjects()
    node, pod = decoder_for(NODES.type), decoder_for(PODS.type)
    for number in range(NODE_COUNT):
        made.put(NODES, node.convert(node_json(number)))
    for number in range(POD_COUNT):
        plain = pod_json(number, "placed", alike=False)
        plain["spec"]["nodeName"] = f"node-{number % NODE_COUNT}"
        made.put(PODS, pod.convert(plain))
    path = tmp_path / "cluster.json.gz"
    with path.open("wb") as file:
        write_snapshot(made, SnapshotInfo(), file)

    started = perf_counter()
    objects = read_cluster([path])
    seconds = perf_counter() - started
    result, timings = run_scenario(Scenario(objects), settings())
    assert (result.after.nodes, result.after.pods) == (NODE_COUNT, POD_COUNT)
    assert seconds + timings.load_seconds < SECONDS
