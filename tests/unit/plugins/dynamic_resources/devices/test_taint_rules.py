"""DeviceTaintRules: what they select, and what a change of one costs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proreus.framework.events import DEVICE_TAINT_RULE
from proreus.objects.devices import (
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from proreus.objects.meta import ObjectMeta
from proreus.plugins.dynamic_resources.devices.taint_rules import TaintRules, selects_some
from proreus.plugins.dynamic_resources.dra_manager import DRAManager

PARTS = st.sampled_from([None, "a", "b"])
SELECTORS = st.none() | st.builds(DeviceTaintSelector, driver=PARTS, pool=PARTS, device=PARTS)
DEVICES = [(d, p, n) for d in "ab" for p in "ab" for n in "ab"]


def rule_of(name: str, selector: DeviceTaintSelector | None, key: str) -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(device_selector=selector, taint=DeviceTaint(key=key))
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), SELECTORS | st.just("gone")), max_size=12),
    st.booleans(),
)
def test_taints_are_those_of_the_rules_that_select_the_device(
    changes: list[tuple[str, Any]], nil_selects_all: bool
) -> None:
    rules, known = TaintRules(nil_selects_all), dict[str, DeviceTaintRule]()
    for number, (name, selector) in enumerate(changes):
        old = known.pop(name, None)
        new = None if selector == "gone" else rule_of(name, selector, str(number))
        before = {one: rules.taints_of(*one) for one in DEVICES}
        changed = rules.put(old, new)
        if new is not None:
            known[name] = new
        for one in DEVICES:
            expected = tuple(
                rule.spec.taint
                for rule in known.values()
                if _selects(rule.spec.device_selector, *one, nil_selects_all)
            )
            assert rules.taints_of(*one) == expected
            concerned = any(selects_some(each, *one[:2], [Device(name=one[2])]) for each in changed)
            assert concerned or before[one] == expected


def _selects(
    selector: DeviceTaintSelector | None, driver: str, pool: str, device: str, nil: bool
) -> bool:
    if selector is None:
        return nil
    wanted = (selector.driver, selector.pool, selector.device)
    return all(one in (None, own) for one, own in zip(wanted, (driver, pool, device), strict=True))


def test_a_rule_costs_what_it_selects(cluster: Any) -> None:
    """Before, each change of a rule made all devices of the cluster be looked at again."""
    many = cluster(*(f"n{n}" for n in range(10)), gates=["DRADeviceTaintRules=true"])
    many.device_class()
    for number in range(10):
        many.slice("d", node=f"n{number}")
    many.claim("x")
    assert many.filter(many.pod("x")) == {}
    manager = DRAManager.of(many.handle, many.plugin.features)
    index = manager.availability_index
    before = {f"n{n}": index.views_of(f"n{n}") for n in range(10)}

    rule = {"deviceSelector": {"pool": "n3"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    many.handle.add({"kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": rule})
    assert set(many.filter(many.pod("x"))) == {"n3"}
    after = {f"n{n}": index.views_of(f"n{n}") for n in range(10)}
    assert {name for name, views in after.items() if views is not before[name]} == {"n3"}

    # The eviction controller writes into the status of a rule again and again.
    status = {"conditions": [{"type": "EvictionInProgress", "status": "True"}]}
    many.handle.add(
        {"kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": rule, "status": status}
    )
    assert index.views_of("n3") is after["n3"]


def test_whether_a_rule_wakes_pods_is_found_once_for_all_of_them(cluster: Any) -> None:
    woken = cluster("n1", gates=["DRADeviceTaintRules=true"])
    woken.slice("d", node="n1")
    events = {event.resource: event for event in woken.plugin.events_to_register()}
    hint = events[DEVICE_TAINT_RULE].hint
    pods = [woken.pod("x"), woken.pod("y")]
    selecting = rule_of("r", DeviceTaintSelector(device="d"), "k")
    other = rule_of("r", DeviceTaintSelector(device="gone"), "k")
    assert [hint(pod, None, selecting) for pod in pods] == [True, True]
    assert [hint(pod, None, other) for pod in pods] == [False, False]
    assert [hint(pod, selecting, other) for pod in pods] == [True, True]
    assert [hint(pod, other, other) for pod in pods] == [False, False]
