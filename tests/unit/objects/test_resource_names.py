"""Kinds of resources by their names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.objects.resource_names import (
    is_extended_resource,
    is_scalar_resource,
    is_tracked_resource,
)
from proreus.objects.selectors import is_qualified_name


@pytest.mark.parametrize(
    ("name", "extended", "scalar", "tracked"),
    [
        ("cpu", False, False, True),
        ("ephemeral-storage", False, False, True),
        ("pods", False, False, False),
        ("storage", False, False, False),
        ("hugepages-2Mi", False, True, True),
        ("attachable-volumes-csi-x", False, True, True),
        ("example.com/gpu", True, True, True),
        ("kubernetes.io/x", False, True, True),
        ("sub.kubernetes.io/x", False, True, True),
        ("deviceclass.resource.kubernetes.io/x", False, True, True),
        ("requests.example.com/gpu", False, False, False),
        ("bad name/gpu", False, False, False),
    ],
)
def test_kinds_of_resources(name: str, extended: bool, scalar: bool, tracked: bool) -> None:
    assert is_extended_resource(name) is extended
    assert is_scalar_resource(name) is scalar
    assert is_tracked_resource(name) is tracked


_pieces = st.sampled_from(
    [
        *("cpu", "requests.", "example", ".com", "/", "kubernetes.io/", "-", "A", "é", "\n", "0"),
        *("hugepages-", "attachable-volumes-", "x" * 60, "y" * 120, "_", "."),
    ]
)


@given(st.lists(_pieces, max_size=6))
def test_tracked_resources_by_their_definition(pieces: list[str]) -> None:
    name = "".join(pieces)
    extended = (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and is_qualified_name(f"requests.{name}")
    )
    prefixed = name.startswith(("hugepages-", "attachable-volumes-"))
    scalar = extended or prefixed or "kubernetes.io/" in name
    assert is_extended_resource(name) is extended
    assert is_scalar_resource(name) is scalar
    assert is_tracked_resource(name) is (scalar or name in ("cpu", "memory", "ephemeral-storage"))
