"""JSON that Go accepts and msgspec does not is decoded, and encoded again unchanged."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.objects.codec import decoder_for, to_plain
from proreus.objects.json_repair import DEEPEST, repair_json
from proreus.objects.meta import JsonObject
from proreus.objects.pod import Pod
from proreus.objects.resource_claims import ResourceClaim


def nested(depth: int, inner: bytes = b"1") -> bytes:
    return b'{"a":' * depth + inner + b"}" * depth


def claim(parameters: bytes, generation: bytes = b"1") -> bytes:
    return (
        b'{"metadata":{"name":"c","generation":%s},"spec":{"devices":{"config":['
        b'{"opaque":{"driver":"d","parameters":%s}}]}}}' % (generation, parameters)
    )


def parameters_of(read: ResourceClaim) -> bytes:
    opaque = read.spec.devices.config[0].opaque
    assert opaque is not None
    return bytes(opaque.parameters)


def pod(fields: bytes, **more: bytes) -> bytes:
    labels = more.get("labels", b"{}")
    return (
        b'{"metadata":{"managedFields":[{"manager":"m","fieldsV1":%s}],"name":"p","labels":%s},'
        b'"spec":{"schedulerName":"s"}}' % (fields, labels)
    )


@pytest.mark.parametrize("depth", [90, 500, 990, 1_100, 9_000])
def test_pod_is_read_however_deep_its_managed_fields_nest(depth: int) -> None:
    read = decoder_for(Pod).decode(pod(nested(depth)))

    assert (read.metadata.name, read.spec.scheduler_name) == ("p", "s")


@pytest.mark.parametrize("odd", [b'{"a":"\xff"}', rb'{"a":"\ud800"}', rb'{"a":"\udc00A"}'])
def test_pod_is_read_whatever_text_its_managed_fields_have(odd: bytes) -> None:
    assert decoder_for(Pod).decode(pod(odd)).metadata.name == "p"


@pytest.mark.parametrize("generation", [b"1", b"null"])
@pytest.mark.parametrize(
    "parameters",
    [nested(1), nested(500), nested(2_500), b'{"l":[' + nested(3_000) + b"," + nested(120) + b"]}"],
)
def test_opaque_parameters_come_and_go_as_they_are(parameters: bytes, generation: bytes) -> None:
    read = decoder_for(ResourceClaim).decode(claim(parameters, generation))

    assert parameters_of(read) == parameters
    assert parameters in msgspec.json.encode(read)
    plain = to_plain(read)
    assert parameters in msgspec.json.encode(plain)
    assert parameters_of(decoder_for(ResourceClaim).convert(plain)) == parameters


def test_numbers_of_any_size_come_and_go_as_they_are() -> None:
    parameters = b'{"big":1e999,"long":' + b"9" * 400 + b"}"
    answer = decoder_for(JsonObject).decode(claim(parameters))

    assert parameters in msgspec.json.encode(answer)
    assert parameters_of(decoder_for(ResourceClaim).convert(answer)) == parameters


def test_invalid_unicode_becomes_the_same_as_in_go() -> None:
    read = decoder_for(Pod).decode(pod(b"{}", labels=rb'{"a":"\ud800x\ud83d\ude00\\ud800","b":"'
                                       b'\xff\xe2\x82"}'))  # fmt: skip

    assert read.metadata.labels == {"a": "\ufffdx\U0001f600\\ud800", "b": "\ufffd" * 3}


def test_marks_of_pieces_cannot_be_forged() -> None:
    [seen] = re.findall(rb'"[^"]+:0"', repair_json(nested(DEEPEST + 1)).text)
    forged = decoder_for(JsonObject).decode(b'{"x":%s,"y":%s}' % (seen, nested(2_000)))

    assert forged["x"] == msgspec.json.decode(seen)


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":"', b"]" * 5_000, b"[" * 5_000, b'"\\', b"-"])
def test_invalid_json_is_not_repaired(text: bytes) -> None:
    for type_ in (Pod, JsonObject):
        with pytest.raises(msgspec.DecodeError):
            decoder_for(type_).decode(text)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_good_json_means_the_same_afterwards(value: object) -> None:
    text = json.dumps(value).encode(errors="surrogatepass")
    repaired = repair_json(text)

    try:
        meant = msgspec.json.decode(text)
    except ValueError:  # half of a surrogate pair, or a number that is too long
        msgspec.json.decode(repaired.text)
    else:
        assert repaired.restore(msgspec.json.decode(repaired.text)) == meant
