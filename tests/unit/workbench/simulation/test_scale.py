"""A cluster of 5,000 nodes and 30,000 pods takes about four times as long as a quarter of it.

Seconds are for docs/simulate.md: here they would tell of the machine.
"""

from __future__ import annotations

from pathlib import Path
from time import process_time

from clusters import settings

from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import SnapshotInfo, read_cluster
from proreus.insight.snapshots.snapshot import write_snapshot
from proreus.objects.codec import decoder_for
from proreus.objects.kinds import NODES, PODS
from proreus.workbench.bench.simulation import _node as node_json
from proreus.workbench.bench.simulation import _pod as pod_json
from proreus.workbench.simulation.scenario import Scenario
from proreus.workbench.simulation.scenario_run import run_scenario

NODE_COUNT, POD_COUNT = 5_000, 30_000


def test_time_to_load_grows_with_the_number_of_objects(tmp_path: Path) -> None:
    quarter = cpu_seconds_to_load(tmp_path / "quarter.json.gz", NODE_COUNT // 4, POD_COUNT // 4)
    whole = cpu_seconds_to_load(tmp_path / "whole.json.gz", NODE_COUNT, POD_COUNT)
    # 16 if it were the square of the number; a machine that becomes busy in between adds its share
    assert whole / quarter < 10


def cpu_seconds_to_load(path: Path, node_count: int, pod_count: int) -> float:
    """Return the CPU time from a snapshot's file to the report of a scenario without new pods."""
    made = ClusterObjects()
    node, pod = decoder_for(NODES.type), decoder_for(PODS.type)
    for number in range(node_count):
        made.put(NODES, node.decode(node_json(number).encode()))
    for number in range(pod_count):
        text = pod_json(number, "placed", alike=False, node=f"node-{number % node_count}")
        made.put(PODS, pod.decode(text.encode()))
    with path.open("wb") as file:
        write_snapshot(made, SnapshotInfo(), file)

    started = process_time()
    result, _ = run_scenario(Scenario(read_cluster([path])), settings())
    seconds = process_time() - started
    assert (result.after.nodes, result.after.pods) == (node_count, pod_count)
    return seconds
