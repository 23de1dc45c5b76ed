"""An object that cannot be decoded affects no other object, in lists and watches."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import msgspec
import pytest

from proreus.base.metrics import SchedulerMetrics
from proreus.client.watching.informer import Informer
from proreus.client.watching.object_faults import LINES, PERIOD_SECONDS, ObjectFaults
from proreus.client.watching.watch import EventDecoder, ListDecoder, Unreadable, UnreadableEvent
from proreus.objects.kinds import PODS
from proreus.objects.meta import ObjectMeta, key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import ResourceClaim
from proreus.objects.with_json import NodeWithJson, PodWithJson

from .decoding import decode, decode_page

ODD_FIELDS = [b'{"a":' * 1_100 + b"1" + b"}" * 1_100, b'{"a":"\xff"}', rb'{"a":"\ud800"}']


def meta(name: str, version: int = 1, uid: str = "", more: bytes = b"") -> bytes:
    return b'"metadata":{"namespace":"d","name":"%s","uid":"%s","resourceVersion":"%d"%s}' % (
        *(name.encode(), (uid or name).encode(), version, more),
    )


def pod(name: str, version: int = 1, uid: str = "") -> bytes:
    return b"{%s}" % meta(name, version, uid)


def odd_pod(name: str, fields: bytes, version: int = 1) -> bytes:
    return b"{%s}" % meta(name, version, more=b',"managedFields":[{"fieldsV1":%s}]' % fields)


def odd_claim(name: str, parameters: bytes) -> bytes:
    config = b'{"opaque":{"driver":"x","parameters":%s}}' % parameters
    return b'{%s,"spec":{"devices":{"config":[%s]}}}' % (meta(name), config)


def bad_pod(name: str, version: int = 1, uid: str = "") -> bytes:
    return b'{%s,"spec":{"containers":"many"}}' % meta(name, version, uid)


def event(type_: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (type_.encode(), obj)


def page(*objects: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"9"},"items":[%s]}' % b",".join(objects)


# ---- repaired ------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [Pod, PodWithJson, Node, NodeWithJson])
@pytest.mark.parametrize("fields", ODD_FIELDS, ids=["deep", "byte", "surrogate"])
def test_odd_managed_fields_are_decoded(type_: type, fields: bytes) -> None:
    odd = odd_pod("odd", fields)
    batch = decode(
        EventDecoder(type_),
        [event(kind, odd) for kind in ("ADDED", "MODIFIED", "DELETED")]
        + [event("ADDED", pod("b"))],
    )
    listed = decode_page(ListDecoder(type_), page(pod("a"), odd, pod("b")))

    assert [(e.type, e.object.metadata.name) for e in batch.events] == [
        ("ADDED", "odd"),
        ("MODIFIED", "odd"),
        ("DELETED", "odd"),
        ("ADDED", "b"),
    ]
    assert all(isinstance(e.object, type_) for e in batch.events)
    assert [obj.metadata.name for obj in listed.items] == ["a", "odd", "b"]
    assert listed.unreadable == []


@pytest.mark.parametrize(
    "parameters",
    [b'{"a":' * 2_500 + b"1" + b"}" * 2_500, b'{"a":"\xff"}', rb'{"a":"\ud800"}', b'{"a":1e999}'],
    ids=["deep", "byte", "surrogate", "number"],
)
def test_odd_opaque_parameters_are_decoded(parameters: bytes) -> None:
    odd = odd_claim("odd", parameters)
    batch = decode(
        EventDecoder(ResourceClaim), [event(kind, odd) for kind in ("ADDED", "MODIFIED", "DELETED")]
    )
    listed = decode_page(ListDecoder(ResourceClaim), page(pod("a"), odd, pod("b")))

    assert [e.type for e in batch.events] == ["ADDED", "MODIFIED", "DELETED"]
    assert [obj.metadata.name for obj in listed.items] == ["a", "odd", "b"]
    for claim in (batch.events[0].object, listed.items[1]):
        assert isinstance(claim, ResourceClaim)
        opaque = claim.spec.devices.config[0].opaque
        assert opaque is not None
        if b"ud800" not in parameters:  # the one text that has to be repaired inside
            assert bytes(opaque.parameters) == parameters


# ---- left out ------------------------------------------------------------------------------------


def test_unreadable_objects_keep_their_identity() -> None:
    batch = decode(
        EventDecoder(Pod), [event("ADDED", bad_pod("bad", 4)), event("DELETED", bad_pod("bad", 5))]
    )
    listed = decode_page(ListDecoder(Pod), page(pod("a"), bad_pod("bad"), pod("b")))

    assert [type(e) for e in batch.events] == [UnreadableEvent] * 2
    assert batch.resource_version == "5"
    assert [obj.metadata.name for obj in listed.items] == ["a", "b"]
    assert [key_of(obj) for obj in listed.unreadable] == ["d/bad"]


class Heard:
    def __init__(self) -> None:
        self.words: list[str] = []

    def on_add(self, obj: Any) -> None:
        self.words.append(f"+{obj.metadata.name}@{obj.metadata.resource_version}")

    def on_update(self, old: Any, new: Any) -> None:
        self.words.append(f"{new.metadata.name}@{new.metadata.resource_version}")

    def on_delete(self, obj: Any, final_state_unknown: bool) -> None:
        self.words.append(f"-{obj.metadata.name}" + "?" * final_state_unknown)


def informed(*lines: bytes) -> list[str]:
    """Return a handler's notifications for a list with a@1, and then for these lines."""
    informer: Informer[Pod] = Informer(None, PODS)  # type: ignore[arg-type]
    heard = Heard()
    informer.add_handler(heard)
    informer.replace(
        [each.object for each in decode(EventDecoder(Pod), [event("ADDED", pod("a"))]).events]
    )
    decoder = EventDecoder(Pod)
    for line in lines:
        informer.apply(decode(decoder, [line]).events)
    assert heard.words.pop(0) == "+a@1"
    return heard.words


async def test_last_decoded_version_stays_until_the_object_is_deleted() -> None:
    bad = event("MODIFIED", bad_pod("a", 2))

    assert informed(bad) == []
    assert informed(bad, event("MODIFIED", pod("a", 3))) == ["a@3"]
    assert informed(bad, event("DELETED", pod("a", 3))) == ["-a"]
    assert informed(bad, event("DELETED", bad_pod("a", 3))) == ["-a?"]
    assert informed(event("ADDED", bad_pod("b", 2)), event("DELETED", bad_pod("b", 3))) == []


async def test_an_undecodable_object_of_another_uid_removes_the_old_one() -> None:
    assert informed(event("ADDED", bad_pod("a", 5, uid="other"))) == ["-a?"]


async def test_list_keeps_objects_that_became_undecodable() -> None:
    informer: Informer[Pod] = Informer(None, PODS)  # type: ignore[arg-type]
    heard = Heard()
    informer.add_handler(heard)
    informer.replace((await ListDecoder(Pod).page(page(pod("a"), pod("b"), pod("c")))).items)
    heard.words.clear()
    again = await ListDecoder(Pod).page(page(bad_pod("a", 7), bad_pod("b", 8, uid="other")))
    informer.pause()
    informer.replace(again.items, again.unreadable)
    informer.resume()

    assert sorted(heard.words) == ["-b?", "-c?"]
    assert list(informer.store) == ["d/a"]


# ---- logs and metrics ----------------------------------------------------------------------------


def test_undecodable_objects_are_counted_each_time_and_logged_once_a_version(caplog: Any) -> None:
    metrics = SchedulerMetrics()
    decoder = EventDecoder(Pod, ObjectFaults("pods", metrics))
    for version in (1, 1, 1, 2):
        decode(decoder, [event("MODIFIED", bad_pod("bad", version))])

    assert metrics.objects_unreadable_total.labels("pods").value == 4
    assert [record.getMessage().partition(" is left out")[0] for record in caplog.records] == [
        "Pod d/bad cannot be read and"
    ] * 2


def test_the_number_of_logged_lines_is_limited(caplog: Any) -> None:
    now = [0.0]
    faults = ObjectFaults("pods", now=lambda: now[0])
    for version in range(50):
        bad = ObjectMeta(namespace="d", name="bad", resource_version=str(version))
        faults.unreadable("Pod", bad, ValueError("no"))
    assert len(caplog.records) == LINES
    now[0] += PERIOD_SECONDS
    faults.unreadable("Pod", ObjectMeta(name="other"), ValueError("no"))
    assert f"{50 - LINES} more such faults" in caplog.text


# ---- random lines --------------------------------------------------------------------------------


def some_value(rng: random.Random) -> bytes:
    deep = rng.choice((50, 300, 950, 1_100, 4_000))
    return rng.choice(
        (
            b"NaN", b"-Infinity", b"9" * 5_000, b"-1e400", b"1.5", b"null", b"true", b"[]", b"{}",
            b"[" * deep + b"]" * deep, b'{"a":' * deep + b"null" + b"}" * deep, b"[" * deep,
            b'"\xff\xfe"', rb'"\udc00"', rb'"\u12"', b'"a\x01"', b'"', b"'x'", b'{"a":1,"a":[]}',
            b'{"\xff":1}', b'[null,{"a":null}]', b'"2020-99-99T00:00:00Z"', b"", b"0x10", b"\x00",
        )
    )  # fmt: skip


def malformed(rng: random.Random) -> bytes:
    """Return a line of a watch with an error in it."""
    value = some_value(rng)
    key = rng.choice(
        (
            "metadata", "spec", "status", "x", "managedFields", "labels", "name", "uid", "type",
            "containers", "resourceVersion", "creationTimestamp", "priority", "annotations",
        )
    ).encode()  # fmt: skip
    place = rng.randrange(4)
    more = b',"%s":%s' % (key, value)
    obj = b"{%s%s}" % (meta("m", 5, more=more if place == 0 else b""), more if place == 1 else b"")
    if place == 2:
        obj = b'{%s,"spec":{"nodeName":"n"%s}}' % (meta("m", 5), more)
    kind = rng.choice(("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "NEWS", "\\u0000"))
    line = event(kind, value if place == 3 else obj)
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        at = rng.randrange(len(line) + 1)
        match rng.randrange(4):
            case 0:
                line = line[:at]
            case 1:
                line = line[:at] + bytes([rng.choice(b'"\\{}[],:\xff\x00\xed')]) + line[at:]
            case 2:
                line = line[:at] + line[at + rng.randrange(1, 9) :]
            case _:
                pass
    return line.replace(b"\n", b" ")


@pytest.mark.parametrize("type_", [Pod, ResourceClaim, PodWithJson])
def test_valid_lines_around_an_invalid_one_are_decoded(type_: type) -> None:
    """3,000 lines a type: each gives events, or ``DecodeError``, which causes a relist."""
    rng = random.Random(7)
    decoder, lists = EventDecoder(type_), ListDecoder(type_)
    outcomes = {"event": 0, "unreadable": 0, "worthless": 0}
    for number in range(3_000):
        line = malformed(rng)
        try:
            batch = decode(decoder, [line])
        except msgspec.DecodeError:
            outcomes["worthless"] += 1
        else:
            for one in batch.events:
                outcomes["unreadable" if isinstance(one, UnreadableEvent) else "event"] += 1
        [good] = decode(decoder, [event("ADDED", pod(f"good-{number}"))]).events
        assert good.object.metadata.name == f"good-{number}"
        try:
            listed = decode_page(lists, page(pod("a"), line, pod("b")))
        except msgspec.DecodeError:
            continue
        names = [obj.metadata.name for obj in listed.items]
        assert (names[0], names[-1]) == ("a", "b")
    assert min(outcomes.values()) > 40, outcomes


def test_an_undecodable_object_with_a_name_causes_no_relist() -> None:
    """For valid JSON with any contents."""
    rng = random.Random(8)
    decoder, tried = EventDecoder(Pod), 0
    while tried < 500:
        value = some_value(rng)
        try:
            json.loads(value.decode(errors="replace"), parse_constant=lambda _: 1 / 0)
        except (ValueError, ZeroDivisionError, RecursionError):
            continue
        tried += 1
        key = rng.choice((b"spec", b"status", b"x"))
        line = event("ADDED", b'{%s,"%s":%s}' % (meta("m", 5), key, value))
        [one] = decode(decoder, [line]).events
        assert one.object.metadata.name == "m"
        assert isinstance(one.object, Pod | Unreadable)


# ---- large ones ----------------------------------------------------------------------------------


def large(obj: bytes) -> bytes:
    filler = b'"unknown":[%s],' % b",".join([b"[1]"] * 20_000)
    return obj.replace(b"{", b"{" + filler, 1)


async def test_a_large_odd_object_is_decoded_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Order and versions are as if it had been decoded at once."""
    decoder = EventDecoder(Pod)
    threads: list[tuple[int, bool]] = []
    usual = EventDecoder._decode_unusual

    def noting(self: EventDecoder[Pod], line: bytes, *args: Any) -> Any:
        threads.append((len(line), threading.current_thread() is threading.main_thread()))
        return usual(self, line, *args)

    monkeypatch.setattr(EventDecoder, "_decode_unusual", noting)
    lines = [
        event("ADDED", pod("a", 1)),
        event("ADDED", large(odd_pod("big", ODD_FIELDS[0], 2))),
        event("ADDED", odd_pod("small", ODD_FIELDS[0], 3)),
        event("MODIFIED", large(odd_pod("big", ODD_FIELDS[0], 4))),
        event("DELETED", pod("a", 5)),
    ]

    batches = [batch async for batch in decoder.batches(lines)]

    events = [(e.type, e.object.metadata.name) for batch in batches for e in batch.events]
    assert events == [
        ("ADDED", "a"),
        ("ADDED", "big"),
        ("ADDED", "small"),
        ("MODIFIED", "big"),
        ("DELETED", "a"),
    ]
    assert [batch.resource_version for batch in batches] == ["1", "3", "5"]
    assert [in_main for size, in_main in threads if size > 50_000] == [False, False]
    assert [in_main for size, in_main in threads if size < 50_000] == [True]
    monkeypatch.setattr("proreus.client.watching.watch._MOST_BYTES_AT_ONCE", 2**20)
    at_once = decode(decoder, lines)
    assert [e.object for e in at_once.events] == [e.object for b in batches for e in b.events]


async def test_faults_of_large_objects_are_recorded_by_the_event_loop() -> None:
    metrics = SchedulerMetrics()
    faults = ObjectFaults("pods", metrics)
    bad = large(bad_pod("bad", 2))
    batches = [b async for b in EventDecoder(Pod, faults).batches([event("ADDED", bad)])]
    listed = await ListDecoder(Pod, faults).page(page(pod("a"), bad))

    [changed] = [e for batch in batches for e in batch.events]
    assert isinstance(changed, UnreadableEvent)
    assert changed.object.metadata.name == "bad"
    assert [item.metadata.name for item in listed.items] == ["a"]
    assert [item.metadata.name for item in listed.unreadable] == ["bad"]
    assert metrics.objects_unreadable_total.labels("pods").value == 2


async def test_large_lines_that_are_not_json_are_refused_and_errors_end_the_batch() -> None:
    decoder = EventDecoder(Pod)
    with pytest.raises(msgspec.DecodeError):
        _ = [batch async for batch in decoder.batches([b"{" * 100_000])]
    gone = b'{"type":"ERROR","object":{"code":410,"unknown":[%s]}}' % b",".join([b"[1]"] * 20_000)
    batches = [batch async for batch in decoder.batches([gone, event("ADDED", pod("a"))])]
    assert [type(batch.error).__name__ for batch in batches if batch.error] == ["Gone"]
    assert batches[-1].error is not None


def test_null_is_no_namespace() -> None:
    obj = b'{"metadata":{"namespace":null,"name":"n","uid":null},"status":{"images":5}}'
    batch = decode(EventDecoder(Node), [event("ADDED", obj)])
    [changed] = batch.events
    assert isinstance(changed.object, Unreadable)
    assert key_of(changed.object) == "n"
