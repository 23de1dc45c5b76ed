"""deploy/, the Dockerfile and kind-config.yaml: do they hold together, and with proreus?

Whether a real apiserver takes the manifests is asked in tests/controlplane.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client as models

from proreus.base.metrics.scheduler_metrics import SchedulerMetrics
from proreus.config import load
from proreus.engine.runtime.registry import Registry
from proreus.insight.dry_run.openapi import DOCUMENT_PATH, PATH
from proreus.objects.kinds import BY_KIND
from proreus.plugins import IN_TREE_PLUGINS
from proreus.process.cli.run_command import command
from proreus.process.cli.run_flags import FLAGS
from proreus.process.loading.load import PluginSources
from proreus.process.loading.load import load as load_plugins

Json = dict[str, Any]

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
SECOND = DEPLOY / "second-scheduler"
CONTROLLER = DEPLOY / "controller"
WITH_PLUGINS = DEPLOY / "plugins-from-configmap"
MANIFESTS = sorted(
    path
    for path in DEPLOY.rglob("*.yaml")
    if path.name not in ("kustomization.yaml", "scheduler.yaml")
    and not path.is_relative_to(DEPLOY / "chart")  # templates: tests/controlplane/test_chart.py
)

MODELS = {
    "v1": "V1",
    "admissionregistration.k8s.io/v1": "V1",
    "apiextensions.k8s.io/v1": "V1",
    "apps/v1": "V1",
    "networking.k8s.io/v1": "V1",
    "policy/v1": "V1",
    "rbac.authorization.k8s.io/v1": "V1",
}


def documents(path: Path) -> list[Json]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def one(path: Path, kind: str) -> Json:
    [found] = [document for document in documents(path) if document["kind"] == kind]
    return found


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


# --- schema: Kubernetes' own models, read strictly ----------------------------------------------


def faults(value: Any, type_name: str, where: str) -> Iterator[str]:
    """Yield what the model of that name does not allow: unknown fields, wrong types, gaps."""
    if inner := re.fullmatch(r"List\[(.+)\]", type_name):
        if not isinstance(value, list):
            yield f"{where}: not a list"
            return
        for index, item in enumerate(value):
            yield from faults(item, inner[1], f"{where}[{index}]")
    elif inner := re.fullmatch(r"Dict\[str, (.+)\]", type_name):
        for key, item in value.items():
            yield from faults(item, inner[1], f"{where}.{key}")
    elif model := getattr(models, type_name, None):
        yield from faults_of_object(value, model, where)
    else:
        allowed = {"str": str, "int": int, "bool": bool, "float": (int, float)}
        # an object is a quantity's or a port's place: text or number; or one without fields
        allowed["object"] = (str, int, dict)
        if not isinstance(value, allowed.get(type_name, (str, int))):
            yield f"{where}: {value!r} is not of type {type_name}"


def faults_of_object(value: Json, model: Any, where: str) -> Iterator[str]:
    fields = {model.attribute_map[name]: kind for name, kind in model.openapi_types.items()}
    for key, item in value.items():
        if key not in fields:
            yield f"{where}.{key}: no such field of {model.__name__}"
        else:
            yield from faults(item, fields[key], f"{where}.{key}")


KINDS_OF_OPERATORS = {
    "monitoring.coreos.com": ("ServiceMonitor", "PrometheusRule"),
    "cert-manager.io": ("Certificate", "Issuer"),
}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_manifests_are_what_kubernetes_models_allow(path: Path) -> None:
    for document in documents(path):
        assert document["metadata"]["name"]
        if document["apiVersion"] in MODELS:
            model = f"{MODELS[document['apiVersion']]}{document['kind']}"
            assert hasattr(models, model)
            assert list(faults(document, model, document["kind"])) == []
        else:
            operator = document["apiVersion"].partition("/")[0]
            assert document["kind"] in KINDS_OF_OPERATORS[operator]


def test_a_wrong_manifest_would_be_noticed() -> None:
    deployment = one(SECOND / "deployment.yaml", "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    deployment["spec"]["replicas"] = "2"
    assert sorted(faults(deployment, "V1Deployment", "Deployment")) == [
        "Deployment.spec.replicas: '2' is not of type int",
        "Deployment.spec.template.spec.containers[0].readinesProbe: no such field of V1Container",
    ]


def allowed() -> set[tuple[str, str, str]]:
    """Return the groups, resources and verbs of the second scheduler's role."""
    return {
        (group, resource, verb)
        for rule in one(SECOND / "rbac.yaml", "ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("plural", ["podgroups", "compositepodgroups"])
def test_the_role_allows_to_write_the_statuses_of_groups(plural: str) -> None:
    assert ("scheduling.k8s.io", f"{plural}/status", "patch") in allowed()


def test_the_role_allows_to_watch_every_kind() -> None:
    for kind in BY_KIND.values():
        for verb in ("get", "list", "watch"):
            assert (kind.group, kind.plural, verb) in allowed()


@pytest.mark.parametrize(
    "folder",
    [
        "second-scheduler",
        "only-scheduler",
        "dashboard",
        "monitoring",
        "monitoring-verified",
        "explain",
        "dry-run",
        "plugins-from-configmap",
        "controller",
        "controller-colocation",
        "crds",
    ],
)
def test_kustomizations_name_every_file_there(folder: str) -> None:
    [kustomization] = documents(DEPLOY / folder / "kustomization.yaml")
    generated = [
        file for each in kustomization.get("configMapGenerator", ()) for file in each["files"]
    ]
    there = {path.name for path in (DEPLOY / folder).iterdir()} - {"kustomization.yaml"}
    bases = {each for each in kustomization["resources"] if each.startswith("../")}
    assert all((DEPLOY / folder / each / "kustomization.yaml").exists() for each in bases)
    assert {*kustomization["resources"], *generated} - bases == there


def test_the_role_for_dry_runs_allows_what_is_served() -> None:
    rules = one(DEPLOY / "dry-run" / "rbac.yaml", "ClusterRole")["rules"]
    allowed = {
        (url, verb) for rule in rules for url in rule["nonResourceURLs"] for verb in rule["verbs"]
    }
    assert allowed == {(PATH, "post"), (DOCUMENT_PATH, "get")}


# --- the second scheduler -----------------------------------------------------------------------


@pytest.fixture
def configuration() -> Any:
    return load.load((SECOND / "scheduler.yaml").read_bytes(), Registry(IN_TREE_PLUGINS))


@pytest.fixture
def pod_spec() -> Json:
    deployment = one(SECOND / "deployment.yaml", "Deployment")
    spec: Json = deployment["spec"]["template"]["spec"]
    return spec


def test_its_configuration_is_valid_and_has_two_profiles(configuration: Any) -> None:
    strategies = {
        profile.scheduler_name: args["scoringStrategy"]["type"]
        for profile in yaml_profiles()
        for args in [profile.fit]
    }
    assert strategies == {"spread-out": "LeastAllocated", "bin-packing": "MostAllocated"}
    assert [profile.scheduler_name for profile in configuration.profiles] == list(strategies)


class Profile:
    """A profile as it stands in the file."""

    def __init__(self, written: Json) -> None:
        self.scheduler_name = written["schedulerName"]
        [self.fit] = [
            each["args"] for each in written["pluginConfig"] if each["name"] == "NodeResourcesFit"
        ]


def yaml_profiles() -> list[Profile]:
    document = yaml.safe_load((SECOND / "scheduler.yaml").read_text())
    return [Profile(written) for written in document["profiles"]]


def test_its_lease_is_its_own_and_the_one_that_rbac_grants(configuration: Any) -> None:
    election = configuration.leader_election
    assert election.leader_elect
    assert (election.resource_namespace, election.resource_name) != (
        "kube-system",
        "kube-scheduler",
    )
    role = one(SECOND / "rbac.yaml", "Role")
    assert role["metadata"]["namespace"] == election.resource_namespace
    named = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert named == [[election.resource_name]]


def test_no_renamed_object_shares_its_name_with_the_lease(configuration: Any) -> None:
    """kustomize rewrites resourceNames that equal the name of an object that it renames."""
    kustomization = one(SECOND / "kustomization.yaml", "Kustomization")
    generated = {each["name"] for each in kustomization["configMapGenerator"]}
    assert configuration.leader_election.resource_name not in generated


def test_its_objects_belong_together(pod_spec: Json) -> None:
    account = one(SECOND / "service-account.yaml", "ServiceAccount")["metadata"]
    assert pod_spec["serviceAccountName"] == account["name"]
    for document in documents(SECOND / "rbac.yaml"):
        for subject in document.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) == (account["name"], "proreus")
    deployment = one(SECOND / "deployment.yaml", "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    service = one(DEPLOY / "monitoring" / "service.yaml", "Service")
    assert service["spec"]["selector"].items() <= labels.items()
    monitor = one(DEPLOY / "monitoring" / "service-monitor.yaml", "ServiceMonitor")
    common = one(DEPLOY / "monitoring" / "kustomization.yaml", "Kustomization")["labels"]
    assert monitor["spec"]["selector"]["matchLabels"] == common[0]["pairs"]
    ports = {port["name"] for port in service["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


def test_its_network_policy_selects_its_pods_and_admits_to_its_port(pod_spec: Json) -> None:
    policy = one(SECOND / "network-policy.yaml", "NetworkPolicy")
    template = one(SECOND / "deployment.yaml", "Deployment")["spec"]["template"]["metadata"]
    assert policy["metadata"]["namespace"] == "proreus"
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["labels"].items()
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    [container] = pod_spec["containers"]
    named = {port["name"] for port in container["ports"]}
    for rule in policy["spec"]["ingress"]:
        assert rule["from"], "an empty list admits everybody"
        assert {port["port"] for port in rule["ports"]} <= named


def test_no_rule_grants_everything() -> None:
    for path in MANIFESTS:
        for document in documents(path):
            for rule in document.get("rules", ()):
                granted = [*rule.get("resources", ()), *rule["verbs"], *rule.get("apiGroups", ())]
                assert "*" not in granted
                assert "secrets" not in granted


def test_its_version_is_that_of_the_package() -> None:
    [image] = one(SECOND / "kustomization.yaml", "Kustomization")["images"]
    static = one(DEPLOY / "static-pod" / "kube-scheduler.yaml", "Pod")
    assert image == {"name": "proreus", "newTag": version()}
    assert static["spec"]["containers"][0]["image"] == f"proreus:{version()}"


def containers() -> Iterator[tuple[str, Json, Json]]:
    """Yield (name, pod spec, container) of everything that runs proreus."""
    deployment = one(SECOND / "deployment.yaml", "Deployment")
    controller = one(CONTROLLER / "deployment.yaml", "Deployment")
    static = one(DEPLOY / "static-pod" / "kube-scheduler.yaml", "Pod")
    for name, spec in (
        ("second-scheduler", deployment["spec"]["template"]["spec"]),
        ("static-pod", static["spec"]),
        ("controller", controller["spec"]["template"]["spec"]),
    ):
        [container] = spec["containers"]
        yield name, spec, container


CONTAINERS = [pytest.param(spec, container, id=name) for name, spec, container in containers()]


@pytest.mark.parametrize(("spec", "container"), CONTAINERS[:2])
def test_arguments_are_flags_of_run_and_files_are_mounted(spec: Json, container: Json) -> None:
    subcommand, *arguments = container["args"]
    assert subcommand == command.name
    known = {flag.name: flag for flag in FLAGS}
    short = {flag.short for flag in FLAGS if flag.short}
    mounts = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    for argument in arguments:
        name, _, value = argument.lstrip("-").partition("=")
        assert name in (known if argument.startswith("--") else short)
        if argument.startswith("--"):
            assert known[name].has_effect, f"{argument} does nothing"
        if value.startswith("/"):
            assert any(Path(value).is_relative_to(mount) for mount in mounts), argument


@pytest.mark.parametrize(("spec", "container"), CONTAINERS)
def test_containers_are_confined_probed_and_measured(spec: Json, container: Json) -> None:
    confined = container["securityContext"]
    assert confined["readOnlyRootFilesystem"] is True
    assert confined["allowPrivilegeEscalation"] is False
    assert confined["capabilities"] == {"drop": ["ALL"]}
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["enableServiceLinks"] is False
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, paths in (
        ("startupProbe", ("/readyz", "/livez")),
        ("readinessProbe", ("/readyz",)),
        ("livenessProbe", ("/livez",)),
    ):
        asked = container[probe]["httpGet"]
        assert asked["path"] in paths
        assert asked["scheme"] == "HTTPS"
        assert ports[asked["port"]] == (10269 if container["args"][0] == "controller" else 10259)
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])


def test_the_second_scheduler_is_nobody(pod_spec: Json) -> None:
    assert pod_spec["securityContext"]["runAsNonRoot"] is True
    user = pod_spec["securityContext"]["runAsUser"]
    assert f"USER {user}:{user}\n" in (ROOT / "Dockerfile").read_text()


# --- the only scheduler -------------------------------------------------------------------------


def test_the_only_scheduler_has_the_name_and_the_lease_of_kube_scheduler() -> None:
    folder = DEPLOY / "only-scheduler"
    registry = Registry(IN_TREE_PLUGINS)
    made = load.load((folder / "scheduler.yaml").read_bytes(), registry)
    assert [profile.scheduler_name for profile in made.profiles] == ["default-scheduler"]
    election = made.leader_election
    role = one(folder / "rbac.yaml", "Role")
    [named] = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    lease = (election.resource_namespace, election.resource_name)
    assert lease == ("kube-system", "kube-scheduler")
    assert (role["metadata"]["namespace"], *named) == lease


# --- plugins of one's own -----------------------------------------------------------------------


def test_the_overlay_mounts_the_folder_that_it_names(pod_spec: Json) -> None:
    kustomization = one(WITH_PLUGINS / "kustomization.yaml", "Kustomization")
    [patch] = kustomization["patches"]
    [container] = pod_spec["containers"]
    for step in yaml.safe_load(patch["patch"]):
        assert step["op"] == "add"
        *path, end = step["path"].removeprefix("/spec/template/spec/").split("/")
        assert end == "-"
        target: Any = pod_spec
        for key in path:
            target = target[int(key) if isinstance(target, list) else key]
        target.append(step["value"])
    known = {flag.name for flag in FLAGS}
    flags = dict(argument.lstrip("-").split("=") for argument in container["args"][1:])
    assert flags.keys() - {"v"} <= known
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "plugins"]
    assert mount["mountPath"] == flags["plugin-dir"]
    [volume] = [each for each in pod_spec["volumes"] if each["name"] == "plugins"]
    generated = {each["name"] for each in kustomization["configMapGenerator"]}
    assert volume["configMap"]["name"] in generated


def test_the_overlays_plugin_is_one_and_its_profile_enables_it() -> None:
    loaded_plugins = load_plugins(PluginSources(folders=(str(WITH_PLUGINS),), packages=False))
    assert loaded_plugins.refusals == ()
    written = (WITH_PLUGINS / "scheduler.yaml").read_bytes()
    config = load.load(written, loaded_plugins.registry)
    assert loaded_plugins.problems(config) == []
    assert loaded_plugins.unused(config) == []
    base = load.load((SECOND / "scheduler.yaml").read_bytes(), loaded_plugins.registry)
    assert config.leader_election == base.leader_election


# --- monitoring ---------------------------------------------------------------------------------


APISERVERS = "up", 'job=~"apiserver|kube-apiserver|kubernetes-apiservers"'


def rules() -> Iterator[Mapping[str, Any]]:
    for group in one(DEPLOY / "monitoring" / "rules.yaml", "PrometheusRule")["spec"]["groups"]:
        yield from group["rules"]


@pytest.mark.parametrize("rule", list(rules()), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_metrics_and_labels_that_there_are(rule: Mapping[str, Any]) -> None:
    described = {
        family.description.name: {*family.description.labels, "le"}
        for family in SchedulerMetrics().families()
    } | {"up": set()}
    selectors = re.findall(r"([a-z_]+)\{([^}]*)\}", rule["expr"])
    assert selectors
    for name, matchers in selectors:
        labels = described[name.removesuffix("_bucket")]
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert asked - {"job"} <= labels
        assert 'job="proreus"' in matchers or (name, matchers) == APISERVERS
    for kept in re.findall(r"by \(([^)]*)\)", rule["expr"]):
        of_targets = {"instance", "namespace"}
        assert set(re.split(r",\s*", kept)) <= of_targets.union(*described.values())
    assert rule["expr"].count("(") == rule["expr"].count(")")
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description"} == set(rule["annotations"])


# --- the image and kind -------------------------------------------------------------------------


def test_the_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    result = subprocess.run(
        [str(hadolint), str(ROOT / "Dockerfile")], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_image_gets_all_that_it_copies() -> None:
    """.dockerignore lets through by name; a file that is copied must be among them."""
    let_through = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M)
    sources = {source for line in copied for source in line.split()}
    assert {Path(source).parts[0] for source in sources} == let_through
    assert all((ROOT / source).exists() for source in sources)


def test_kind_has_three_workers_in_three_zones() -> None:
    nodes = one(ROOT / "kind-config.yaml", "Cluster")["nodes"]
    zones = [
        node["labels"]["topology.kubernetes.io/zone"] for node in nodes if node["role"] == "worker"
    ]
    assert len(set(zones)) == len(zones) == 3
    assert [node["role"] for node in nodes].count("control-plane") == 1
