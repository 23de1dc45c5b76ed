"""``proreus evaluate``: recompute recorded scheduling decisions with the real scheduler.

Cases and results are JSON lines. A case has either ``pod``, one scheduling cycle of which every
detail is returned (``decision``), or ``queue``, pods that are compared, or ``steps``, a script that
is played step by step in virtual time (``script``). An invalid configuration or feature gate gives
the result ``configError``, an object that cannot be used the result ``error``.
``metrics`` is what servers answer to plugins that read metrics (null: an error), ``seen`` how many
seconds before the decision assigned pods appeared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from proreus.base import compressed_files
from proreus.base.errors import ApiError, ConfigError, ProreusError
from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import NO_CORRECTIONS, KnownFault
from proreus.base.kubernetes_version import V1_36, KubernetesVersion, parse_emulated_version
from proreus.config.load import default_configuration, load
from proreus.config.types import Plugins
from proreus.engine.runtime.registry import Registry
from proreus.engine.runtime.select_host import root_of_heap
from proreus.offline.api import InMemoryApi, JsonObject
from proreus.offline.case_errors import check_fields, reading
from proreus.offline.cluster import OfflineCluster, OfflineOptions
from proreus.offline.decision import compare_in_queue, decide
from proreus.offline.fake_extenders import FakeExtenders, check_behaviours
from proreus.offline.script import Script
from proreus.offline.virtual_time import VirtualTimeLoop

_OFFLINE_GATES = ("SchedulerAsyncPreemption=false", "SchedulerAsyncAPICalls=false")
"""The recorded results were made without background API calls, so that every step ends."""

_CLOCK = 1_767_225_600.0
"""2026-01-01T00:00:00Z, where the clock of the recorded schedulers stood."""


@dataclass(frozen=True)
class Fallbacks:
    """Defaults of cases.

    ``configuration``: as read from a file; without one the default configuration applies, with
    ``plugins`` merged over the default plugins. ``version``: the Kubernetes version to emulate.
    ``corrections``: the faults of kube-scheduler to correct, in all cases.
    """

    configuration: Any = None
    plugins: Plugins | None = None
    version: KubernetesVersion = V1_36
    corrections: frozenset[KnownFault] = NO_CORRECTIONS


def evaluate(
    cases: Iterable[JsonObject], registry: Registry, fallbacks: Fallbacks = Fallbacks()
) -> Iterator[JsonObject]:
    """Yield ``{"id", "expect"}`` for each case."""
    for case in cases:
        # A loop for each case: time starts anew, and no binding cycle of another case goes on.
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            try:
                check_fields(case)
                expect = runner.run(_evaluate(case, registry, fallbacks))
            except ProreusError as error:
                expect = {"error": str(error)}
        yield {"id": case["id"], "expect": expect}


async def _evaluate(case: JsonObject, registry: Registry, fallbacks: Fallbacks) -> JsonObject:
    # A single decision uses the objects as given, finished pods included; a script sees them
    # through a watch, whose field selector excludes those.
    script = "steps" in case
    api = InMemoryApi(hide_finished=script)
    try:
        extenders = FakeExtenders(check_behaviours(case.get("extenders") or {}), api)
        cluster = _cluster(case, registry, fallbacks, api, extenders)
        player = Script(cluster, extenders, case.get("observe") or ()) if script else None
    except ConfigError as error:
        return {"configError": str(error)}
    await _add_objects(case, cluster)
    await cluster.settle()
    if "metrics" in case:
        # Plugins read them in the background; none of their waits ends while the clock stands.
        cluster.scheduler.start_background_work()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        await loop.run_until_idle()
    if player is not None:
        with reading("steps"):
            steps = list(enumerate(case["steps"]))
        return {"trace": [await player.play(f"steps[{index}]", step) for index, step in steps]}
    if "queue" in case:
        return {"less": compare_in_queue(cluster, case["queue"])}
    with reading("case"):
        pod = case["pod"]
    return await decide(cluster, pod)


async def _add_objects(case: JsonObject, cluster: OfflineCluster) -> None:
    """Add the objects of a case; pods in ``seen`` so many seconds before the decision."""
    seen: dict[str, float] = case.get("seen") or {}
    late: list[tuple[float, str, JsonObject]] = []
    for index, obj in enumerate(case["objects"]):
        place = f"objects[{index}]"
        with reading(place, obj):
            if obj["kind"] == "Pod" and obj["metadata"]["name"] in seen:
                late.append((_CLOCK - seen[obj["metadata"]["name"]], place, obj))
            else:
                cluster.api.add(obj)
    for due, place, obj in sorted(late, key=itemgetter(0)):
        await cluster.pass_time(max(due - cluster.clock.now(), 0))
        with reading(place, obj):
            cluster.api.add(obj)
    await cluster.pass_time(max(_CLOCK - cluster.clock.now(), 0))


class _LoadWatcher:
    """Answers with the ``metrics`` of a case, or with an error."""

    def __init__(self, metrics: JsonObject | None) -> None:
        self._metrics = metrics

    async def __call__(self, url: str, **_: object) -> bytes:
        if self._metrics is None:
            raise ApiError(500, "Internal Server Error", f"{url} answered 500")
        return msgspec.json.encode(self._metrics)


def _cluster(
    case: JsonObject,
    registry: Registry,
    fallbacks: Fallbacks,
    api: InMemoryApi,
    extenders: FakeExtenders,
) -> OfflineCluster:
    """Return the cluster of a case, without its objects; raises ``ConfigError``."""
    stated = case.get("kubernetesVersion")
    version = (
        fallbacks.version if stated is None else parse_emulated_version(stated, "kubernetesVersion")
    )
    gates = FeatureGates.from_list(
        [*_OFFLINE_GATES, *(case.get("features") or ())], version, corrections=fallbacks.corrections
    )
    chosen = case.get("config") or fallbacks.configuration
    if chosen:
        loaded = load(chosen, registry, gates)
    else:
        loaded = default_configuration(registry, gates, fallbacks.plugins)
    options = OfflineOptions(
        select_host=root_of_heap,
        use_extenders="extenders" in case,
        extender_transport=extenders.transport,
        polls_only=True,
        start_seconds=_CLOCK - max((case.get("seen") or {}).values(), default=0),
        http_get=_LoadWatcher(case.get("metrics")),
    )
    cluster = OfflineCluster(loaded, registry, gates, options, api)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.use_clock(cluster.clock)
    return cluster


def read_cases(
    path: Path, on_unusable: Callable[[ProreusError], None] | None = None
) -> Iterator[JsonObject]:
    """Yield the cases of a file, ``.jsonl`` or ``.jsonl.gz``; raises ``ProreusError``.

    ``on_unusable``: called with the error of a line that is no case, after which the next is read.
    """
    for number, line in compressed_files.lines(path):
        try:
            yield _case_of(line, f"{path}, line {number}")
        except ProreusError as error:
            if on_unusable is None:
                raise
            on_unusable(error)


def _case_of(line: bytes, place: str) -> JsonObject:
    try:
        case = msgspec.json.decode(line)
    except RecursionError:
        raise ProreusError(f"{place}: nested too deep") from None
    except ValueError as error:
        raise ProreusError(f"{place}: not JSON: {error}") from error
    if not isinstance(case, dict) or not {"id", "objects"} <= case.keys():
        raise ProreusError(f"{place}: a case has an id and objects")
    return case
