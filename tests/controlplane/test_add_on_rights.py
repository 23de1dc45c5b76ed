"""The rights and definitions that the chart gives to add-ons are enough to read what they read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from envtest import assertions, objects
from envtest.control_plane import ControlPlane
from envtest.controllers import install
from envtest.deploy import service_account_kubeconfig
from envtest.metrics_api import serve_metrics
from envtest.schedulers import RunScheduler, configuration

Json = dict[str, Any]

ADD_ONS: Json = yaml.safe_load(
    (Path(__file__).parents[2] / "deploy" / "chart" / "add-ons.yaml").read_text()
)
ARGS: Json = {
    "Coscheduling": {"mode": "plan"},
    "Peaks": {"nodePowerModel": {"node-00000": {"k0": 1, "k1": 1, "k2": 1}}},
}


def test_every_add_on_reads_its_objects_with_the_rights_of_the_chart(
    control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    client = control_plane.client
    for name in sorted({name for each in ADD_ONS.values() for name in each["crds"]}):
        install(client, name)
    serve_metrics(client)
    client.create(objects.NODES, objects.node(0))
    kubeconfig = service_account_kubeconfig(control_plane, ADD_ONS)
    # only one plugin sorts the queue, and TopologicalSort reads what NetworkOverhead reads
    profiles = [profile_with(name) for name in ADD_ONS if name != "TopologicalSort"]
    scheduler = run_scheduler(configuration(profiles, kubeconfig), kind="proreus")

    client.create_all(objects.PODS, [objects.pod("pod", "SySched")])
    assertions.wait_until_bound(client, 1, 30)
    log = scheduler.log.read_text()
    assert "orbidden" not in log, log
    scheduler.finish()


def profile_with(add_on: str) -> Json:
    sort = {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]}
    names = {add_on, "Coscheduling"}
    point: Json = {"enabled": [{"name": name} for name in sorted(names)]}
    if add_on in ("CapacityScheduling", "GangPreemption"):
        point["disabled"] = [{"name": "DefaultPreemption"}]
    return {
        "schedulerName": add_on,
        "plugins": {"queueSort": sort, "multiPoint": point},
        "pluginConfig": [{"name": name, "args": ARGS[name]} for name in names & ARGS.keys()],
    }
