"""JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.

All are pure functions: the given object is not altered, and the result shares its unchanged parts.
Strategic merge has the merge keys of the lists in pods, nodes and workloads; other lists are
replaced, as kube-apiserver does with lists that have no merge key.
"""

import copy
from typing import Any

from proreus.objects.merge_patch import merge_patch
from proreus.workbench.sandbox.api_errors import StatusError, bad_request, unsupported_media_type

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

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
    """Return the patched object; raises ``StatusError`` 400, 415 or 422.

    ``custom``: the object is a custom resource, which has no strategic merge.
    """
    if content_type == JSON_PATCH:
        return apply_json_patch(obj, patch)
    if not isinstance(patch, dict):
        raise bad_request("the patch is not an object")
    if content_type == MERGE_PATCH:
        return _merge_object(obj, patch)
    if content_type == STRATEGIC_MERGE_PATCH and not custom:
        return merge_strategically(obj, patch)
    if content_type.startswith("application/apply-patch"):
        # Field ownership is not tracked, so a field that an apply omits stays as it is.
        return _merge_object(obj, patch) if custom else merge_strategically(obj, patch)
    accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    if not custom:
        accepted.insert(2, STRATEGIC_MERGE_PATCH)
    raise unsupported_media_type(content_type, ", ".join(accepted))


def _merge_object(obj: JsonObject, patch: JsonObject) -> JsonObject:
    merged: JsonObject = merge_patch(obj, patch)
    return merged


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


def apply_json_patch(obj: JsonObject, patch: Any) -> JsonObject:
    """Return the object with a JSON patch applied.

    Raises ``StatusError`` 400 if it is no patch, 422 if it cannot be applied to the object.
    """
    if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
        raise bad_request("a JSON patch is a list of operations")
    root = {"": copy.deepcopy(obj)}
    for step in patch:
        try:
            _apply_step(root, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise StatusError(
                422,
                "Invalid",
                f"the server rejected our request due to an error in our request: operation "
                f"{step.get('op')!r} at {step.get('path')!r}: {error!r}",
            ) from None
    patched: JsonObject = root[""]
    return patched


def _apply_step(root: JsonObject, step: JsonObject) -> None:
    operation, path = step["op"], _pointer(step["path"])
    match operation:
        case "add":
            _put(root, path, step["value"], insert=True)
        case "replace":
            _find(root, path)
            _put(root, path, step["value"], insert=False)
        case "remove":
            _take(root, path)
        case "move":
            _put(root, path, _take(root, _pointer(step["from"])), insert=True)
        case "copy":
            value = copy.deepcopy(_find(root, _pointer(step["from"])))
            _put(root, path, value, insert=True)
        case "test":
            if _find(root, path) != step["value"]:
                raise ValueError("testing value failed")
        case _:
            raise ValueError("unknown operation")


def _pointer(text: str) -> list[str]:
    """Split a JSON pointer; the first part is the root itself."""
    if text and not text.startswith("/"):
        raise ValueError("a path starts with /")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")]


def _find(root: Any, path: list[str]) -> Any:
    for part in path:
        root = root[int(part)] if isinstance(root, list) else root[part]
    return root


def _put(root: Any, path: list[str], value: Any, insert: bool) -> None:
    parent, last = _find(root, path[:-1]), path[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif last == "-":
        parent.append(value)
    elif insert:
        if not 0 <= int(last) <= len(parent):
            raise IndexError(last)
        parent.insert(int(last), value)
    else:
        parent[int(last)] = value


def _take(root: Any, path: list[str]) -> Any:
    parent, last = _find(root, path[:-1]), path[-1]
    return parent.pop(int(last)) if isinstance(parent, list) else parent.pop(last)
