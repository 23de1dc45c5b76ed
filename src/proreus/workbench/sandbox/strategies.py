"""The registry strategies (kube-apiserver's term): the rules of each kind at create, update and
delete.

Kinds without a strategy of their own share the plain ``RegistryStrategy``. That of pods is in
``pods``.
"""

import random
from typing import Any, ClassVar

from proreus.workbench.sandbox.api_errors import StatusError, invalid
from proreus.workbench.sandbox.pods import PodStrategy
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.store import RegistryStrategy, Store

JsonObject = dict[str, Any]


_NO_INFO = dict.fromkeys(
    (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ),
    "",
)
"""The required fields of ``status.nodeInfo``, which strict clients expect."""


class NodeStrategy(RegistryStrategy):
    """Nodes keep the status that they are created with; allocatable defaults to capacity."""

    keeps_status_at_create = True

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default spec, allocatable and nodeInfo."""
        obj.setdefault("spec", {})
        status = obj.setdefault("status", {})
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))
        status["nodeInfo"] = _NO_INFO | status.get("nodeInfo", {})

    def prepare_update(
        self,
        store: Store,
        served: ServedResource,
        new: JsonObject,
        old: JsonObject,
        subresource: str,
    ) -> None:
        """Reject a change of ``spec.providerID``, which can be set only once."""
        provider, before = (o.get("spec", {}).get("providerID") for o in (new, old))
        if before and provider != before:
            text = "Forbidden: node updates may not change provider ID"
            raise invalid("", "Node", new["metadata"]["name"], "spec.providerID", text)


class NamespaceStrategy(RegistryStrategy):
    """Namespaces: removing one removes its objects."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Add the label ``kubernetes.io/metadata.name``, which namespace selectors use."""
        metadata = obj["metadata"]
        labels = dict(metadata.get("labels") or {})
        metadata["labels"] = labels | {"kubernetes.io/metadata.name": metadata["name"]}
        obj["status"] = {"phase": "Active"}

    def after_remove(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Remove the objects of the namespace, regardless of finalizers."""
        namespace = obj["metadata"]["name"]
        for resource in list(store.resources):
            if resource.namespaced and not resource.create_only and resource.from_storage is None:
                for version in store.list(resource, namespace):
                    store.remove(resource, version.object())


class ServiceStrategy(RegistryStrategy):
    """Services: a cluster IP and the defaults of ports."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default the type and the ports, and choose a cluster IP at random."""
        spec = obj.setdefault("spec", {})
        spec.setdefault("type", "ClusterIP")
        if spec["type"] != "ExternalName" and not spec.get("clusterIP"):
            low = random.randrange(1, 65535)
            spec["clusterIP"] = f"10.96.{low >> 8}.{low & 255}"
            spec["clusterIPs"] = [spec["clusterIP"]]
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))
        obj["status"] = {"loadBalancer": {}}


class PhaseStrategy(RegistryStrategy):
    """Volumes and claims: a status that starts with a phase."""

    def __init__(self, phase: str) -> None:
        self._phase = phase

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Set the first phase, unless a given status was kept."""
        status = obj.setdefault("status", {})
        status.setdefault("phase", self._phase)
        spec = obj.get("spec")
        if isinstance(spec, dict):
            spec.setdefault("volumeMode", "Filesystem")


class StorageClassStrategy(RegistryStrategy):
    """StorageClasses: two defaults that the volume plugins read."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default the reclaim policy and the binding mode."""
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")


class PriorityClassStrategy(RegistryStrategy):
    """The rule for PriorityClasses: only classes of the system may exceed 1,000,000,000."""

    _highest: ClassVar = 1_000_000_000

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default the preemption policy and validate the value."""
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
        obj.setdefault("value", 0)
        name = obj["metadata"]["name"]
        if obj["value"] > self._highest and not name.startswith("system-"):
            text = f"Forbidden: maximum allowed value of a user defined priority is {self._highest}"
            raise invalid(served.group, served.kind, name, "value", text)


class CustomResourceDefinitionStrategy(RegistryStrategy):
    """CustomResourceDefinitions: their resources are served as long as they exist."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Validate the name, and set the conditions of an established definition."""
        spec, name = obj.get("spec") or {}, obj["metadata"]["name"]
        for field in ("group", "names", "versions"):
            if not spec.get(field):
                raise invalid(served.group, served.kind, name, f"spec.{field}", "Required value")
        names = spec["names"]
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
        wanted = f"{names['plural']}.{spec['group']}"
        if name != wanted:
            text = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
            raise invalid(served.group, served.kind, name, "metadata.name", text)
        now = store.now()
        obj["status"] = {
            "acceptedNames": names,
            "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
            "conditions": [
                {"type": type_, "status": "True", "reason": reason, "lastTransitionTime": now}
                for type_, reason in (
                    ("NamesAccepted", "NoConflicts"),
                    ("Established", "InitialNamesAccepted"),
                )
            ],
        }

    def after_write(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Serve the resource."""
        store.resources.define(obj)

    def after_remove(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Remove the objects of the resource, and stop serving it."""
        name = f"{obj['spec']['names']['plural']}.{obj['spec']['group']}"
        try:
            resource = store.resources.find(name)
        except KeyError:
            return
        for version in store.list(resource):
            store.remove(resource, version.object())
        store.resources.undefine(obj)


class PodDisruptionBudgetStrategy(RegistryStrategy):
    """PodDisruptionBudgets: ``minAvailable`` and ``maxUnavailable`` exclude each other."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Reject a budget that has both."""
        spec = obj.get("spec") or {}
        if "minAvailable" in spec and "maxUnavailable" in spec:
            raise StatusError(
                422,
                "Invalid",
                f'PodDisruptionBudget.policy "{obj["metadata"]["name"]}" is invalid: spec: Invalid '
                "value: minAvailable and maxUnavailable cannot be both set",
            )


class ResourceClaimStrategy(RegistryStrategy):
    """ResourceClaims and their templates: a request is for one device unless it says otherwise."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default the allocation mode and the count of each request."""
        spec = obj.get("spec") or {}
        if served.kind == "ResourceClaimTemplate":
            spec = spec.get("spec") or {}
        for request in (spec.get("devices") or {}).get("requests") or ():
            for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
                if one and one.setdefault("allocationMode", "ExactCount") == "ExactCount":
                    one.setdefault("count", 1)


class DeviceTaintStrategy(RegistryStrategy):
    """ResourceSlices and DeviceTaintRules: a taint begins now unless it says since when."""

    def prepare_create(self, store: Store, served: ServedResource, obj: JsonObject) -> None:
        """Default the time of each taint."""
        spec = obj.get("spec") or {}
        taints = [taint for one in spec.get("devices") or () for taint in one.get("taints") or ()]
        for taint in (*taints, spec.get("taint")):
            if taint:
                taint.setdefault("timeAdded", store.now())


STRATEGIES: dict[tuple[str, str], RegistryStrategy] = {
    ("", ""): RegistryStrategy(),
    ("", "pods"): PodStrategy(),
    ("", "nodes"): NodeStrategy(),
    ("", "namespaces"): NamespaceStrategy(),
    ("", "services"): ServiceStrategy(),
    ("", "persistentvolumes"): PhaseStrategy("Available"),
    ("", "persistentvolumeclaims"): PhaseStrategy("Pending"),
    ("storage.k8s.io", "storageclasses"): StorageClassStrategy(),
    ("scheduling.k8s.io", "priorityclasses"): PriorityClassStrategy(),
    ("apiextensions.k8s.io", "customresourcedefinitions"): CustomResourceDefinitionStrategy(),
    ("resource.k8s.io", "resourceclaims"): ResourceClaimStrategy(),
    ("resource.k8s.io", "resourceclaimtemplates"): ResourceClaimStrategy(),
    ("resource.k8s.io", "resourceslices"): DeviceTaintStrategy(),
    ("resource.k8s.io", "devicetaintrules"): DeviceTaintStrategy(),
    ("policy", "poddisruptionbudgets"): PodDisruptionBudgetStrategy(),
}
"""By (group, plural); ("", "") is for all other kinds."""
