"""The table of served resources.

A ``ServedResource`` is one (group, version, plural). Several may share their storage: Events are
stored once and served as ``v1`` and as ``events.k8s.io/v1``, and a custom resource may have several
versions. Custom resources come and go with their definitions, so the table can change.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from proreus.workbench.sandbox import event_conversion, pod_group_conversion
from proreus.workbench.sandbox.api_errors import path_not_found

JsonObject = dict[str, Any]
Conversion = Callable[[JsonObject], JsonObject]
StorageKey = tuple[str, str]


class GroupVersionResource(Protocol):
    """The names of a resource; ``objects.meta.Resource`` satisfies it."""

    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def plural(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """A served resource.

    ``fields``: dotted paths that field selectors may name, in addition to metadata.name and
    metadata.namespace. ``status``: it has the subresource ``status``. ``storage``: the collection
    that stores its objects, if it is another resource's; ``to_storage`` and ``from_storage``
    convert to and from the stored version. ``create_only``: evaluated, never stored (reviews).
    ``read_only``: computed from other objects on each request (metrics). ``columns``: the
    additionalPrinterColumns of a custom resource.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    status: bool = True
    subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage: StorageKey = ("", "")
    to_storage: Conversion | None = None
    from_storage: Conversion | None = None
    create_only: bool = False
    read_only: bool = False
    custom: bool = False
    columns: tuple[JsonObject, ...] = ()

    @property
    def api_version(self) -> str:
        """``group/version``, or the version alone in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """``plural.group``, as in error messages; the plural alone in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_key(self) -> StorageKey:
        """The (group, plural) of the collection that stores its objects."""
        return self.storage if self.storage != ("", "") else (self.group, self.plural)


POD_FIELDS = (
    "spec.nodeName",
    "status.phase",
    "spec.schedulerName",
    "status.nominatedNodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "status.podIP",
    "spec.hostNetwork",
)
_EVENT_STORAGE = (event_conversion.GROUP, "events")


def _core() -> Iterator[ServedResource]:
    def core(plural: str, kind: str, *short: str, **more: Any) -> ServedResource:
        return ServedResource("", "v1", plural, kind, short_names=short, **more)

    yield core(
        "pods",
        "Pod",
        "po",
        subresources=("binding", "eviction", "ephemeralcontainers", "resize"),
        fields=POD_FIELDS,
        categories=("all",),
    )
    yield core("nodes", "Node", "no", namespaced=False, fields=("spec.unschedulable",))
    yield core("namespaces", "Namespace", "ns", namespaced=False, fields=("status.phase",))
    yield core("services", "Service", "svc", fields=("spec.clusterIP", "spec.type"))
    yield core("replicationcontrollers", "ReplicationController", "rc", fields=("status.replicas",))
    yield core("persistentvolumes", "PersistentVolume", "pv", namespaced=False)
    yield core("persistentvolumeclaims", "PersistentVolumeClaim", "pvc")
    yield core("configmaps", "ConfigMap", "cm", status=False)
    yield core("secrets", "Secret", status=False, fields=("type",))
    yield core("serviceaccounts", "ServiceAccount", "sa", status=False)
    yield core("endpoints", "Endpoints", "ep", status=False)
    yield core("limitranges", "LimitRange", "limits", status=False)
    yield core("resourcequotas", "ResourceQuota", "quota")
    yield core("bindings", "Binding", status=False, create_only=True)
    yield core(
        "events",
        "Event",
        "ev",
        status=False,
        fields=event_conversion.FIELDS,
        storage=_EVENT_STORAGE,
        to_storage=event_conversion.from_core,
        from_storage=event_conversion.to_core,
    )


def _groups() -> Iterator[ServedResource]:
    yield ServedResource(
        event_conversion.GROUP,
        "v1",
        "events",
        "Event",
        True,
        ("ev",),
        False,
        fields=event_conversion.FIELDS,
    )
    workloads = ("all",)
    for plural, kind, short in (
        ("deployments", "Deployment", "deploy"),
        ("replicasets", "ReplicaSet", "rs"),
        ("statefulsets", "StatefulSet", "sts"),
        ("daemonsets", "DaemonSet", "ds"),
    ):
        yield ServedResource("apps", "v1", plural, kind, True, (short,), categories=workloads)
    yield ServedResource("batch", "v1", "jobs", "Job", categories=workloads)
    yield ServedResource(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True, ("pdb",)
    )
    storage = "storage.k8s.io"
    yield ServedResource(storage, "v1", "storageclasses", "StorageClass", False, ("sc",), False)
    yield ServedResource(storage, "v1", "csinodes", "CSINode", False, (), False)
    yield ServedResource(storage, "v1", "csidrivers", "CSIDriver", False, (), False)
    yield ServedResource(
        storage, "v1", "csistoragecapacities", "CSIStorageCapacity", True, (), False
    )
    yield ServedResource(storage, "v1", "volumeattachments", "VolumeAttachment", False)
    yield ServedResource(
        storage, "v1", "volumeattributesclasses", "VolumeAttributesClass", False, ("vac",), False
    )
    dra = "resource.k8s.io"
    yield ServedResource(dra, "v1", "resourceclaims", "ResourceClaim", subresources=("binding",))
    yield ServedResource(dra, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", status=False)
    yield ServedResource(
        dra,
        "v1",
        "resourceslices",
        "ResourceSlice",
        False,
        (),
        False,
        fields=("spec.nodeName", "spec.driver"),
    )
    yield ServedResource(dra, "v1", "deviceclasses", "DeviceClass", False, (), False)
    yield ServedResource("coordination.k8s.io", "v1", "leases", "Lease", status=False)
    scheduling = pod_group_conversion.GROUP
    yield ServedResource(
        scheduling, "v1", "priorityclasses", "PriorityClass", False, ("pc",), False
    )
    # Both versions, for schedulers that emulate either Kubernetes version.
    yield ServedResource(scheduling, "v1beta1", "podgroups", "PodGroup")
    yield ServedResource(
        scheduling,
        "v1alpha2",
        "podgroups",
        "PodGroup",
        to_storage=pod_group_conversion.from_v1alpha2,
        from_storage=pod_group_conversion.to_v1alpha2,
    )
    yield ServedResource(scheduling, "v1alpha3", "compositepodgroups", "CompositePodGroup")
    yield ServedResource(scheduling, "v1alpha2", "workloads", "Workload")
    yield ServedResource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        False,
        ("crd", "crds"),
    )
    yield ServedResource(
        "authentication.k8s.io",
        "v1",
        "tokenreviews",
        "TokenReview",
        False,
        (),
        False,
        create_only=True,
    )
    authorization = "authorization.k8s.io"
    for plural, kind in (
        ("subjectaccessreviews", "SubjectAccessReview"),
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    ):
        yield ServedResource(authorization, "v1", plural, kind, False, (), False, create_only=True)
    metrics = "metrics.k8s.io"
    yield ServedResource(
        metrics, "v1beta1", "nodes", "NodeMetrics", False, (), False, read_only=True
    )
    yield ServedResource(metrics, "v1beta1", "pods", "PodMetrics", True, (), False, read_only=True)


class Resources:
    """All served resources, by path and by name."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], ServedResource] = {}
        for resource in (*_core(), *_groups()):
            self._served[resource.group, resource.version, resource.plural] = resource
        self._by_name: dict[str, ServedResource] = {}
        self._name_all()

    def _name_all(self) -> None:
        """Index the resources by name; the first served version of a resource has the name."""
        self._by_name.clear()
        for resource in self._served.values():
            self._by_name.setdefault(resource.name, resource)

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(self._served.values())

    def at(self, group: str, version: str, plural: str) -> ServedResource:
        """Return the resource served under a path; raises ``StatusError`` 404."""
        try:
            return self._served[group, version, plural]
        except KeyError:
            raise path_not_found() from None

    def find(self, resource: "ServedResource | GroupVersionResource | str") -> ServedResource:
        """Return a resource by ``plural``, ``plural.group`` or any object that names it.

        Raises ``KeyError`` when it is not served.
        """
        if isinstance(resource, ServedResource):
            return resource
        if isinstance(resource, str):
            if resource not in self._by_name:
                raise KeyError(f"no resource {resource!r} is served")
            return self._by_name[resource]
        return self._served[resource.group, resource.version, resource.plural]

    def versions(self) -> dict[tuple[str, str], list[ServedResource]]:
        """Return the resources of each (group, version), in the order of their registration."""
        versions: dict[tuple[str, str], list[ServedResource]] = {}
        for resource in self._served.values():
            versions.setdefault((resource.group, resource.version), []).append(resource)
        return versions

    def define(self, definition: JsonObject) -> None:
        """Serve the versions of a CustomResourceDefinition, in place of an earlier state of it."""
        self.undefine(definition)
        for resource in resources_of_crd(definition):
            self._served[resource.group, resource.version, resource.plural] = resource
        self._name_all()

    def undefine(self, definition: JsonObject) -> None:
        """Stop serving the versions of a CustomResourceDefinition."""
        spec = definition["spec"]
        gone = [
            key
            for key, resource in self._served.items()
            if resource.custom and key[0] == spec["group"] and key[2] == spec["names"]["plural"]
        ]
        for key in gone:
            del self._served[key]
        self._name_all()


def resources_of_crd(definition: JsonObject) -> list[ServedResource]:
    """Return one resource for each served version of a CustomResourceDefinition."""
    spec = definition["spec"]
    names = spec["names"]
    group = spec["group"]
    stored = next((v["name"] for v in spec["versions"] if v.get("storage")), "")
    template = ServedResource(
        group,
        "",
        names["plural"],
        names["kind"],
        spec.get("scope", "Namespaced") == "Namespaced",
        tuple(names.get("shortNames") or ()),
        custom=True,
        categories=tuple(names.get("categories") or ()),
    )
    found = []
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        name = version["name"]
        other = name != stored
        found.append(
            replace(
                template,
                version=name,
                status="status" in subresources,
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                to_storage=_to_version(f"{group}/{stored}") if other else None,
                from_storage=_to_version(f"{group}/{name}") if other else None,
            )
        )
    return found


def _to_version(api_version: str) -> Conversion:
    """Return a conversion that sets the apiVersion, as conversion strategy ``None`` does."""

    def convert(obj: JsonObject) -> JsonObject:
        return obj | {"apiVersion": api_version}

    return convert
