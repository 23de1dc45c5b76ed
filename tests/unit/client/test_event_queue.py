"""Whose Event is written next, and how many of a namespace may wait."""

from proreus.client.writing.event_recorder import EventQueue


def take_all(queue):
    """Take Events that are never done."""
    taken = []
    while (event := queue.take()) is not None:
        taken.append(event)
    return taken


def test_namespaces_take_turns():
    queue = EventQueue(100, 10)
    for number in range(5):
        queue.put("many", f"many-{number}")
    queue.put("few", "few-0")
    assert take_all(queue) == ["many-0", "few-0", "many-1", "many-2", "many-3", "many-4"]
    assert len(queue) == 0


def test_a_namespace_whose_events_hang_leaves_half_of_the_room():
    queue = EventQueue(100, 8)
    for namespace in ("one", "two", "three"):
        for number in range(50):
            queue.put(namespace, f"{namespace}-{number}")
        taken = take_all(queue)
        assert all(event.startswith(namespace) for event in taken)
        assert len(taken) == {"one": 8, "two": 4, "three": 2}[namespace]
    queue.put("well", "event")
    for _ in range(10):
        assert queue.take() == "event"
        queue.done("well")
        queue.put("well", "event")
    queue.done("one")
    queue.done("two")
    assert queue.take() is not None


def test_a_namespace_does_not_fill_the_queue():
    queue = EventQueue(100, 8)
    assert sum(queue.put("many", number) for number in range(1000)) == 100
    assert sum(queue.put("others", number) for number in range(1000)) == 50
    assert queue.put("few", 0)
    assert len(queue) == 151
