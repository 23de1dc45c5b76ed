"""Parsing of requests: the object that a path names, the body, selectors and options.

Paths are split by hand: matching against hundreds of routes would cost more than most verbs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from proreus.base import yaml_limits
from proreus.workbench.sandbox import protobuf
from proreus.workbench.sandbox.api_errors import (
    bad_request,
    invalid,
    path_not_found,
    unsupported_media_type,
)
from proreus.workbench.sandbox.collection import decode_json, field_labels
from proreus.workbench.sandbox.lists import parse_revision
from proreus.workbench.sandbox.resources import Resources, ServedResource
from proreus.workbench.sandbox.selectors import ALL, SelectionPredicate, parse_selector

JsonObject = dict[str, Any]

JSON = "application/json"


@dataclass(slots=True)
class ApiRequest:
    """An HTTP request; ``headers`` must be a mapping that ignores case, as aiohttp's does."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(slots=True)
class RequestInfo:
    """The resource, and perhaps the object, that a path names (client-go's RequestInfo).

    ``namespace`` is None for all namespaces, ``name`` empty for a collection.
    """

    served: ServedResource
    namespace: str | None
    name: str = ""
    subresource: str = ""


def request_info_of(resources: Resources, parts: list[str]) -> RequestInfo | None:
    """Return the object of a path, or None for a path that is not below a group version.

    ``parts``: the path's segments. Raises ``StatusError`` 404 if the resource is not served.
    """
    if parts[0] == "api" and len(parts) > 2 and parts[1] == "v1":
        group, version, rest = "", "v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    served = resources.at(group, version, rest[0])
    if len(rest) > 3 or (namespace is not None and not served.namespaced):
        raise path_not_found()
    name = rest[1] if len(rest) > 1 else ""
    if name and served.namespaced and namespace is None:
        raise path_not_found()
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and not (
        subresource in served.subresources
        or (subresource == "status" and served.status)
        or (subresource == "finalize" and served.plural == "namespaces")
    ):
        raise path_not_found()
    return RequestInfo(served, namespace, name, subresource)


def selector_of(served: ServedResource, query: Mapping[str, str]) -> SelectionPredicate:
    """Return the label and field selectors of a query; raises ``StatusError`` 400."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return ALL
    return parse_selector(labels, fields, field_labels(served.fields))


def check_watch_list(query: Mapping[str, str], bookmarks: bool) -> None:
    """Raise ``StatusError`` 422 for a WatchList that kube-apiserver rejects (KEP-3157)."""
    if query.get("resourceVersionMatch") != "NotOlderThan":
        text = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise invalid("meta.k8s.io", "ListOptions", "", "resourceVersionMatch", text)
    if not bookmarks:
        text = "Forbidden: sendInitialEvents is forbidden for watch without allowWatchBookmarks"
        raise invalid("meta.k8s.io", "ListOptions", "", "sendInitialEvents", text)


def decode_body(request: ApiRequest, content_type: str = "") -> Any:
    """Return the decoded body: JSON, YAML, or some protobuf; raises ``StatusError`` 400 or 415."""
    content_type = content_type or request.headers.get("Content-Type", JSON)
    if content_type.startswith(protobuf.MEDIA_TYPE):
        return protobuf.decode(request.body)
    if "cbor" in content_type:
        raise unsupported_media_type(content_type, f"{JSON}, application/yaml")
    try:
        return decode_json(request.body)
    except msgspec.DecodeError as error:
        if "yaml" not in content_type:
            raise bad_request(f"the body of the request is not JSON: {error}") from None
    try:
        return yaml_limits.load(request.body)
    except yaml.YAMLError as error:
        raise bad_request(f"the body of the request is not YAML: {error}") from None


def options_of(request: ApiRequest, query: Mapping[str, str]) -> JsonObject:
    """Return the DeleteOptions of the body and the query; raises ``StatusError`` 400."""
    options = decode_body(request) if request.body else {}
    if not isinstance(options, dict):
        raise bad_request("the body of the request is not a DeleteOptions")
    grace = query.get("gracePeriodSeconds")
    return options if grace is None else options | {"gracePeriodSeconds": parse_revision(grace)}
