import json
from typing import Any

import pytest

from proreus.workbench.sandbox.api_errors import StatusError
from proreus.workbench.sandbox.collection import field_labels
from proreus.workbench.sandbox.selectors import ALL, SelectionPredicate, parse_selector
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.watch import Watch, converter_for


def watch(store: Store, selector: SelectionPredicate = ALL, plural: str = "pods") -> Watch:
    collection = store.collection(plural)
    return Watch(collection, selector, collection.end, collection.select(None, selector))


def events(data: bytes) -> list[tuple[str, str]]:
    lines = [json.loads(line) for line in data.splitlines()]
    return [(line["type"], line["object"]["metadata"]["name"]) for line in lines]


def create(store: Store, name: str, **labels: str) -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c"}]}
    store.create("pods", {"metadata": {"name": name, "labels": labels}, "spec": spec})


def test_existing_objects_come_first_then_changes(store: Store) -> None:
    create(store, "a")
    watcher = watch(store)
    assert events(watcher.next_events()) == [("ADDED", "a")]
    assert watcher.next_events() == b""
    create(store, "b")
    store.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}}, "default")
    store.delete("pods", "b", "default")
    assert events(watcher.next_events()) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert watcher.next_events() == b""


def test_objects_that_begin_or_cease_to_match_are_added_or_deleted(store: Store) -> None:
    create(store, "a", app="x")
    watcher = watch(store, parse_selector("app=x", "", ()))
    watcher.next_events()

    def label(value: str) -> None:
        store.patch("pods", "a", {"metadata": {"labels": {"app": value}}}, "default")

    label("y")
    line = json.loads(watcher.next_events())
    assert line["type"] == "DELETED"
    assert line["object"]["metadata"]["labels"] == {"app": "x"}
    assert line["object"]["metadata"]["resourceVersion"] == str(store.revision)
    label("z")
    assert watcher.next_events() == b""
    label("x")
    assert events(watcher.next_events()) == [("ADDED", "a")]
    label("y")
    store.delete("pods", "a", "default")
    assert events(watcher.next_events()) == [("DELETED", "a")]


def test_a_backlog_comes_in_batches(store: Store) -> None:
    for number in range(5):
        create(store, f"p{number}")
    watcher = watch(store)
    create(store, "p5")
    create(store, "p6")
    pieces = []
    while piece := watcher.next_events(most=2):
        pieces.append([name for _, name in events(piece)])
    assert pieces == [["p0", "p1"], ["p2", "p3"], ["p4"], ["p5", "p6"]]


def test_changes_that_do_not_concern_it_do_not_stop_a_watch(store: Store) -> None:
    watcher = watch(store, parse_selector("", "metadata.name=p9", field_labels(())))
    for number in range(10):
        create(store, f"p{number}")
    assert events(watcher.next_events(most=1)) == [("ADDED", "p9")]


def test_a_watch_behind_a_compaction_gets_410(store: Store) -> None:
    watcher = watch(store)
    create(store, "a")
    store.compact()
    with pytest.raises(StatusError) as refused:
        watcher.next_events()
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_events_are_converted_between_versions(store: Store) -> None:
    regarding = {"kind": "Pod", "name": "p", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "regarding": regarding, "note": "text", "reason": "R"}
    store.create("events.events.k8s.io", event)
    old = store.resources.find("events")
    convert = converter_for(old)
    assert convert is not None
    fields = "involvedObject.name=p,reason=R"
    selector = parse_selector("", fields, field_labels(old.fields))
    (version,) = store.list(old, "default", selector)
    shown = json.loads(convert(version.data))
    assert (shown["apiVersion"], shown["message"]) == ("v1", "text")
    assert shown["involvedObject"] == regarding
    store.create(old, shown | {"metadata": {"name": "e2"}})
    again = store.get("events.events.k8s.io", "e2", "default").object()
    assert (again["apiVersion"], again["note"]) == ("events.k8s.io/v1", "text")
