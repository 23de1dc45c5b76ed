"""deploy/chart by Helm itself: the kustomizations' objects, on a real apiserver, through a life."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from envtest.control_plane import ControlPlane
from envtest.controllers import apply
from envtest.deploy import OPERATOR_KINDS, install_permissive
from envtest.helm import CHART, Helm

Json = dict[str, Any]

DEPLOY = CHART.parent
ON = {"enabled": True}
WITH_PLUGINS = DEPLOY / "plugins-from-configmap"
CRDS = yaml.safe_load((DEPLOY / "crds" / "kustomization.yaml").read_text())["resources"]
GANGS = {
    "schedulerName": "gangs",
    "plugins": {
        "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
    },
}


@dataclass(frozen=True)
class Preset:
    """What the chart has to render for some values.

    ``components``: those of deploy/, on top of the first kustomization.
    """

    kustomizations: list[str]
    values: Json
    components: list[str] = field(default_factory=list)


PRESETS = {
    "second-scheduler": Preset(["second-scheduler"], {}),
    "only-scheduler": Preset(["only-scheduler"], {"onlyScheduler": True}),
    "plugins-from-configmap": Preset(
        ["plugins-from-configmap"],
        {
            "profiles": yaml.safe_load((WITH_PLUGINS / "scheduler.yaml").read_text())["profiles"],
            "plugins": {"files": {"maintenance.py": (WITH_PLUGINS / "maintenance.py").read_text()}},
        },
    ),
    "explain": Preset(["second-scheduler", "explain"], {"explain": ON}),
    "dry-run": Preset(["second-scheduler"], {"dryRun": ON}, ["dry-run"]),
    "dashboard": Preset(
        ["only-scheduler"],
        {"onlyScheduler": True, "dashboard": ON, "dryRun": ON},
        ["dashboard", "dry-run"],
    ),
    "monitoring": Preset(["second-scheduler", "monitoring"], {"monitoring": ON}),
    "monitoring-verified": Preset(
        ["monitoring-verified"], {"monitoring": ON | {"certManager": True}}
    ),
    "admission-policies": Preset(
        ["second-scheduler", "admission-policies"], {"admissionPolicies": ON}
    ),
    "crds": Preset(
        ["second-scheduler", "crds"],
        {"crds": {"names": [name.removesuffix(".yaml") for name in CRDS]}},
    ),
    "controller": Preset(
        ["second-scheduler", "controller"], {"controller": ON, "crds": {"install": False}}
    ),
    "controller-colocation": Preset(
        ["second-scheduler", "controller-colocation"],
        {"controller": ON | {"colocation": ON}, "crds": {"install": False}},
    ),
    "controller-rebalancing": Preset(
        ["second-scheduler", "controller-rebalancing"],
        {"controller": ON | {"rebalancing": ON}, "crds": {"install": False}},
    ),
}

NO_PRESETS = {"chart", "static-pod"}
"""Folders of deploy/ without one: a static pod is a file on a node."""

EVERYTHING: Json = {
    "profiles": [GANGS],
    "plugins": {"files": {"maintenance.py": (WITH_PLUGINS / "maintenance.py").read_text()}},
    "extraRules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}],
    "explain": ON,
    "dryRun": ON,
    "dashboard": ON,
    "monitoring": ON,
    "admissionPolicies": ON,
    "controller": {
        **ON,
        "colocation": ON | {"evict": True},
        "rebalancing": ON | {"evict": True},
        "extraRules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    },
}


def test_every_kustomization_has_a_preset() -> None:
    folders = {path.name for path in DEPLOY.iterdir() if path.is_dir()}
    assert folders - NO_PRESETS == PRESETS.keys()


@pytest.mark.parametrize("name", PRESETS)
def test_the_chart_renders_the_objects_of_the_kustomizations(
    helm: Helm, binaries: dict[str, Path], name: str, tmp_path: Path
) -> None:
    preset = PRESETS[name]
    first, *others = preset.kustomizations
    written = overlay(tmp_path, first, preset.components)
    expected = kustomized(binaries["kubectl"], written)
    for folder in others:
        expected |= kustomized(binaries["kubectl"], DEPLOY / folder)
    rendered = by_name([comparable(each) for each in helm.template(preset.values)])
    assert rendered.keys() == expected.keys()
    for key, one in expected.items():
        assert rendered[key] == one


def overlay(folder: Path, base: str, components: list[str]) -> Path:
    """Write a kustomization as a user does, and return its folder."""
    deploy = os.path.relpath(DEPLOY, folder.resolve())
    written = {
        "resources": [f"{deploy}/{base}"],
        "components": [f"{deploy}/{each}" for each in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(written))
    return folder


def kustomized(kubectl: Path, folder: Path) -> dict[tuple[str, ...], Json]:
    """Return the objects of a kustomization, without the namespace: Helm creates that."""
    built = subprocess.run(
        [str(kubectl), "kustomize", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # the hash of its content in the name of a generated ConfigMap
    named = r"(name: proreus-(?:config|plugins|controller-config))-[0-9a-z]{10}$"
    text = re.sub(named, r"\1", built.stdout, flags=re.M)
    documents = [document for document in yaml.safe_load_all(text) if document]
    return by_name([comparable(one) for one in documents if one["kind"] != "Namespace"])


def comparable(rendered: Json) -> Json:
    """Return an object without Helm's own annotations, and with its configuration parsed."""
    made = copy.deepcopy(rendered)
    for metadata in (
        made["metadata"],
        made.get("spec", {}).get("template", {}).get("metadata", {}),
    ):
        annotations = metadata.get("annotations", {})
        for mine in ("helm.sh/resource-policy", "checksum/configuration"):
            annotations.pop(mine, None)
        if not annotations:
            metadata.pop("annotations", None)
    if made["kind"] == "ConfigMap" and "scheduler.yaml" in made["data"]:
        made["data"]["scheduler.yaml"] = yaml.safe_load(made["data"]["scheduler.yaml"])
    return made


def by_name(documents: list[Json]) -> dict[tuple[str, ...], Json]:
    found = {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
        for one in documents
    }
    assert len(found) == len(documents)
    return found


def test_helm_finds_no_fault_in_the_chart(helm: Helm) -> None:
    for values in ({}, EVERYTHING, *(preset.values for preset in PRESETS.values())):
        said = helm.run("lint", "--strict", str(CHART), values=values)
        assert "1 chart(s) linted, 0 chart(s) failed" in said


def test_an_archive_of_the_chart_has_the_files_that_the_folder_links_to(
    helm: Helm, tmp_path: Path
) -> None:
    helm.run("package", str(CHART), f"--destination={tmp_path}")
    [archive] = tmp_path.iterdir()
    command = ("template", "proreus", "--namespace=proreus")
    rendered = helm.attempt(*command, str(archive), values=EVERYTHING)
    assert rendered.returncode == 0
    assert rendered.stderr == ""
    assert list(yaml.safe_load_all(rendered.stdout)) == helm.template(EVERYTHING)


WRONG: dict[str, tuple[Json, str]] = {
    "a-typing-error": ({"dashbord": ON}, "dashbord"),
    "replicas-as-text": ({"replicas": "two"}, "replicas"),
    "a-profile-without-a-name": ({"profiles": [{"plugins": {}}]}, "schedulerName"),
    "profiles-in-the-configuration": ({"configuration": {"profiles": []}}, "configuration"),
    "an-unknown-definition": ({"crds": {"names": ["podgroups"]}}, "crds"),
    "a-name-of-the-apiserver": ({"networkPolicy": {"apiserverCIDRs": ["api"]}}, "apiserverCIDRs"),
    "a-rule-without-verbs": ({"extraRules": [{"resources": ["pods"]}]}, "verbs"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_schema_refuses_wrong_values(helm: Helm, name: str) -> None:
    values, named = WRONG[name]
    refused = helm.attempt("template", "proreus", str(CHART), values=values)
    assert refused.returncode != 0
    assert "values don't meet the specifications of the schema" in refused.stderr
    assert named in refused.stderr


def test_objects_are_in_the_namespace_of_the_release(helm: Helm) -> None:
    values = EVERYTHING | {"monitoring": ON | {"certManager": True, "namespace": "watching"}}
    objects = helm.template(values, namespace="elsewhere")
    text = yaml.safe_dump_all(objects)
    theirs = r"amespace: proreus\b|-namespace=proreus|account:proreus|proreus\.proreus"
    assert re.findall(theirs, text) == []
    assert {one["metadata"].get("namespace") for one in objects} == {
        *(None, "elsewhere", "kube-system")
    }
    assert "kubernetes.io/metadata.name: watching" in text
    assert "proreus.elsewhere.svc" in text
    assert "system:serviceaccount:elsewhere:proreus" in text


def test_values_reach_the_pods(helm: Helm) -> None:
    pods: Json = {
        "podAnnotations": {"example.com/team": "a"},
        "resources": {"requests": {"cpu": "2"}},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "extraArgs": ["-v=4"],
    }
    image = {
        "repository": "registry.example.com/proreus",
        "tag": "0.2.0",
        "pullPolicy": "Always",
        "pullSecrets": [{"name": "password"}],
    }
    values = {"image": image, "replicas": 3, **pods, "controller": ON | pods}
    rendered = by_name(helm.template(values))
    for name, replicas in (("proreus", 3), ("proreus-controller", 1)):
        spec = rendered["Deployment", "proreus", name]["spec"]
        assert spec["replicas"] == replicas
        template = spec["template"]
        assert template["metadata"]["annotations"]["example.com/team"] == "a"
        pod = template["spec"]
        for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
            assert pod[key] == pods[key]
        assert pod["imagePullSecrets"] == image["pullSecrets"]
        [container] = pod["containers"]
        assert container["image"] == "registry.example.com/proreus:0.2.0"
        assert container["imagePullPolicy"] == "Always"
        assert container["resources"] == pods["resources"]
        assert container["args"][-1] == "-v=4"


def test_the_addresses_of_the_control_plane_limit_who_may_explain(helm: Helm) -> None:
    values = {"explain": ON, "networkPolicy": {"apiserverCIDRs": ["192.0.2.0/28"]}}
    policy = by_name(helm.template(values))["NetworkPolicy", "proreus", "proreus-explain"]
    assert policy["spec"]["ingress"][0]["from"] == [{"ipBlock": {"cidr": "192.0.2.0/28"}}]


def test_one_replica_has_no_disruption_budget(helm: Helm) -> None:
    budget = ("PodDisruptionBudget", "proreus", "proreus")
    assert budget in by_name(helm.template({"replicas": 3}))
    assert budget not in by_name(helm.template({"replicas": 1}))


def test_the_rebalancer_has_the_schedulers_configuration_and_plugins(helm: Helm) -> None:
    rendered = by_name(helm.template(EVERYTHING))
    of_the_rebalancer = rendered["ConfigMap", "proreus", "proreus-controller-config"]["data"]
    assert of_the_rebalancer == rendered["ConfigMap", "proreus", "proreus-config"]["data"]
    pod = rendered["Deployment", "proreus", "proreus-controller"]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["plugins"]["configMap"]["name"] == "proreus-plugins"
    [container] = pod["containers"]
    assert "--rebalance-config=/etc/proreus/scheduler.yaml" in container["args"]
    assert "--plugin-dir=/etc/proreus-plugins" in container["args"]


def test_an_add_on_of_a_profile_gets_its_definitions_and_rights(helm: Helm) -> None:
    rendered = by_name(helm.template({"profiles": [GANGS]}))
    assert ("CustomResourceDefinition", "", "podgroups.scheduling.x-k8s.io") in rendered
    rules = rendered["ClusterRole", "", "proreus-plugins"]["rules"]
    assert ["podgroups"] in [rule["resources"] for rule in rules]
    assert ("ClusterRole", "", "proreus-plugins") not in by_name(helm.template({}))


def test_a_changed_configuration_rolls_the_pods_out(helm: Helm) -> None:
    checksums = {
        by_name(helm.template(values))["Deployment", "proreus", "proreus"]["spec"]["template"][
            "metadata"
        ]["annotations"]["checksum/configuration"]
        for values in (
            {},
            {"configuration": {"podMaxBackoffSeconds": 20}},
            {"plugins": {"files": {"a.py": ""}}},
        )
    }
    assert len(checksums) == 3


def test_the_apiserver_accepts_everything(
    helm: Helm, control_plane: ControlPlane, binaries: dict[str, Path]
) -> None:
    client = control_plane.client
    client.create("/api/v1/namespaces", {"metadata": {"name": "proreus"}})
    install_permissive(client, "monitoring.coreos.com", OPERATOR_KINDS)
    objects = helm.template(EVERYTHING)
    command = [str(binaries["kubectl"]), f"--kubeconfig={control_plane.kubeconfig}"]
    applied = subprocess.run(
        [*command, "apply", "--dry-run=server", "--validate=strict", "-f", "-"],
        input=yaml.safe_dump_all(objects),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert applied.returncode == 0, applied.stderr
    assert applied.stdout.count("(server dry run)") == len(objects) > 30


def test_a_release_takes_over_the_objects_that_kustomize_has_created(
    helm: Helm, new_control_plane: ControlPlane, binaries: dict[str, Path]
) -> None:
    plane = new_control_plane
    apply(plane, binaries, "-k", DEPLOY / "second-scheduler")
    deployment = "/apis/apps/v1/namespaces/proreus/deployments/proreus"
    before = plane.client.get(deployment)["metadata"]["uid"]

    command = ("install", "proreus", str(CHART), "--namespace=proreus")
    refused = helm.attempt(*command, kubeconfig=plane.kubeconfig)
    assert "exists and cannot be imported into the current release" in refused.stderr
    notes = helm.run(*command, "--take-ownership", kubeconfig=plane.kubeconfig)

    assert "It schedules pods whose spec.schedulerName is spread-out or bin-packing." in notes
    taken = plane.client.get(deployment)
    assert taken["metadata"]["uid"] == before
    volumes = taken["spec"]["template"]["spec"]["volumes"]
    assert {"name": "proreus-config", "defaultMode": 420} in [
        one.get("configMap") for one in volumes
    ]
