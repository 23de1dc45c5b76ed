"""Objects that keep the JSON that they were decoded from."""

import msgspec
import pytest

from proreus.objects.codec import decoder_for
from proreus.objects.node import Node
from proreus.objects.pod import Pod
from proreus.objects.with_json import (
    NodeWithJson,
    PendingPodWithJson,
    PodWithJson,
    carries_json,
    json_of,
    json_of_pod_on,
    keep_json,
)

POD = (
    b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"m"}],'
    b'"creationTimestamp":null},"spec":{"containers":[],"dnsPolicy":"ClusterFirst"%s},"status":{}}'
)
NODE = b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","managedFields":[1]},"x":{"y":1}}'


def read(type_, data):
    obj = decoder_for(type_).decode(data)
    keep_json(obj, data)
    return obj


def test_a_pod_keeps_unknown_fields_but_not_its_kind_and_managed_fields():
    pod = read(PodWithJson, POD % b"")
    assert json_of(pod) == (
        b'{"metadata":{"name":"a","creationTimestamp":null},'
        b'"spec":{"containers":[],"dnsPolicy":"ClusterFirst"},"status":{}}'
    )
    assert pod.metadata.name == "a"


def test_a_node_keeps_everything():
    expected = b'{"metadata":{"name":"n","managedFields":[1]},"x":{"y":1}}'
    assert json_of(read(NodeWithJson, NODE)) == expected


@pytest.mark.parametrize(("type_", "kept"), [(PodWithJson, True), (PendingPodWithJson, False)])
def test_a_pod_that_has_a_node(type_, kept):
    pod = read(type_, POD % b',"nodeName":"n"')
    assert bool(pod.json) is kept
    assert msgspec.json.decode(json_of(pod))["spec"]["nodeName"] == "n"


def test_an_assumed_pod_is_on_its_node():
    pod = read(PodWithJson, POD % b"")
    spec = msgspec.json.decode(json_of_pod_on(pod, "n"))["spec"]
    assert spec == {"containers": [], "dnsPolicy": "ClusterFirst", "nodeName": "n"}
    assert b"nodeName" not in json_of(pod)
    there = read(PodWithJson, POD % b',"nodeName":"n"')
    assert json_of_pod_on(there, "n") is there.json


def test_without_kept_json_the_typed_fields_are_encoded():
    data = b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c"}],"unknown":1}}'
    pod = decoder_for(Pod).decode(data)
    assert msgspec.json.decode(json_of(pod)) == {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c"}]},
    }


def test_plain_types_are_left_alone():
    assert [
        carries_json(t) for t in (Pod, Node, PodWithJson, PendingPodWithJson, NodeWithJson)
    ] == [
        *(False, False),
        *(True, True, True),
    ]
    keep_json(decoder_for(Pod).decode(POD % b""), POD % b"")


def test_a_copy_keeps_the_text():
    pod = read(PodWithJson, POD % b"")
    copy = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n"))
    assert copy.json == pod.json
