"""Chooses the Kubernetes version that the process emulates, from the flag or the default.

kube-scheduler may not be newer than the apiserver. So without the flag the version of an older
apiserver is emulated; it serves other API versions of some kinds, and its users expect its
behaviour.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec.structs import replace

from proreus.base.errors import ApiError, Forbidden, Unauthorized
from proreus.base.feature_gates import FeatureGates
from proreus.base.kubernetes_version import DEFAULT_VERSION, SUPPORTED_VERSIONS, KubernetesVersion
from proreus.base.logs import logger
from proreus.client.http.backoff import Backoff
from proreus.client.http.connectivity import is_outage
from proreus.client.http.responses import Unreachable
from proreus.client.http.session import ApiClient
from proreus.process.options import RunOptions

log = logger(__name__)

_TRIES = 5


class _VersionInfo(msgspec.Struct):
    git_version: str = msgspec.field(name="gitVersion", default="")


async def with_emulated_version(options: RunOptions, client: ApiClient) -> RunOptions:
    """Return the options with the feature gates of the version that is to be emulated.

    Raises ``ApiError`` if the apiserver does not respond, ``ConfigError`` for a feature gate that
    the version does not have.
    """
    served = await _served_version(client)
    current = options.feature_gates.emulation_version
    if served is None:
        return options
    if options.emulates_given_version:
        if current > served:
            log.warning(
                "The emulated version is newer than the apiserver",
                emulated=str(current),
                apiserver=str(served),
            )
        return options
    wanted = _supported(served)
    if wanted != DEFAULT_VERSION:
        log.info(
            "Emulating the version of the apiserver", emulated=str(wanted), apiserver=str(served)
        )
    if wanted == current:
        return options
    gates = FeatureGates.from_list(
        options.gate_settings,
        wanted,
        options.feature_gates.min_compatibility,
        options.feature_gates.corrections,
    )
    version = options.version.replace(str(current), str(wanted), 1)
    return replace(options, feature_gates=gates, version=version)


async def version_to_emulate(client: ApiClient) -> KubernetesVersion:
    """Return the version that is emulated beside an apiserver where no flag says which.

    Raises ``ApiError`` if the apiserver does not respond.
    """
    served = await _served_version(client)
    return DEFAULT_VERSION if served is None else _supported(served)


def _supported(served: KubernetesVersion) -> KubernetesVersion:
    return min(max(served, SUPPORTED_VERSIONS[0]), DEFAULT_VERSION)


async def _served_version(client: ApiClient) -> KubernetesVersion | None:
    """Return the apiserver's version; None if it does not tell."""
    # Whether it accepts the credentials is seen by the informers, which ask again for a while.
    try:
        response = await _ask_version(client)
        return KubernetesVersion.parse(msgspec.json.decode(response, type=_VersionInfo).git_version)
    except (Forbidden, Unauthorized, msgspec.DecodeError, ValueError):
        return None


async def _ask_version(client: ApiClient) -> bytes:
    """Return the apiserver's answer to the first request of this process.

    One that cannot be reached is an error at once, since the address may be wrong; one that breaks
    off or fails is asked again for some seconds, since it may be about to start or to end.
    """
    backoff = Backoff(0.2, 2.0)
    for _ in range(_TRIES - 1):
        try:
            return await client.request("GET", "/version")
        except Unreachable:
            raise
        except ApiError as error:
            if not is_outage(error):
                raise
        await asyncio.sleep(backoff.next())
    return await client.request("GET", "/version")
