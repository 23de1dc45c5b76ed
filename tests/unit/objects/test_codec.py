"""Decoding: nulls as in Go, unknown fields, wrong types."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from proreus.objects.codec import (
    DecodeError,
    Decoder,
    decoder_for,
    typed_decoder,
    without_nulls,
)
from proreus.objects.node import Node
from proreus.objects.pod import Pod


def test_nulls_count_as_absent() -> None:
    text = b"""{"metadata": {"name": "a", "labels": null, "creationTimestamp": null},
      "spec": {"containers": [{"name": "c", "resources": null, "ports": null}],
               "tolerations": null, "nodeSelector": null, "affinity": {"nodeAffinity": null}},
      "status": {"conditions": null}}"""

    pod = decoder_for(Pod).decode(text)

    assert pod.metadata.labels == {}
    assert pod.spec.tolerations == ()
    assert pod.spec.node_selector is None
    assert pod.spec.containers[0].resources.requests == {}
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is None


def test_absent_and_empty_differ_where_it_matters() -> None:
    decode = decoder_for(Pod).decode

    assert decode(b"{}").spec.node_selector is None
    assert decode(b'{"spec": {"nodeSelector": {}}}').spec.node_selector == {}


def test_unknown_fields_pass_by() -> None:
    node = decoder_for(Node).decode(b'{"spec": {"podCIDR": "10.0.0.0/24"}, "later": [1]}')

    assert node == Node()


def test_wrong_types_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `array`"):
        decoder_for(Pod).decode(b'{"spec": {"tolerations": "all", "nodeName": null}}')


def test_quantities_may_be_numbers() -> None:
    node = decoder_for(Node).decode(b'{"status": {"allocatable": {"cpu": 4, "memory": "1Gi"}}}')

    assert node.status.allocatable == {"cpu": 4, "memory": "1Gi"}


def test_nulls_in_lists_stay() -> None:
    assert without_nulls({"a": [None, {"b": None}], "c": None}) == {"a": [None, {}]}


@pytest.mark.parametrize(
    "status",
    [
        b'{"nominatedNodeName":1e400}',
        b'{"conditions":[{"type":1e400}]}',
        b'{"allocatedResources":{"cpu":1e400}}',
    ],
)
def test_a_number_that_no_float_holds_is_no_text(status: bytes) -> None:
    with pytest.raises(DecodeError):
        Decoder(Pod).decode(b'{"metadata":{"name":"p"},"status":%s}' % status)
    assert Decoder(Pod).decode(b'{"metadata":{"name":"p"},"other":%s}' % status)


def test_threads_make_decoders_one_after_the_other(monkeypatch) -> None:
    # Otherwise msgspec crashes: a nested Struct may be known to it with some of its fields only.
    at_work, most = 0, 0

    def make(type_: type) -> type:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.02)
        at_work -= 1
        return type_

    monkeypatch.setattr(msgspec.json, "Decoder", make)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(typed_decoder, (Node, Pod, Node, Pod))) == [Node, Pod, Node, Pod]
    assert most == 1
