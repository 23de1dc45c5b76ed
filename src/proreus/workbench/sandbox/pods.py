"""Pods: defaulting and validation, and the subresources ``binding`` and ``eviction``.

Only the defaults that schedulers and kubectl read are set; the many others of kube-apiserver would
only make each of 50,000 pods larger.
"""

from typing import Any

from proreus.base.errors import ProreusError
from proreus.objects.codec import decoder_for
from proreus.objects.selectors import LabelSelector, SelectorError, parse_label_selector
from proreus.workbench.sandbox.api_errors import (
    StatusError,
    bad_request,
    conflict,
    invalid,
    too_many_requests,
)
from proreus.workbench.sandbox.collection import StoredObject
from proreus.workbench.sandbox.metadata import uid_conflict
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.store import RegistryStrategy, Store

JsonObject = dict[str, Any]

DEFAULT_SCHEDULER = "default-scheduler"
TERMINAL_PHASES = ("Succeeded", "Failed")
_TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_GATED = "Scheduling is blocked due to non-empty scheduling gates"
_MUTABLE_SPEC = frozenset(
    {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"}
)
_MUTABLE_WHILE_GATED = frozenset({"nodeSelector", "affinity"})


class PodStrategy(RegistryStrategy):
    """Pods: defaults, immutable fields and graceful deletion."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default the spec, resolve the priority, and initialise the status."""
        name = obj["metadata"]["name"]
        spec = obj.get("spec")
        if not isinstance(spec, dict) or not spec.get("containers"):
            raise invalid("", "Pod", name, "spec.containers", "Required value")
        obj["spec"] = spec = dict(spec)
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("schedulerName", DEFAULT_SCHEDULER)
        spec.setdefault("terminationGracePeriodSeconds", 30)
        _resolve_priority(store, name, spec)
        for field in ("containers", "initContainers"):
            if spec.get(field):
                spec[field] = [
                    _default_container(dict(container), bool(spec.get("hostNetwork")))
                    for container in spec[field]
                ]
        _merge_label_keys(obj["metadata"].get("labels") or {}, spec)
        status = obj.setdefault("status", {})
        status.setdefault("phase", "Pending")
        status.setdefault("qosClass", qos_class(spec))
        if spec.get("schedulingGates"):
            if spec.get("nodeName"):
                text = "Forbidden: cannot be set until all schedulingGates have been cleared"
                raise invalid("", "Pod", name, "spec.nodeName", text)
            status.setdefault("conditions", [_gated_condition(store.now())])

    def prepare_update(
        self,
        store: Store,
        served: ServedResource,
        new: JsonObject,
        old: JsonObject,
        subresource: str,
    ) -> None:
        """Reject changes to immutable fields of the spec."""
        if subresource or new.get("spec") == old["spec"]:
            return
        spec, before = new.get("spec") or {}, old["spec"]
        allowed = _MUTABLE_SPEC
        if before.get("schedulingGates"):
            allowed |= _MUTABLE_WHILE_GATED
        gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
        added = [g for g in spec.get("schedulingGates") or () if g["name"] not in gates]
        changed = {
            key
            for key in spec.keys() | before.keys()
            if spec.get(key) != before.get(key) and key not in allowed
        }
        for key in ("containers", "initContainers"):
            if key in changed and _without_image(spec.get(key)) == _without_image(before.get(key)):
                changed.discard(key)
        if changed or added:
            text = (
                "Forbidden: pod updates may not change fields other than `spec.containers[*].image`"
                ",`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
                "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
                "(allow it to be set to 1 if it was previously negative)"
            )
            raise invalid("", "Pod", old["metadata"]["name"], "spec", text)

    def grace_seconds(self, obj: JsonObject, wanted: int | None) -> int:
        """Return the grace period; 0 for a pod that is not bound, or has ended."""
        spec = obj["spec"]
        if not spec.get("nodeName") or obj["status"].get("phase") in TERMINAL_PHASES:
            return 0
        grace = spec.get("terminationGracePeriodSeconds", 30) if wanted is None else wanted
        return max(int(grace), 0)


def bind(store: Store, pods: ServedResource, name: str, namespace: str, binding: Any) -> None:
    """Bind a pod to a node.

    Raises ``StatusError`` 400, 404, 409 or 422, with kube-apiserver's texts.
    """
    if not isinstance(binding, dict):
        raise bad_request("the body of the request is not a Binding")
    target = (binding.get("target") or {}).get("name")
    if not target:
        raise invalid("", "Binding", name, "target.name", "Required value")
    pod = store.get(pods, name, namespace).object()
    metadata, spec, status = pod["metadata"], pod["spec"], pod["status"]
    given = binding.get("metadata") or {}
    uid = given.get("uid")
    if uid and uid != metadata["uid"]:
        raise uid_conflict(pods, name, namespace, uid, metadata["uid"])
    if "deletionTimestamp" in metadata:
        raise _not_bound(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise _not_bound(name, why)
    if spec.get("schedulingGates"):
        raise _not_bound(name, f"pod {name} has non-empty .spec.schedulingGates")
    spec["nodeName"] = target
    status.pop("nominatedNodeName", None)
    if given.get("annotations"):
        metadata["annotations"] = (metadata.get("annotations") or {}) | given["annotations"]
    labels = _topology_of(store, target)
    if labels:
        metadata["labels"] = (metadata.get("labels") or {}) | labels
    set_condition(status, "PodScheduled", "True", store.now())
    store.write(pods, pod)


def _topology_of(store: Store, node: str) -> dict[str, str]:
    """Return the topology labels of a node, which a pod bound to it receives (KEP-4742)."""
    version = store.collection("nodes").get(node)
    if version is None:
        return {}
    return {key: version.labels[key] for key in _TOPOLOGY_LABELS if key in version.labels}


def _not_bound(name: str, why: str) -> StatusError:
    return conflict("pods/binding", name, why)


def set_condition(status: JsonObject, type_: str, value: str, now: str, **more: Any) -> None:
    """Set a condition of a pod, in place; ``lastTransitionTime`` changes only with the value."""
    conditions = status.setdefault("conditions", [])
    fresh = {"type": type_, "status": value, "lastProbeTime": None, "lastTransitionTime": now}
    fresh |= more
    for place, condition in enumerate(conditions):
        if condition["type"] == type_:
            if condition["status"] == value:
                fresh["lastTransitionTime"] = condition.get("lastTransitionTime", now)
            conditions[place] = fresh
            return
    conditions.append(fresh)


def evict(store: Store, pods: ServedResource, name: str, namespace: str, eviction: Any) -> None:
    """Delete a pod, or raise ``StatusError`` 429 if its PodDisruptionBudget does not allow it."""
    if not isinstance(eviction, dict) or eviction.get("kind", "Eviction") != "Eviction":
        raise bad_request("the body of the request is not an Eviction")
    current = store.get(pods, name, namespace)
    options = eviction.get("deleteOptions") or {}
    dry_run = bool(options.get("dryRun"))
    if current.fields[3] not in TERMINAL_PHASES and current.fields[2]:
        budgets = _budgets_of(store, namespace, current)
        if len(budgets) > 1:
            raise StatusError(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource "
                "does not support.",
            )
        if budgets and not dry_run:
            _decrement_disruptions_allowed(store, budgets[0], name)
    store.delete(
        pods,
        name,
        namespace,
        grace_seconds=options.get("gracePeriodSeconds"),
        preconditions=options.get("preconditions"),
        dry_run=dry_run,
    )


def _budgets_of(store: Store, namespace: str, pod: StoredObject) -> list[JsonObject]:
    found = []
    for version in store.list("poddisruptionbudgets.policy", namespace):
        budget = version.object()
        try:
            selector = decoder_for(LabelSelector).convert(budget["spec"].get("selector") or {})
            if parse_label_selector(selector).matches(pod.labels):
                found.append(budget)
        except (SelectorError, ProreusError, KeyError):
            continue
    return found


def _decrement_disruptions_allowed(store: Store, budget: JsonObject, pod_name: str) -> None:
    status = budget.setdefault("status", {})
    name = budget["metadata"]["name"]
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        cause = {
            "reason": "DisruptionBudget",
            "message": f"The disruption budget {name} needs {wanted} healthy pods and has "
            f"{healthy} currently",
        }
        raise too_many_requests(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            10,
            {"causes": [cause]},
        )
    status["disruptionsAllowed"] = allowed - 1
    status.setdefault("disruptedPods", {})[pod_name] = store.now()
    namespace = budget["metadata"]["namespace"]
    store.update("poddisruptionbudgets.policy", budget, namespace, name=name, subresource="status")


def qos_class(spec: JsonObject) -> str:
    """Return the QoS class of a pod: Guaranteed, Burstable or BestEffort."""
    containers = [*spec.get("containers", ()), *(spec.get("initContainers") or ())]
    named, guaranteed = False, True
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for resource in ("cpu", "memory"):
            request, limit = requests.get(resource), limits.get(resource)
            named = named or bool(request or limit)
            guaranteed = guaranteed and limit is not None and request == limit
    if not named:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _default_container(container: JsonObject, host_network: bool) -> JsonObject:
    resources = container.get("resources")
    if resources and resources.get("limits"):
        requests = resources["limits"] | (resources.get("requests") or {})
        container["resources"] = resources | {"requests": requests}
    if container.get("ports"):
        container["ports"] = [_default_port(dict(p), host_network) for p in container["ports"]]
    return container


def _default_port(port: JsonObject, host_network: bool) -> JsonObject:
    port.setdefault("protocol", "TCP")
    if host_network and not port.get("hostPort"):
        port["hostPort"] = port.get("containerPort")
    return port


def _resolve_priority(store: Store, pod_name: str, spec: JsonObject) -> None:
    classes = store.collection("priorityclasses.scheduling.k8s.io")
    class_name = spec.get("priorityClassName")
    found: JsonObject = {}
    if class_name:
        version = classes.get(class_name)
        if version is None:
            why = f"no PriorityClass with name {class_name} was found"
            raise StatusError(
                403,
                "Forbidden",
                f'pods "{pod_name}" is forbidden: {why}',
                {"name": pod_name, "kind": "pods"},
            )
        found = version.object()
    elif len(classes) > 2:  # only the two system classes exist otherwise: nothing to search
        defaults = (v.object() for v in classes.select() if b'"globalDefault":true' in v.data)
        found = max(defaults, key=lambda c: int(c["value"]), default={})
        if found:
            spec["priorityClassName"] = found["metadata"]["name"]
    if found or "priority" not in spec:
        spec["priority"] = found.get("value", 0)
    spec.setdefault("preemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority"))


def _gated_condition(now: str) -> JsonObject:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": _GATED,
    }


def _without_image(containers: Any) -> Any:
    return [
        {key: value for key, value in container.items() if key != "image"}
        for container in containers or ()
    ]


def _merge_label_keys(labels: dict[str, str], spec: JsonObject) -> None:
    """Merge matchLabelKeys and mismatchLabelKeys into the label selectors (KEP-3633, KEP-3243)."""
    for constraint in spec.get("topologySpreadConstraints") or ():
        _add_expressions(constraint, labels, "matchLabelKeys", "In")
    affinity = spec.get("affinity") or {}
    for field in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(field) or {}
        required = terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        preferred = terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        for term in (*required, *(entry.get("podAffinityTerm") or {} for entry in preferred)):
            _add_expressions(term, labels, "matchLabelKeys", "In")
            _add_expressions(term, labels, "mismatchLabelKeys", "NotIn")


def _add_expressions(part: JsonObject, labels: dict[str, str], field: str, operator: str) -> None:
    selector = part.get("labelSelector")
    keys = [key for key in part.get(field) or () if key in labels]
    if selector is None or not keys:
        return
    expressions = [{"key": k, "operator": operator, "values": [labels[k]]} for k in keys]
    existing = selector.get("matchExpressions") or []
    part["labelSelector"] = selector | {
        "matchExpressions": existing + [e for e in expressions if e not in existing]
    }
