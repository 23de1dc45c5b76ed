"""Watches and lists of objects that keep their JSON."""

import json

from proreus.client.watching.informer_factory import InformerFactory
from proreus.client.watching.watch import EventDecoder, ListDecoder
from proreus.objects.kinds import NODES, PODS
from proreus.objects.pod import Pod
from proreus.objects.with_json import NodeWithJson, PodWithJson

from .decoding import decode, decode_page


def pod(name, version="1", **more):
    metadata = {"name": name, "namespace": "d", "uid": name, "resourceVersion": version}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {"new": name}, **more}


def line(kind, obj):
    return json.dumps({"type": kind, "object": obj}).encode()


def text(one):
    return {key: one[key] for key in ("metadata", "spec")}


def test_events_keep_their_objects_json():
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "9"}}
    a, b = pod("a", "7"), pod("b", "8")
    lines = [line("ADDED", a), line("BOOKMARK", bookmark), line("DELETED", b)]
    batch = decode(EventDecoder(PodWithJson), lines)
    assert [event.type for event in batch.events] == ["ADDED", "DELETED"]
    assert [json.loads(event.object.json) for event in batch.events] == [text(a), text(b)]
    assert batch.resource_version == "8"
    plain = decode(EventDecoder(Pod), lines)
    assert [e.object.metadata for e in plain.events] == [e.object.metadata for e in batch.events]


def test_an_error_event_is_an_error():
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    batch = decode(EventDecoder(PodWithJson), [line("ADDED", pod("a")), line("ERROR", status)])
    assert len(batch.events) == 1
    assert batch.error is not None
    assert batch.error.status == 410


def test_lists_keep_their_items_json():
    a = pod("a", status=None)
    body = json.dumps({"metadata": {"resourceVersion": "5"}, "items": [a]}).encode()
    page = decode_page(ListDecoder(PodWithJson), body)
    assert page.metadata.resource_version == "5"
    assert json.loads(page.items[0].json) == {**text(a), "status": None}


def test_stores_decode_into_the_given_types():
    stores = InformerFactory(None, print, {"Node": NodeWithJson})
    stores.store(NODES)
    stores.store(PODS)
    types = {kind: informer.resource.type for kind, informer in stores.group.by_kind.items()}
    assert types == {"Node": NodeWithJson, "Pod": Pod}
