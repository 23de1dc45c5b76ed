"""The form of the what-if page: a pod as YAML, its most common fields, and weights.

A workload stands for a pod of its template.
A field that is empty leaves the pod as its YAML says; ``none`` removes what the YAML has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qs

import msgspec
import yaml

from proreus.base.errors import ProreusError
from proreus.config.types import DEFAULT_SCHEDULER_NAME
from proreus.insight.dry_run.api import MAX_WEIGHT, DryRunSpec, PodItem, ScoreWeight
from proreus.objects.codec import to_plain
from proreus.objects.pod import Pod
from proreus.objects.quantity import parse_quantity

MAX_FORM = 96 * 1024
MAX_YAML = 24 * 1024
"""Characters of a pod. Reading them takes up to half a second."""
MAX_REPLICAS = 100
BEST_NODES = 5
WEIGHT = "weight/"
"""Prefix of the field for a plugin's weight."""
_MAX_FIELDS = 400
# libyaml's is ten times as fast, but lets no other thread run: the event loop would stop for 50 ms.
_LOADER = yaml.SafeLoader
_NONE = "none"

JsonObject: TypeAlias = dict[str, Any]

_EXAMPLE = """\
metadata:
  name: example
spec:
  schedulerName: {}
  containers:
  - name: main
    resources:
      requests:
        cpu: "1"
        memory: 1Gi
"""


class BadField(ProreusError):
    """The text in a field cannot be used; the message names the field."""


def read_form(body: bytes) -> dict[str, str]:
    """Return the fields that are filled in; raises ``BadField``."""
    try:
        fields = parse_qs(
            body.decode(), max_num_fields=_MAX_FIELDS, strict_parsing=bool(body), errors="strict"
        )
    except ValueError:
        raise BadField("This is no form of this page.") from None
    return {name: values[0].replace("\r\n", "\n") for name, values in fields.items()}


def example(profiles: Iterable[str]) -> str:
    """Return a pod of the first profile as YAML."""
    return _EXAMPLE.format(next(iter(profiles)))


def form_of(pod: Pod) -> str:
    """Return a pod as YAML, without parts that no decision depends on: annotations, status, volumes
    of Secrets and ConfigMaps. Env and commands are not in the process.
    """
    plain = to_plain(pod)
    meta = plain.get("metadata", {})
    shown: JsonObject = {
        "metadata": {
            name: meta[name] for name in ("name", "namespace", "labels") if meta.get(name)
        },
        "spec": plain.get("spec", {}),
    }
    if owners := meta.get("ownerReferences"):
        shown["metadata"]["ownerReferences"] = owners
    shown["spec"].pop("nodeName", None)
    volumes = shown["spec"].pop("volumes", ())
    if kept := [one for one in volumes if "secret" not in one and "configMap" not in one]:
        shown["spec"]["volumes"] = kept
    return str(yaml.safe_dump(shown, sort_keys=False))


def read_pod(text: str) -> JsonObject:
    """Return a pod that was typed, as plain data; raises ``BadField``."""
    if len(text) > MAX_YAML:
        raise BadField(f"Pod: more than {MAX_YAML:,} characters")
    try:
        # A few aliases can stand for gigabytes.
        if "&" in text and any(
            isinstance(one, yaml.AliasEvent) for one in yaml.parse(text, Loader=_LOADER)
        ):
            raise BadField("Pod: aliases (*name) are not read")
        data = yaml.load(text, Loader=_LOADER)
        if not isinstance(data, dict):
            raise BadField("Pod: it has to be an object with metadata and spec")
        # As JSON and back: keys are texts then, and times too.
        data = msgspec.json.decode(msgspec.json.encode(data))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        raise BadField(f"Pod: {line}{error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise BadField(f"Pod: {error}") from None
    except (LookupError, AttributeError):
        # PyYAML's own, where a tag is given to a text that has another form.
        raise BadField("Pod: a value does not have the form that its tag (!!) says") from None
    kind = data.get("kind", "Pod")
    if kind != "Pod":
        data = _pod_of_workload(str(kind), data)
    for name in ("metadata", "spec"):
        if not isinstance(data.setdefault(name, {}), dict):
            raise BadField(f"Pod: {name} has to be an object")
    return dict(data)


def _pod_of_workload(kind: str, workload: JsonObject) -> JsonObject:
    """Return a pod of a workload's template; raises ``BadField`` if there is none."""
    try:
        spec = workload["spec"]
        template = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]
        meta = workload.get("metadata") or {}
        named = {name: meta[name] for name in ("name", "namespace") if name in meta}
        return {"metadata": {**named, **(template.get("metadata") or {})}, "spec": template["spec"]}
    except (KeyError, TypeError, AttributeError):
        raise BadField(f"Pod: this {kind} has no template of pods") from None


def with_profile(pod: JsonObject, profiles: Collection[str]) -> tuple[JsonObject, str]:
    """Return a pod that names a profile, and a note if the profile was chosen for it.

    A pod that names none gets the apiserver's default, or else the first profile. Raises
    ``BadField`` for a profile that is not there.
    """
    name = pod["spec"].get("schedulerName")
    if isinstance(name, str) and name and name not in profiles:
        raise BadField(
            f"Pod: spec.schedulerName: no profile is named {name}; there are {', '.join(profiles)}"
        )
    if name or DEFAULT_SCHEDULER_NAME in profiles:
        return pod, ""
    first = next(iter(profiles))
    note = f"The pod names no scheduler. The answer is for the profile {first}."
    return {**pod, "spec": {**pod["spec"], "schedulerName": first}}, note


def changed_pod(pod: JsonObject, fields: Mapping[str, str]) -> JsonObject:
    """Return a pod with the values of the common fields; raise ``BadField``."""
    pod = msgspec.json.decode(msgspec.json.encode(pod))
    spec = pod["spec"]
    for resource in ("cpu", "memory"):
        if text := fields.get(resource, "").strip():
            requests = _requests(spec)
            requests.pop(resource, None)
            if text != _NONE:
                requests[resource] = _quantity(resource, text)
    if text := fields.get("selector", "").strip():
        spec["nodeSelector"] = {} if text == _NONE else dict(map(_label, _parts(text)))
    if text := fields.get("tolerations", "").strip():
        spec["tolerations"] = [] if text == _NONE else [_toleration(one) for one in _parts(text)]
    return dict(pod)


def replicas(fields: Mapping[str, str]) -> int:
    """Return how many pods are asked about; raises ``BadField``."""
    return _whole("Replicas", fields.get("replicas", "").strip() or "1", 1, MAX_REPLICAS)


def weights(fields: Mapping[str, str], scheduler_name: str) -> tuple[ScoreWeight, ...]:
    """Return the weights that were typed; raises ``BadField``."""
    found = []
    for name, text in fields.items():
        if name.startswith(WEIGHT) and text.strip():
            plugin = name.removeprefix(WEIGHT)
            weight = _whole(f"Weight of {plugin}", text.strip(), 0, MAX_WEIGHT)
            found.append(ScoreWeight(plugin=plugin, weight=weight, scheduler_name=scheduler_name))
    return tuple(found)


def question(
    pod: JsonObject, count: int = 1, score_weights: tuple[ScoreWeight, ...] = ()
) -> DryRunSpec:
    """Return the question to the engine about a pod and its replicas."""
    item = PodItem(pod=msgspec.Raw(msgspec.json.encode(pod)), count=count)
    return DryRunSpec(pods=(item,), score_weights=score_weights, best_nodes=BEST_NODES)


def scheduler_name_of(pod: JsonObject) -> str:
    """Return the name of the profile that a pod asks for."""
    return str(pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER_NAME)


def _requests(spec: JsonObject) -> JsonObject:
    """Return the requests of the first container, where the common fields go."""
    try:
        container = spec["containers"][0]
        resources = container.setdefault("resources", {})
        requests = resources.setdefault("requests", {})
        if isinstance(requests, dict):
            return requests
    except (KeyError, IndexError, TypeError, AttributeError):
        pass
    raise BadField("Pod: spec.containers[0] has to be a container for its requests to change")


def _quantity(resource: str, text: str) -> str:
    try:
        if parse_quantity(text) < 0:
            raise ValueError("less than nothing")
    except ValueError as error:
        raise BadField(f"Requested {resource}: {error}") from None
    return text


def _whole(field: str, text: str, least: int, most: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= most:
        return int(text)
    raise BadField(f"{field}: {text[:40]!r} is no whole number from {least} to {most:,}")


def _parts(text: str) -> list[str]:
    return [part for one in text.replace("\n", ",").split(",") if (part := one.strip())]


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise BadField(f"Node selector: {text[:80]!r} is not key=value")
    return key, value


def _toleration(text: str) -> JsonObject:
    """Return the toleration of ``key=value:Effect``, ``key:Effect``, ``key`` or ``*``."""
    taint, colon, effect = text.rpartition(":")
    if not colon:
        taint, effect = text, ""
    if effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise BadField(f"Tolerations: {effect[:40]!r} is no effect, such as NoSchedule")
    key, equals, value = taint.partition("=")
    if not key:
        raise BadField(f"Tolerations: {text[:80]!r} is not key=value:Effect")
    if key == "*":
        key = ""
    operator = "Equal" if equals else "Exists"
    made = {"key": key, "operator": operator, "value": value, "effect": effect}
    return {name: one for name, one in made.items() if one}
