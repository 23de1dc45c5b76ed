"""Request and response bodies, byte for byte as Go writes and reads them."""

import json

import pytest

from proreus.base.errors import ExtenderError
from proreus.engine.extenders.extender_wire import (
    MetaVictims,
    extender_args,
    extender_binding_args,
    extender_preemption_args,
    read_binding_result,
    read_filter_result,
    read_host_priority_list,
    read_preemption_result,
)
from proreus.framework.post_filter_result import Victims
from proreus.objects.codec import decoder_for
from proreus.objects.with_json import NodeWithJson, PodWithJson, keep_json
from proreus.testing.builders import make_pod


def whole(type_, data):
    obj = decoder_for(type_).decode(data)
    keep_json(obj, data)
    return obj


POD = b'{"metadata":{"name":"p","namespace":"ns","uid":"u"},"spec":{"new":1}}'
NODES = [b'{"metadata":{"name":"n0"}}', b'{"metadata":{"name":"n1"},"extra":true}']


@pytest.fixture
def pod():
    return whole(PodWithJson, POD)


@pytest.fixture
def nodes():
    return [whole(NodeWithJson, data) for data in NODES]


def test_whole_nodes(pod, nodes):
    assert extender_args(pod, nodes, by_name=False) == (
        b'{"Pod":' + POD + b',"Nodes":{"metadata":{},"items":[' + b",".join(NODES) + b"]},"
        b'"NodeNames":null}'
    )


def test_names(pod, nodes):
    expected = b'{"Pod":' + POD + b',"Nodes":null,"NodeNames":["n0","n1"]}'
    assert extender_args(pod, nodes, by_name=True) == expected


def test_preemption(pod):
    victim = make_pod("v", node_name="n1")
    victims = {"n1": Victims((victim,), 1), "n0": Victims((victim,), 0)}
    by_name = json.loads(extender_preemption_args(pod, victims, by_name=True))
    meta = {"Pods": [{"UID": "uid-of-default-v"}], "NumPDBViolations": 0}
    assert by_name == {
        "Pod": json.loads(POD),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n0": meta, "n1": {**meta, "NumPDBViolations": 1}},
    }
    assert list(by_name["NodeNameToMetaVictims"]) == ["n0", "n1"]
    full = json.loads(extender_preemption_args(pod, victims, by_name=False))
    assert full["NodeNameToMetaVictims"] is None
    (sent,) = full["NodeNameToVictims"]["n0"]["Pods"]
    assert (sent["metadata"]["name"], sent["spec"]["nodeName"]) == ("v", "n0")


def test_binding(pod):
    assert extender_binding_args(pod, "n0") == (
        b'{"PodName":"p","PodNamespace":"ns","PodUID":"u","Node":"n0"}'
    )


@pytest.mark.parametrize(
    ("by_name", "answer", "names", "as_objects"),
    [
        (True, {"NodeNames": ["b", "a"]}, ["b", "a"], False),
        (True, {"nodenames": [], "Nodes": {"items": [{"metadata": {"name": "x"}}]}}, [], False),
        (True, {"NodeNames": None, "Nodes": {"items": [{"metadata": {"name": "x"}}]}}, ["x"], True),
        (False, {"NodeNames": ["a"], "Nodes": None}, [], True),
        (False, {"nodes": {"Items": [{"Metadata": {"Name": "x"}}, {}]}}, ["x", ""], True),
        (False, {"Nodes": {"items": None}}, [], True),
        (False, None, [], True),
        (True, {"Unknown": [1, 2], "Error": ""}, [], True),
    ],
)
def test_which_nodes_are_left(by_name, answer, names, as_objects):
    filtered = read_filter_result(json.dumps(answer).encode(), by_name)
    assert (filtered.names, filtered.as_objects) == (names, as_objects)
    assert filtered.failed == filtered.unresolvable == {}


def test_reasons():
    answer = b'{"FailedNodes":{"a":"busy"},"FAILEDANDUNRESOLVABLENODES":{"b":"never"},"Error":null}'
    filtered = read_filter_result(answer, True)
    assert (filtered.failed, filtered.unresolvable) == ({"a": "busy"}, {"b": "never"})


@pytest.mark.parametrize("read", [read_binding_result, lambda body: read_filter_result(body, True)])
def test_an_error_is_raised_in_its_own_words(read):
    read(b'{"Error":""}')
    read(b"{}")
    with pytest.raises(ExtenderError, match=r"^out of luck$"):
        read(b'{"error":"out of luck"}')


def test_scores():
    answer = b'[{"Host":"a","Score":5},{"host":"b","score":-1000},{"Host":null},{"Score":3}]'
    assert read_host_priority_list(answer) == [("a", 5), ("b", -1000), ("", 0), ("", 3)]
    assert read_host_priority_list(b"null\n") == []


def test_victims():
    answer = b"""{"NodeNameToMetaVictims": {
        "a": {"Pods": [{"UID": "1"}, {"uid": "2"}], "NumPDBViolations": 2},
        "b": {"Pods": null}, "c": null}}"""
    assert read_preemption_result(answer) == {
        "a": MetaVictims(["1", "2"], 2),
        "b": MetaVictims([], 0),
        "c": MetaVictims([], 0),
    }
    assert (
        read_preemption_result(b"{}")
        == read_preemption_result(b'{"NodeNameToMetaVictims":null}')
        == {}
    )


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (read_binding_result, b""),
        (read_binding_result, b"<html>"),
        (read_binding_result, b'{"Error":5}'),
        (read_host_priority_list, b"{}"),
        (read_host_priority_list, b'[{"Host":"a","Score":"5"}]'),
        (read_preemption_result, b'{"NodeNameToMetaVictims":[]}'),
        (lambda body: read_filter_result(body, True), b'{"NodeNames":"a"}'),
    ],
)
def test_what_cannot_be_read_is_an_error(read, body):
    with pytest.raises(ExtenderError, match=r"^the extender's answer cannot be read: "):
        read(body)
