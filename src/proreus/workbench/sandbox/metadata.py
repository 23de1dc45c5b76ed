"""Object metadata: the apiserver sets some fields, and keeps clients from changing others."""

import random
import uuid
from typing import Any

from proreus.workbench.sandbox.api_errors import bad_request, conflict, invalid, modified
from proreus.workbench.sandbox.resources import ServedResource

JsonObject = dict[str, Any]

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "namespace",
    "name",
    "generateName",
)
_ABSENT: tuple[Any, ...] = (None, {}, [])
"""Values that Go's ``omitempty`` does not encode, so they are not stored either."""


def new_uid() -> str:
    """Return a random UID. ``uuid4`` would cost a system call for each."""
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def generate_name(prefix: str) -> str:
    """Return the prefix with five random characters appended, as ``generateName`` specifies."""
    return prefix + "".join(random.choices(_SUFFIX_LETTERS, k=5))


def check_type(resource: ServedResource, obj: Any) -> JsonObject:
    """Return the object with ``kind`` and ``apiVersion`` set.

    Raises ``StatusError`` 400 if the body is not an object of this kind and version.
    """
    if not isinstance(obj, dict):
        raise bad_request("the body of the request is not an object")
    for key, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        if obj.get(key, expected) != expected:
            raise bad_request(
                f"{obj.get('kind')} in version {obj.get('apiVersion')!r} cannot be handled as a "
                f"{resource.kind} of {resource.api_version}"
            )
    if not isinstance(obj.get("metadata") or {}, dict):
        raise bad_request("metadata is not an object")
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}


def prepare_create(
    resource: ServedResource, obj: JsonObject, namespace: str, now: str
) -> JsonObject:
    """Return the metadata of a new object; raises ``StatusError`` 400 or 422."""
    given = obj.get("metadata") or {}
    metadata = {key: value for key, value in given.items() if value not in _ABSENT}
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    name = metadata.get("name")
    if not name:
        prefix = metadata.get("generateName")
        if not prefix:
            required = "Required value: name or generateName is required"
            raise invalid(resource.group, resource.kind, "", "metadata.name", required)
        metadata["name"] = name = generate_name(prefix)
    if not isinstance(name, str) or "/" in name:
        raise invalid(
            resource.group,
            resource.kind,
            str(name),
            "metadata.name",
            f'Invalid value: "{name}": may not hold "/"',
        )
    if resource.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"):
        metadata.pop(key, None)
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now
    metadata["generation"] = 1
    return metadata


def prepare_update(resource: ServedResource, metadata: JsonObject, old: JsonObject) -> JsonObject:
    """Return the metadata of an updated object; raises ``StatusError`` 400 or 409."""
    name = old["name"]
    if metadata.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    check_preconditions(resource, metadata, old)
    kept = {
        key: value
        for key, value in metadata.items()
        if key not in _SYSTEM_FIELDS and key != "managedFields" and value not in _ABSENT
    }
    return {**kept, **{key: old[key] for key in _SYSTEM_FIELDS if key in old}}


def check_preconditions(resource: ServedResource, wanted: JsonObject, old: JsonObject) -> None:
    """Raise ``StatusError`` 409 unless uid and resourceVersion match, where ``wanted`` has them."""
    name = old["name"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != old["uid"]:
        raise uid_conflict(resource, name, old.get("namespace", ""), uid, old["uid"])
    if version and version != old["resourceVersion"]:
        raise modified(resource.name, name)


def should_delete_during_update(metadata: JsonObject) -> bool:
    """Return whether an update removed the last finalizer of an object marked for deletion."""
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


def spec_changed(new: JsonObject, old: JsonObject) -> bool:
    """Return whether more than metadata and status changed, which makes a new generation."""
    keys = (new.keys() | old.keys()) - {"metadata", "status"}
    return any(new.get(key) != old.get(key) for key in keys)


def uid_conflict(
    resource: ServedResource, name: str, namespace: str, wanted: str, found: str
) -> Exception:
    """Return a 409 for a UID precondition that failed, with kube-apiserver's text."""
    key = "/".join(filter(None, ("/registry", resource.plural, namespace, name)))
    return conflict(
        resource.name,
        name,
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, "
        f"UID in object meta: {found}",
    )
