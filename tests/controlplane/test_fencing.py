"""A leader that was stopped for longer than its Lease binds nothing when it goes on.

Judged by what reaches the proxy: every binding, and who held the Lease at that moment.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from envtest import assertions, objects, pod_groups
from envtest.control_plane import ControlPlane
from envtest.schedulers import Kind, RunScheduler
from envtest.waiting import eventually
from fault_run.instances import (
    APISERVER_FLAGS,
    LEASE_SECONDS,
    Instance,
    scheduler_configuration,
    start_instances,
)
from fault_run.pod_kinds import SCHEDULER
from fault_run.proxy import FaultProxy
from fault_run.record import RequestRecord
from fault_run.request_faults import FaultSource
from fault_run.unsteady_extender import UnsteadyExtender

PODS = 600


@pytest.fixture
def plane(binaries: dict[str, Path], folder: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(binaries, folder / "fencing", flags=APISERVER_FLAGS)
    made.start()
    yield made
    made.stop()


def test_a_leader_that_was_stopped_binds_nothing(
    plane: ControlPlane, run_scheduler: RunScheduler, folder: Path, under_test: Kind
) -> None:
    record = RequestRecord(LEASE_SECONDS)
    faults = FaultSource(random.Random(1), {})
    proxy = FaultProxy(plane.server, plane.folder / "pki", faults, record)
    extender = UnsteadyExtender(plane.client)
    configs = {
        name: scheduler_configuration(
            plane, folder, name, proxy.listen(name), extender.configuration(), ""
        )
        for name in ("a", "b")
    }
    for config in configs.values():
        # slowly, so that there is work left when the leader is stopped
        config["clientConnection"] |= {"qps": 40, "burst": 10}
    nodes = [objects.node(index) for index in range(40)]
    plane.client.create_all(objects.NODES, nodes)
    instances = start_instances(run_scheduler, configs, pod_groups.flags_of(), {}, folder)
    eventually(30, "a leader", lambda: record.holder)
    leader = instances[str(record.holder)]
    [standby] = [one for one in instances.values() if one is not leader]
    pods = [objects.pod(f"pod-{index:04}", SCHEDULER, cpu="100m") for index in range(PODS)]
    plane.client.create_all(objects.PODS, pods)
    eventually(30, "bindings by the leader", lambda: bound_by(record, leader) > 20)

    leader.suspend()
    eventually(60, "bindings by the standby", lambda: bound_by(record, standby) > 20)
    resumed = time.monotonic()
    leader.resume()

    assert leader.process.wait(30) == 1
    assertions.wait_until_bound(plane.client, PODS, 120)
    late = [one for one in record.bindings if one.instance == leader.name and one.time > resumed]
    assert not late
    assert not record.unfenced
    twice = [pod for pod, codes in plane.binds_by_pod().items() if codes[201] > 1]
    assert not twice
    assert standby.process.terminate() == 0
    proxy.close()
    extender.close()


def bound_by(record: RequestRecord, instance: Instance) -> int:
    return sum(one.instance == instance.name for one in record.bindings)
