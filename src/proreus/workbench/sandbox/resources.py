"""The table of served resources.

A ``ServedResource`` is one (group, version, plural). Several may share their storage: Events are
stored once and served as ``v1`` and as ``events.k8s.io/v1``, and a custom resource may have several
versions. Custom resources come and go with their definitions, so the table can change.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proreus.objects.meta import Resource
from proreus.workbench.sandbox import conversions
from proreus.workbench.sandbox.api_errors import path_not_found

JsonObject = dict[str, Any]
Conversion = Callable[[JsonObject], JsonObject]
StorageKey = tuple[str, str]


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

    def shown(self, stored: JsonObject) -> JsonObject:
        """Convert an object from the version that is stored."""
        return stored if self.from_storage is None else self.from_storage(stored)


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
_LINES = Path(__file__).with_name("kinds.txt").read_text().splitlines()
_KINDS = [line for line in _LINES if not line.startswith("#")]
_MORE: dict[tuple[str, str], dict[str, Any]] = {
    ("v1", "pods"): {
        "subresources": ("binding", "eviction", "ephemeralcontainers", "resize"),
        "fields": POD_FIELDS,
    },
    ("v1", "nodes"): {"fields": ("spec.unschedulable",)},
    ("v1", "namespaces"): {"fields": ("status.phase",)},
    ("v1", "services"): {"fields": ("spec.clusterIP", "spec.type")},
    ("v1", "replicationcontrollers"): {"fields": ("status.replicas",)},
    ("v1", "secrets"): {"fields": ("type",)},
    ("v1", "events"): {
        "fields": conversions.EVENT_FIELDS,
        "storage": (conversions.EVENT_GROUP, "events"),
        "to_storage": conversions.from_core,
        "from_storage": conversions.to_core,
    },
    ("events.k8s.io/v1", "events"): {"fields": conversions.EVENT_FIELDS},
    ("resource.k8s.io/v1", "resourceclaims"): {"subresources": ("binding",)},
    ("resource.k8s.io/v1", "resourceslices"): {"fields": ("spec.nodeName", "spec.driver")},
    ("scheduling.k8s.io/v1alpha2", "podgroups"): {
        "to_storage": conversions.from_v1alpha2,
        "from_storage": conversions.to_v1alpha2,
    },
    ("scheduling.k8s.io/v1alpha3", "compositepodgroups"): {
        "to_storage": conversions.from_v1alpha3,
        "from_storage": conversions.to_v1alpha3,
    },
}


def _built_in(line: str) -> ServedResource:
    """Return the resource of a line of ``_KINDS``."""
    api_version, plural, kind, short_names, *properties = line.split()
    group, _, version = api_version.rpartition("/")
    return ServedResource(
        group,
        version,
        plural,
        kind,
        namespaced="cluster" not in properties,
        short_names=() if short_names == "-" else tuple(short_names.split(",")),
        status="no-status" not in properties,
        categories=("all",) if "all" in properties else (),
        create_only="create" in properties,
        read_only="read" in properties,
        **_MORE.get((api_version, plural), {}),
    )


class Resources:
    """All served resources, by path and by name."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], ServedResource] = {}
        for resource in map(_built_in, _KINDS):
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

    def find(self, resource: "ServedResource | Resource[Any] | str") -> ServedResource:
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
