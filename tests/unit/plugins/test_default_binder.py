"""DefaultBinder: the apiserver's response is the status."""

from __future__ import annotations

from proreus.framework.cycle_state import CycleState
from proreus.framework.status import Status
from proreus.objects.kinds import PODS
from proreus.plugins.default_binder import DefaultBinder
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod


async def test_the_pod_is_bound() -> None:
    pod = make_pod("a")
    handle = FakeHandle([make_node("n1")], [pod])

    status = await make_plugin(DefaultBinder, handle).bind(CycleState(), pod, "n1")

    assert status is None
    assert handle.store(PODS)["default/a"].spec.node_name == "n1"


async def test_an_error_of_the_apiserver_is_the_message() -> None:
    handle = FakeHandle([make_node("n1")])

    status = await make_plugin(DefaultBinder, handle).bind(CycleState(), make_pod("a"), "n1")

    assert status == Status.error('pods "a" not found')
