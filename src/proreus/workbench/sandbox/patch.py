"""JSON merge patch (RFC 7386) and strategic merge patch.

Both are pure functions: the given object is not altered, and the result shares its unchanged parts.
Strategic merge has the merge keys of the lists in pods, nodes and workloads; other lists are
replaced, as kube-apiserver does with lists that have no merge key.
"""

from typing import Any

from proreus.objects.merge_patch import merge_patch
from proreus.workbench.sandbox.api_errors import bad_request, unsupported_media_type

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

JsonObject = dict[str, Any]

_KEYS_OF_LISTS = """
    conditions:type containers:name initContainers:name ephemeralContainers:name volumes:name
    env:name volumeMounts:mountPath volumeDevices:devicePath imagePullSecrets:name secrets:name
    hostAliases:ip topologySpreadConstraints:topologyKey volumesAttached:name schedulingGates:name
    resourceClaims:name resourceClaimStatuses:name ownerReferences:uid addresses:type podIPs:ip
    hostIPs:ip
"""
_MERGE_KEYS = dict(pair.split(":") for pair in _KEYS_OF_LISTS.split())
"""Lists of objects that are merged by key. That of ``ports`` depends on its items (``_key_of``);
taints and tolerations have no merge key in the API, so they are replaced."""
_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of values that are merged as sets."""


def apply_patch(content_type: str, obj: JsonObject, patch: Any, custom: bool) -> JsonObject:
    """Return the patched object; raises ``StatusError`` 400 or 415.

    ``custom``: the object is a custom resource, which has no strategic merge.
    """
    if not isinstance(patch, dict):
        raise bad_request("the patch is not an object")
    if content_type == MERGE_PATCH:
        merged: JsonObject = merge_patch(obj, patch)
        return merged
    if content_type == STRATEGIC_MERGE_PATCH and not custom:
        return merge_strategically(obj, patch)
    accepted = [MERGE_PATCH] if custom else [MERGE_PATCH, STRATEGIC_MERGE_PATCH]
    raise unsupported_media_type(content_type, ", ".join(accepted))


def merge_strategically(obj: JsonObject, patch: JsonObject) -> JsonObject:
    """Return an object, or a part of one, with a strategic merge patch applied."""
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    merged = dict(obj)
    for key in patch.get("$retainKeys", ()) and list(merged):
        if key not in patch["$retainKeys"]:
            del merged[key]
    for key, value in patch.items():
        if key.startswith("$"):
            _apply_directive(merged, key, value)
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            old = merged.get(key)
            merged[key] = merge_strategically(old if isinstance(old, dict) else {}, value)
        elif isinstance(value, list):
            merged[key] = _merge_list(key, merged.get(key) or [], value)
        else:
            merged[key] = value
    return merged


def _apply_directive(merged: JsonObject, key: str, value: Any) -> None:
    """Apply ``$deleteFromPrimitiveList`` in place; ``$setElementOrder`` is ignored."""
    if key.startswith("$deleteFromPrimitiveList/"):
        field = key.partition("/")[2]
        merged[field] = [item for item in merged.get(field) or [] if item not in value]


def _key_of(field: str, items: list[Any]) -> str:
    if field == "ports":
        return "containerPort" if any("containerPort" in item for item in items) else "port"
    return _MERGE_KEYS.get(field, "")


def _merge_list(field: str, old: list[Any], patch: list[Any]) -> list[Any]:
    if not all(isinstance(item, dict) for item in patch):
        if field in _SETS:
            return old + [item for item in patch if item not in old]
        return patch
    key = _key_of(field, patch)
    if not key or any(item.get("$patch") == "replace" for item in patch):
        return [item for item in patch if "$patch" not in item]
    merged = list(old)
    places = {item.get(key): place for place, item in enumerate(merged)}
    gone = set()
    for item in patch:
        identity = item.get(key)
        if identity is None:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        place = places.get(identity)
        if item.get("$patch") == "delete":
            gone.add(identity)
        elif place is not None:
            merged[place] = merge_strategically(merged[place], item)
        else:
            places[identity] = len(merged)
            merged.append(merge_strategically({}, item))
    return [item for item in merged if item.get(key) not in gone]
