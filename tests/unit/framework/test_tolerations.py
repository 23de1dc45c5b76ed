"""Pods with the same tolerations share one index of them."""

from __future__ import annotations

from proreus.base.bounded_cache import age_caches
from proreus.framework.tolerations import toleration_index
from proreus.objects.taints import Taint
from proreus.testing import make_pod

GPU = [{"key": "gpu", "operator": "Exists"}]


def test_equal_tolerations_have_one_index_for_as_long_as_a_pod_has_it() -> None:
    first = make_pod("first", tolerations=GPU)
    index = toleration_index(first)
    assert index.tolerates(Taint(key="gpu", effect="NoSchedule"))
    assert toleration_index(make_pod("other", tolerations=[{"key": "cpu"}])) is not index
    for _ in range(2):
        age_caches()  # nothing is left in them
    assert toleration_index(make_pod("second", tolerations=GPU)) is index


def test_a_number_too_long_to_be_one_matches_nothing() -> None:
    pod = make_pod("p", tolerations=[{"key": "k", "operator": "Gt", "value": "9" * 5_000}])
    assert not toleration_index(pod).tolerates(Taint(key="k", value="1"), compare_numbers=True)
