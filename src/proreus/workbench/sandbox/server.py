"""The apiserver without the network: authentication, routing, and the verbs' responses.

``ApiServer.handle`` takes a request and returns the response, or the watch to stream. It never
waits.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote

from proreus.workbench.sandbox import discovery, tables
from proreus.workbench.sandbox.api_errors import (
    StatusError,
    method_not_allowed,
    path_not_found,
    unauthorized,
)
from proreus.workbench.sandbox.collection import StoredObject, encode_json
from proreus.workbench.sandbox.lists import Lists, parse_revision
from proreus.workbench.sandbox.metrics_server import FakeMetricsServer
from proreus.workbench.sandbox.patch import MERGE_PATCH
from proreus.workbench.sandbox.pods import bind, evict
from proreus.workbench.sandbox.requests import (
    JSON,
    ApiRequest,
    RequestInfo,
    check_watch_list,
    decode_body,
    options_of,
    request_info_of,
    selector_of,
)
from proreus.workbench.sandbox.resources import ServedResource
from proreus.workbench.sandbox.reviews import Users
from proreus.workbench.sandbox.selectors import SelectionPredicate
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.watch import (
    Converter,
    Watch,
    bookmark,
    converter_for,
    start_position,
)

JsonObject = dict[str, Any]

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
_OPEN_PATHS = frozenset({"healthz", "livez", "readyz", "version"})
_SUCCESS = encode_json(
    {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
)


@dataclass(slots=True)
class ApiServerResponse:
    """A complete response."""

    code: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class WatchResponse:
    """A watch to stream for ``timeout_seconds``.

    ``initial_events_end`` is the bookmark to send after the initial objects (KEP-3157), or empty.
    ``bookmarks``: whether the client wants periodic bookmarks.
    """

    watch: Watch
    served: ServedResource
    timeout_seconds: float
    bookmarks: bool
    initial_events_end: bytes = b""


class ApiServer:
    """Serves the API from a store."""

    def __init__(self, store: Store, users: Users, usage: FakeMetricsServer | None = None) -> None:
        self.store = store
        self._usage = usage or FakeMetricsServer(store)
        self.lists = Lists(store)
        self._users = users

    def handle(self, request: ApiRequest) -> ApiServerResponse | WatchResponse:
        """Return the response to a request; errors become Status bodies, unexpected ones a 500."""
        try:
            return self._route(request)
        except StatusError as status_error:
            headers = {}
            if status_error.retry_after_seconds:
                headers["Retry-After"] = str(status_error.retry_after_seconds)
            return ApiServerResponse(
                status_error.code, encode_json(status_error.status()), headers=headers
            )
        except Exception as error:  # one malformed object must not end the server
            logger.exception("%s %s failed", request.method, request.target)
            failure = StatusError(500, "InternalError", f"Internal error occurred: {error!r}")
            return ApiServerResponse(failure.code, encode_json(failure.status()))

    def _route(self, request: ApiRequest) -> ApiServerResponse | WatchResponse:
        path, _, query_text = request.target.partition("?")
        parts = path.strip("/").split("/")
        if "%" in path:
            parts = [unquote(part) for part in parts]
        if parts[0] not in _OPEN_PATHS:
            self._authenticate(request)
        query = dict(parse_qsl(query_text, keep_blank_values=True)) if query_text else {}
        target = request_info_of(self.store.resources, parts)
        if target is None:
            return self._serve_discovery(parts, request)
        if request.method == "GET":
            return self._read(target, request, query)
        return self._write(target, request, query)

    def _authenticate(self, request: ApiRequest) -> None:
        if self._users.name_of(request.headers.get("Authorization", "")) is None:
            raise unauthorized()

    # -- reading ---------------------------------------------------------------------------------

    def _read(
        self, target: RequestInfo, request: ApiRequest, query: Mapping[str, str]
    ) -> ApiServerResponse | WatchResponse:
        served = target.served
        if served.create_only:
            raise method_not_allowed()
        as_table = tables.wants_table(request.headers.get("Accept", ""))
        if served.read_only:
            return self._measure(target, query, as_table)
        if target.name:
            version = self.store.get(served, target.name, target.namespace or "")
            if as_table:
                metadata = {"resourceVersion": str(version.revision)}
                return self._table(served, [version.object()], metadata, query)
            return self._shown(served, version)
        selector = selector_of(served, query)
        if _is_set(query, "watch"):
            return self._watch(target, selector, query, as_table)
        page = self.lists.read(served, target.namespace, selector, query)
        if as_table:
            objects = [version.object() for version in page.versions]
            return self._table(served, objects, page.metadata(), query)
        return ApiServerResponse(200, page.body(served, converter_for(served)))

    def _measure(
        self, target: RequestInfo, query: Mapping[str, str], as_table: bool
    ) -> ApiServerResponse:
        """Return metrics, which are computed on request and cannot be watched."""
        served = target.served
        if _is_set(query, "watch"):
            raise method_not_allowed()
        found = self._usage.read(target, selector_of(served, query))
        if as_table:
            return self._table(served, found, {}, query)
        if target.name:
            return _json(found[0])
        head = {"kind": f"{served.kind}List", "apiVersion": served.api_version, "metadata": {}}
        return _json(head | {"items": found})

    def _table(
        self,
        served: ServedResource,
        objects: list[JsonObject],
        metadata: JsonObject,
        query: Mapping[str, str],
    ) -> ApiServerResponse:
        return _json(tables.make_table(served, objects, metadata, query, self.store.clock))

    def _watch(
        self,
        target: RequestInfo,
        selector: SelectionPredicate,
        query: Mapping[str, str],
        as_table: bool,
    ) -> WatchResponse:
        served, store = target.served, self.store
        if target.namespace is not None:
            selector = SelectionPredicate(
                selector.labels, (*selector.fields, (1, target.namespace, True))
            )
        bookmarks = _is_set(query, "allowWatchBookmarks")
        send_initial = _is_set(query, "sendInitialEvents")
        text = query.get("resourceVersion", "")
        revision = parse_revision(text)
        if send_initial:
            check_watch_list(query, bookmarks)
        collection = store.collection(served)
        convert: Converter | None = converter_for(served)
        if as_table:
            convert = tables.table_converter(served, query, store.clock)
        initial: list[StoredObject] = []
        end = b""
        if send_initial or (not revision and query.get("sendInitialEvents") != "false"):
            initial, position = collection.select(target.namespace, selector), collection.end
            if send_initial:
                end = bookmark(served, store.revision, initial_events_end=True)
        else:
            position = start_position(collection, revision)
        watch = Watch(collection, selector, position, initial, convert)
        timeout = float(query.get("timeoutSeconds") or 0) or 1800.0
        return WatchResponse(watch, served, timeout, bookmarks, end)

    def bookmark(self, served: ServedResource) -> bytes:
        """Return the bookmark of a watch that has sent all changes up to now."""
        return bookmark(served, self.store.revision)

    def _shown(
        self, served: ServedResource, version: StoredObject, code: int = 200
    ) -> ApiServerResponse:
        convert = converter_for(served)
        return ApiServerResponse(code, version.data if convert is None else convert(version.data))

    # -- writing ---------------------------------------------------------------------------------

    def _write(
        self, target: RequestInfo, request: ApiRequest, query: Mapping[str, str]
    ) -> ApiServerResponse:
        served, store = target.served, self.store
        if served.read_only:
            raise method_not_allowed()
        namespace, name, subresource = target.namespace or "", target.name, target.subresource
        dry_run = query.get("dryRun") == "All"
        match request.method:
            case "POST":
                return self._post(target, decode_body(request), dry_run)
            case "PUT" if name:
                version = store.update(
                    served,
                    decode_body(request),
                    namespace,
                    name=name,
                    subresource=subresource,
                    dry_run=dry_run,
                )
                return self._shown(served, version)
            case "PATCH" if name:
                type_ = request.headers.get("Content-Type", MERGE_PATCH).partition(";")[0].strip()
                before = store.revision
                version = store.patch(
                    served,
                    name,
                    decode_body(request, type_),
                    namespace,
                    content_type=type_,
                    subresource=subresource,
                    dry_run=dry_run,
                )
                applied = type_.startswith("application/apply-patch")
                created = applied and _is_new(version, before)
                return self._shown(served, version, 201 if created else 200)
            case "DELETE" if name and not subresource:
                return self._delete(target, options_of(request, query), dry_run)
            case "DELETE" if not subresource:
                options = options_of(request, query)
                selector = selector_of(served, query)
                return self._delete_all(target, selector, options, dry_run)
        raise method_not_allowed()

    def _post(self, target: RequestInfo, body: Any, dry_run: bool) -> ApiServerResponse:
        served, store = target.served, self.store
        namespace, name = target.namespace or "", target.name
        if target.subresource == "binding":
            bind(store, served, name, namespace, body)
            return ApiServerResponse(201, _SUCCESS)
        if target.subresource == "eviction":
            evict(store, served, name, namespace, body)
            return ApiServerResponse(201, _SUCCESS)
        if name:
            raise method_not_allowed()
        if served.plural == "bindings":
            name = ((body or {}).get("metadata") or {}).get("name", "")
            bind(store, store.resources.find("pods"), name, namespace, body)
            return ApiServerResponse(201, _SUCCESS)
        if served.create_only:
            return _json(self._users.review(served, body), 201)
        if served.namespaced and target.namespace is None:
            raise method_not_allowed()
        return self._shown(served, store.create(served, body, namespace, dry_run=dry_run), 201)

    def _delete(self, target: RequestInfo, options: JsonObject, dry_run: bool) -> ApiServerResponse:
        served = target.served
        version, gone = self.store.delete(
            served,
            target.name,
            target.namespace or "",
            grace_seconds=options.get("gracePeriodSeconds"),
            preconditions=options.get("preconditions"),
            dry_run=dry_run,
        )
        if not gone or served.plural == "pods":
            return self._shown(served, version)
        metadata = version.object()["metadata"]
        details = {
            "name": target.name,
            "group": served.group,
            "kind": served.plural,
            "uid": metadata["uid"],
        }
        return ApiServerResponse(
            200,
            encode_json(
                {
                    "kind": "Status",
                    "apiVersion": "v1",
                    "metadata": {},
                    "status": "Success",
                    "details": {key: value for key, value in details.items() if value},
                }
            ),
        )

    def _delete_all(
        self, target: RequestInfo, selector: SelectionPredicate, options: JsonObject, dry_run: bool
    ) -> ApiServerResponse:
        served = target.served
        page = self.lists.read(served, target.namespace, selector, {})
        for version in page.versions:
            self.store.delete(
                served,
                version.name,
                version.namespace,
                grace_seconds=options.get("gracePeriodSeconds"),
                dry_run=dry_run,
            )
        return ApiServerResponse(200, page.body(served, converter_for(served)))

    # -- discovery -------------------------------------------------------------------------------

    def _serve_discovery(self, parts: list[str], request: ApiRequest) -> ApiServerResponse:
        if request.method != "GET":
            raise method_not_allowed()
        match parts:
            case ["healthz" | "livez" | "readyz", *_]:
                return ApiServerResponse(200, b"ok", TEXT)
            case ["openapi", "v2"]:
                if "protobuf" in request.headers.get("Accept", ""):
                    body = discovery.openapi_v2_protobuf()
                    return ApiServerResponse(200, body, discovery.OPENAPI_V2_PROTOBUF)
                return _json(discovery.openapi_v2())
            case ["openapi", "v3", *rest]:
                document = discovery.openapi_v3(self.store.resources, rest)
                return _json(document)
        found = discovery.describe(self.store.resources, parts)
        if found is None:
            raise path_not_found()
        return _json(found)


def _is_new(version: StoredObject, before: int) -> bool:
    return version.revision > before and version.object()["metadata"].get("generation") == 1


def _json(content: JsonObject, code: int = 200) -> ApiServerResponse:
    return ApiServerResponse(code, encode_json(content))


def _is_set(query: Mapping[str, str], name: str) -> bool:
    return query.get(name) in ("true", "1")
