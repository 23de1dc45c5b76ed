"""What the apiserver says of itself: versions, groups, resources."""

from typing import Any

from proreus.sandbox.resources import Resources, ServedResource

JsonObject = dict[str, Any]

KUBERNETES_VERSION = "v1.36.2"

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def describe(resources: Resources, parts: list[str]) -> JsonObject | None:
    """Return the document at a path of discovery, or None when there is none."""
    match parts:
        case [""]:
            return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/openapi/v3", "/version"]}
        case ["version"]:
            return version_info()
        case ["api"]:
            return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in _versions(resources).items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["apis", name]:
            versions = _versions(resources).get(name)
            if versions is None:
                return None
            return {"kind": "APIGroup", "apiVersion": "v1"} | _group(name, versions)
        case ["api", version]:
            return _resource_list(resources, "", version)
        case ["apis", name, version]:
            return _resource_list(resources, name, version)
    return None


def version_info() -> JsonObject:
    """Return what ``/version`` says."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "",
    }


def _versions(resources: Resources) -> dict[str, list[str]]:
    """Return the versions of each named group."""
    found: dict[str, list[str]] = {}
    for group, version in resources.versions():
        if group:
            found.setdefault(group, []).append(version)
    return found


def _group(name: str, versions: list[str]) -> JsonObject:
    # The most stable comes first: v1 before v1beta1 before v1alpha2.
    entries = [
        {"groupVersion": f"{name}/{version}", "version": version}
        for version in sorted(versions, key=lambda v: ("alpha" in v, "beta" in v, v))
    ]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resource_list(resources: Resources, group: str, version: str) -> JsonObject | None:
    served = resources.versions().get((group, version))
    if served is None:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def _entries(served: ServedResource) -> list[JsonObject]:
    entry: JsonObject = {
        "name": served.plural,
        "singularName": served.kind.lower(),
        "namespaced": served.namespaced,
        "kind": served.kind,
        "verbs": _verbs_of(served),
    }
    if served.short_names:
        entry["shortNames"] = list(served.short_names)
    if served.categories:
        entry["categories"] = list(served.categories)
    below = {"singularName": "", "namespaced": served.namespaced}
    entries = [entry]
    if served.status:
        names = {"name": f"{served.plural}/status", "kind": served.kind}
        entries.append(names | below | {"verbs": ["get", "patch", "update"]})
    for subresource in served.subresources:
        names = {"name": f"{served.plural}/{subresource}", "kind": _KINDS.get(subresource, "Pod")}
        posted = subresource in _KINDS
        entries.append(names | below | {"verbs": ["create"] if posted else ["patch", "update"]})
    return entries


def _verbs_of(served: ServedResource) -> list[str]:
    if served.create_only:
        return ["create"]
    return ["get", "list"] if served.read_only else _VERBS


_KINDS = {"binding": "Binding", "eviction": "Eviction"}
