"""The version that a process emulates: the flag's, the default, or that of an older apiserver."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proreus.base.errors import ApiError, ConfigError, Forbidden, NotFound
from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import KnownFault
from proreus.base.kubernetes_version import DEFAULT_VERSION, V1_36, V1_37, KubernetesVersion
from proreus.client.http.responses import ResponseLost, Unreachable
from proreus.process.emulation import version_to_emulate, with_emulated_version
from proreus.process.options import RunOptions


class Apiserver:
    """Answers /version, after failing with ``errors``."""

    def __init__(self, version: str | None, *errors: Exception) -> None:
        self._version = version
        self._errors = list(errors)
        self.requests = 0

    async def request(self, method: str, path: str) -> bytes:
        assert (method, path) == ("GET", "/version")
        self.requests += 1
        if self._errors:
            raise self._errors.pop(0)
        if self._version is None:
            raise Forbidden(403, "Forbidden", "no")
        return json.dumps({"gitVersion": self._version}).encode()


async def emulated(options: RunOptions, version: str | None) -> KubernetesVersion:
    found = await with_emulated_version(options, Apiserver(version))  # type: ignore[arg-type]
    return found.feature_gates.emulation_version


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("v1.36.2", V1_36),
        ("v1.37.1", V1_37),
        ("v1.35.9", V1_36),
        ("v1.40.0", V1_37),
        (None, DEFAULT_VERSION),
        ("odd", DEFAULT_VERSION),
    ],
)
async def test_without_a_flag_nothing_newer_than_the_apiserver_is_emulated(
    version: str | None, found: KubernetesVersion
) -> None:
    assert await emulated(RunOptions(), version) == found
    assert await version_to_emulate(Apiserver(version)) == found  # type: ignore[arg-type]


async def test_a_flag_is_obeyed() -> None:
    gates = FeatureGates(emulation_version=V1_37)
    options = RunOptions(feature_gates=gates, emulates_given_version=True)
    assert await emulated(options, "v1.37.1") == V1_37
    assert await emulated(options, "v1.36.2") == V1_37


async def test_faults_are_corrected_whatever_the_version() -> None:
    corrections = frozenset({KnownFault.PINNED_VICTIM})
    options = RunOptions(feature_gates=FeatureGates(corrections=corrections))
    found = await with_emulated_version(options, Apiserver("v1.36.2"))  # type: ignore[arg-type]
    assert found.feature_gates.emulation_version == V1_36
    assert found.feature_gates.corrections == corrections


async def test_gates_are_read_again_for_the_version() -> None:
    settings = ("DRADerivedAttributes=true",)
    options = RunOptions(
        feature_gates=FeatureGates.from_list(settings, V1_37), gate_settings=settings
    )
    with pytest.raises(ConfigError, match=r"PreAlpha at emulated version 1\.36"):
        await emulated(options, "v1.36.2")


BROKEN = ResponseLost("Server disconnected"), ApiError(502, "Unknown", "bad gateway")


@pytest.mark.looptime
async def test_an_apiserver_that_fails_at_the_start_is_asked_again_for_a_while() -> None:
    apiserver: Any = Apiserver("v1.36.2", *BROKEN, *BROKEN)
    await with_emulated_version(RunOptions(), apiserver)
    assert apiserver.requests == 5
    apiserver = Apiserver("v1.36.2", *BROKEN * 3)
    with pytest.raises(ResponseLost):
        await with_emulated_version(RunOptions(), apiserver)
    assert apiserver.requests == 5
    assert asyncio.get_running_loop().time() < 20


@pytest.mark.parametrize("error", [Unreachable("refused"), NotFound(404, "NotFound", "no")])
async def test_an_address_without_an_apiserver_is_an_error_at_once(error: ApiError) -> None:
    apiserver: Any = Apiserver("v1.36.2", error)
    with pytest.raises(type(error)):
        await with_emulated_version(RunOptions(), apiserver)
    assert apiserver.requests == 1
