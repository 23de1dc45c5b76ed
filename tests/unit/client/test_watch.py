"""Decoding of watches and lists."""

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.base.errors import Gone
from proreus.client.watching.watch import EventDecoder, LineSplitter, ListDecoder, UnreadableEvent
from proreus.objects.kinds import Namespace
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod

from .decoding import decode, decode_page


def line(type_, **obj):
    return json.dumps({"type": type_, "object": obj}).encode()


def meta(name, version="1", **more):
    return {"metadata": {"name": name, "resourceVersion": version, **more}}


@given(st.lists(st.binary(max_size=20)), st.data())
def test_lines_are_complete_however_the_bytes_are_split(parts, data):
    stream = b"".join(part.replace(b"\n", b"|") + b"\n" for part in parts) + b"rest"
    splitter, lines, at = LineSplitter(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 30))
        lines += splitter.feed(stream[at : at + size])
        at += size
    assert lines == stream.split(b"\n")[:-1]
    assert splitter.pending_bytes == len(b"rest")


def test_a_line_of_many_megabytes_takes_linear_time():
    splitter = LineSplitter()
    chunk = b"x" * 4096
    started = time.process_time()
    for _ in range(16_384):  # 64 MiB: joined at each chunk this would copy half a terabyte
        splitter.feed(chunk)
    (whole,) = splitter.feed(b"\n")
    assert len(whole) == 64 * 2**20
    assert time.process_time() - started < 2


def test_changes_are_typed_in_order():
    batch = decode(
        EventDecoder(Pod),
        [
            line("ADDED", **meta("a", "1"), spec={"nodeName": "n"}),
            b"",
            line("MODIFIED", **meta("a", "2")),
            line("DELETED", **meta("a", "3")),
        ],
    )
    assert [(e.type, e.object.metadata.name) for e in batch.events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert isinstance(batch.events[0].object, Pod)
    assert batch.resource_version == "3"
    assert batch.error is None


@pytest.mark.parametrize("type_", [Pod, Node, Namespace])
def test_bookmarks_advance_the_resource_version(type_):
    decoder = EventDecoder(type_)
    batch = decode(decoder, [line("ADDED", **meta("a", "1")), line("BOOKMARK", **meta("", "9"))])
    assert (len(batch.events), batch.resource_version) == (1, "9")
    batch = decode(decoder, [line("BOOKMARK", **meta("", "9")), line("ADDED", **meta("b", "10"))])
    assert (len(batch.events), batch.resource_version) == (1, "10")
    assert not batch.initial_events_end
    end = meta("", "11", annotations={"k8s.io/initial-events-end": "true"})
    assert decode(decoder, [line("BOOKMARK", **end)]).initial_events_end


def test_no_decoder_is_made_for_a_kind_that_has_no_objects(monkeypatch):
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}'
    decode(EventDecoder(Pod), [bookmark])  # which makes the decoders that all kinds share
    made = []
    new = msgspec.json.Decoder
    monkeypatch.setattr(msgspec.json, "Decoder", lambda of: made.append(of) or new(of))
    lists, events = ListDecoder(Node), EventDecoder(Node)
    assert decode(events, [bookmark]).resource_version == "7"
    assert made == []
    assert decode_page(lists, b'{"items":[]}').items == []
    assert len(decode(events, [line("ADDED", **meta("a"))]).events) == 1
    assert len(made) == 2


@pytest.mark.parametrize("type_", [Pod, Node, Namespace])
def test_an_error_event_ends_the_batch_for_every_type(type_):
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}
    batch = decode(
        EventDecoder(type_),
        [
            line("ADDED", **meta("a", "1")),
            line("ERROR", **gone, message="too old", metadata={}),
            line("ADDED", **meta("b", "2")),
        ],
    )
    assert isinstance(batch.error, Gone)
    assert str(batch.error) == "too old"
    assert (len(batch.events), batch.resource_version) == (1, "1")


def test_expired_is_gone_with_any_code():
    expired = {"kind": "Status", "code": 500, "reason": "Expired", "message": "x"}
    assert isinstance(decode(EventDecoder(Pod), [line("ERROR", **expired)]).error, Gone)


def test_unknown_types_are_ignored():
    batch = decode(EventDecoder(Pod), [line("NEWS", a=1), line("ADDED", **meta("a"))])
    assert len(batch.events) == 1


def test_nulls_are_absent_and_unreadable_objects_left_out(caplog):
    batch = decode(
        EventDecoder(Pod),
        [
            line("ADDED", metadata={"name": "a", "labels": None}, spec={"nodeName": None}),
            line("ADDED", metadata={"name": "bad"}, spec={"containers": 3}),
            line("ADDED", **meta("c", "3")),
        ],
    )
    readable, unreadable, last = batch.events
    assert [readable.object.metadata.name, last.object.metadata.name] == ["a", "c"]
    assert isinstance(unreadable, UnreadableEvent)
    assert key_of(unreadable.object) == "bad"
    assert "bad cannot be read and is left out" in caplog.text


def test_a_line_that_is_not_json_is_an_error():
    with pytest.raises(msgspec.DecodeError):
        decode(EventDecoder(Pod), [b'{"type":"ADDED","obj'])


@pytest.mark.parametrize("items", [[], None])
def test_empty_lists_of_go(items):
    body = json.dumps({"metadata": {"resourceVersion": "4"}, "items": items}).encode()
    page = decode_page(ListDecoder(Pod), body)
    assert (page.items, page.metadata.resource_version) == ([], "4")
