import json
from typing import Any

import pytest

from proreus.objects.protobuf import fields
from proreus.workbench.sandbox.cluster import make_node
from proreus.workbench.sandbox.requests import ApiRequest
from proreus.workbench.sandbox.reviews import Users
from proreus.workbench.sandbox.server import ApiServer, ApiServerResponse
from proreus.workbench.sandbox.store import Store

HEADERS = {"Authorization": "Bearer secret", "Content-Type": "application/json"}


@pytest.fixture
def api(store: Store) -> ApiServer:
    return ApiServer(store, Users({"secret": "somebody"}))


def ask(
    api: ApiServer, method: str, target: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    data = b"" if body is None else json.dumps(body).encode()
    answer = api.handle(ApiRequest(method, target, HEADERS | headers, data))
    assert isinstance(answer, ApiServerResponse)
    return answer.code, json.loads(answer.body)


def names(listing: Any) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


def test_an_exact_list_shows_a_past_revision(api: ApiServer, store: Store) -> None:
    store.create("nodes", make_node("a"))
    store.create("nodes", make_node("b"))
    then = store.revision
    store.delete("nodes", "a")
    store.create("nodes", make_node("c"))
    store.patch("nodes", "b", {"metadata": {"labels": {"x": "y"}}})
    exact = f"/api/v1/nodes?resourceVersionMatch=Exact&resourceVersion={then}"
    code, listing = ask(api, "GET", exact)
    assert (code, names(listing)) == (200, ["a", "b"])
    assert "x" not in listing["items"][1]["metadata"]["labels"]
    assert listing["metadata"]["resourceVersion"] == str(then)
    assert names(ask(api, "GET", "/api/v1/nodes")[1]) == ["b", "c"]
    store.compact()
    assert ask(api, "GET", exact)[0] == 410


@pytest.mark.parametrize("query", ["", "&resourceVersionMatch=NotOlderThan"])
def test_watch_list_requires_its_parameters(api: ApiServer, query: str) -> None:
    code, status = ask(api, "GET", f"/api/v1/pods?watch=1&sendInitialEvents=true{query}")
    assert (code, status["reason"]) == (422, "Invalid")


def test_token_review(api: ApiServer) -> None:
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    code, review = ask(api, "POST", reviews, {"spec": {"token": "secret"}})
    assert code == 201
    assert review["status"]["authenticated"]
    assert review["status"]["user"]["username"] == "somebody"
    _, review = ask(api, "POST", reviews, {"spec": {"token": "guess"}})
    assert not review["status"]["authenticated"]
    assert ask(api, "GET", reviews)[0] == 405


@pytest.mark.parametrize(("user", "allowed"), [("somebody", True), ("nobody", False)])
def test_subject_access_review(api: ApiServer, user: str, allowed: bool) -> None:
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    _, review = ask(api, "POST", path, {"spec": {"user": user}})
    assert review["status"]["allowed"] is allowed


def test_discovery_lists_served_resources(api: ApiServer) -> None:
    assert ask(api, "GET", "/version")[1]["gitVersion"] == "v1.37.1"
    groups = {group["name"] for group in ask(api, "GET", "/apis")[1]["groups"]}
    assert {"apps", "policy", "storage.k8s.io", "resource.k8s.io"} <= groups
    resources = ask(api, "GET", "/api/v1")[1]["resources"]
    assert {"pods", "pods/status", "pods/binding"} <= {entry["name"] for entry in resources}
    assert ask(api, "GET", "/apis/none.example.com/v1")[0] == 404
    paths = ask(api, "GET", "/openapi/v3/apis/apps/v1")[1]["paths"]
    assert "/apis/apps/v1/namespaces/{namespace}/deployments/{name}" in paths


def test_kubectl_gets_the_openapi_v2_document_as_protobuf(api: ApiServer) -> None:
    kind = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    answer = api.handle(ApiRequest("GET", "/openapi/v2", HEADERS | {"Accept": kind}, b""))
    assert isinstance(answer, ApiServerResponse)
    assert answer.content_type == kind.replace("@", ".")
    parts = {number: content for number, _, content in fields(answer.body)}
    assert parts[1] == b"2.0"
    assert [text for _, _, text in fields(parts[2])] == [b"Kubernetes", b"v1.37.1"]
    assert ask(api, "GET", "/openapi/v2")[1]["swagger"] == "2.0"


def test_a_collection_is_deleted_by_selector(api: ApiServer, store: Store) -> None:
    for name in ("a", "b", "c"):
        labels = {"keep": "yes"} if name == "b" else {}
        store.create("configmaps", {"metadata": {"name": name, "labels": labels}})
    path = "/api/v1/namespaces/default/configmaps"
    assert ask(api, "DELETE", f"{path}?labelSelector=keep!%3Dyes")[0] == 200
    assert names(ask(api, "GET", path)[1]) == ["b"]


def test_deletions_return_a_status_or_the_pod(api: ApiServer, store: Store) -> None:
    store.create("configmaps", {"metadata": {"name": "m"}})
    _, status = ask(api, "DELETE", "/api/v1/namespaces/default/configmaps/m")
    assert (status["kind"], status["status"]) == ("Status", "Success")
    spec = {"containers": [{"name": "c"}], "nodeName": "n"}
    store.create("pods", {"metadata": {"name": "p"}, "spec": spec})
    path = "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=7"
    assert ask(api, "DELETE", path)[1]["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_malformed_body_does_not_end_the_server(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    broken = api.handle(ApiRequest("POST", pods, HEADERS, b"{"))
    assert isinstance(broken, ApiServerResponse)
    assert broken.code == 400
    odd = {"metadata": {"name": "p"}, "spec": {"containers": ["c"]}}
    code, status = ask(api, "POST", pods, odd)
    assert (code, status["reason"]) == (500, "InternalError")
    assert "POST" in caplog.text
    assert ask(api, "GET", pods)[1]["items"] == []
