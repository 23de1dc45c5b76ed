"""Versions as text and numbers, and the changes between them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import proreus
from proreus.base.errors import ConfigError
from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    V1_36,
    V1_37,
    Change,
    KubernetesVersion,
    parse_emulated_version,
)

SOURCES = [path.read_text() for path in Path(proreus.__file__).parent.rglob("*.py")]


@pytest.mark.parametrize("text", ["1.37", "v1.37.1", " 1.37+", "v1.37.0-alpha.1"])
def test_versions_are_read_as_kubernetes_writes_them(text: str) -> None:
    assert KubernetesVersion.parse(text) == V1_37
    assert str(V1_37) == "1.37"
    assert V1_37.previous() == V1_36 < V1_37


@pytest.mark.parametrize("text", ["", "latest", "37"])
def test_rejects_invalid_versions(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a version of Kubernetes, such as"):
        parse_emulated_version(text, "--emulated-version")


@pytest.mark.parametrize("text", ["1.35", "1.39"])
def test_only_supported_versions_are_emulated(text: str) -> None:
    fault = r"--emulated-version: emulation version .* is not between \[1.36, 1.38.0\]"
    with pytest.raises(ConfigError, match=fault):
        parse_emulated_version(text, "--emulated-version")
    assert DEFAULT_VERSION in SUPPORTED_VERSIONS


@pytest.mark.parametrize("change", Change, ids=lambda change: change.name)
def test_every_change_is_asked_for_somewhere(change: Change) -> None:
    assert change.since in SUPPORTED_VERSIONS[1:]
    assert not V1_36.includes(change)
    assert SUPPORTED_VERSIONS[-1].includes(change)
    named = re.compile(rf"\bChange\.{change.name}\b")
    assert any(named.search(source) for source in SOURCES)
