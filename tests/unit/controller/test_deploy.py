"""deploy/controller and deploy/controller-rebalancing: do they hold together, and with proreus?"""

from __future__ import annotations

import yaml

from proreus.controller.cli import command
from proreus.controller.evictions.eviction_record import NAME
from proreus.controller.options import DEFAULT_STATUS_KINDS, ControllerOptions
from proreus.controller.run import STATUSES
from proreus.insight.snapshots.cluster_objects import READ_KINDS
from unit.test_deploy import CONTROLLER, DEPLOY, SECOND, one

REBALANCING = DEPLOY / "controller-rebalancing"


def test_the_controller_is_started_with_the_lease_that_its_role_names() -> None:
    deployment = one(CONTROLLER / "deployment.yaml", "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    subcommand, *arguments = container["args"]
    assert subcommand == command.name
    with command.make_context("controller", arguments) as context:
        options = ControllerOptions(**context.params)
    role = one(CONTROLLER / "rbac.yaml", "Role")
    assert role["metadata"]["namespace"] == options.leader_elect_resource_namespace
    named = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert named == [[options.leader_elect_resource_name]]
    [port] = container["ports"]
    assert port["containerPort"] == options.secure_port


def test_the_rebalancer_is_given_the_configuration_of_the_second_scheduler() -> None:
    kustomization = one(REBALANCING / "kustomization.yaml", "Kustomization")
    steps = yaml.safe_load(kustomization["patches"][0]["patch"])
    flags = [step["value"] for step in steps if step["path"].endswith("/args/-")]
    with command.make_context("controller", flags) as context:
        options = ControllerOptions(**context.params)
    assert str(options.rebalance_config) == "/etc/proreus/scheduler.yaml"
    written = (REBALANCING / "scheduler.yaml").read_text()
    assert yaml.safe_load(written) == yaml.safe_load((SECOND / "scheduler.yaml").read_text())


def test_the_controllers_role_allows_what_it_follows() -> None:
    rules = one(CONTROLLER / "rbac.yaml", "ClusterRole")["rules"]
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for name in DEFAULT_STATUS_KINDS:
        resource = STATUSES[name]().resource
        assert allowed[resource.group, resource.plural] == {"get", "list", "watch"}
        assert allowed[resource.group, f"{resource.plural}/status"] == {"patch"}
    assert ("", "pods/eviction") not in allowed


def test_the_rebalancers_role_allows_to_read_what_simulations_read() -> None:
    allowed = {
        (group, resource)
        for path in (CONTROLLER / "rbac.yaml", REBALANCING / "rbac.yaml")
        for rule in one(path, "ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if {"get", "list"} <= set(rule["verbs"])
    }
    for kind in READ_KINDS.values():
        assert (kind.group, kind.plural) in allowed
    verbs = {
        verb
        for rule in one(REBALANCING / "rbac.yaml", "ClusterRole")["rules"]
        for verb in rule["verbs"]
    }
    assert verbs == {"get", "list"}


def test_evictions_are_recorded_where_their_role_allows_it() -> None:
    path = REBALANCING / "evictions.yaml"
    [rule] = one(path, "ClusterRole")["rules"]
    assert (rule["resources"], rule["verbs"]) == (["pods/eviction"], ["create"])
    named = [rule.get("resourceNames") for rule in one(path, "Role")["rules"]]
    assert named == [None, [NAME]]
