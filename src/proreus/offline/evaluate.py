"""``proreus evaluate``: answer recorded questions with the engine that schedules.

Cases and answers are JSON lines; a case asks for one decision (``pod``) or plays a script
(``steps``). A configuration that is refused, or feature gates, is an answer too (``configError``).
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from proreus.config.load import default_configuration, load
from proreus.config.types import Plugins
from proreus.errors import ConfigError, ProreusError
from proreus.feature_gates import FeatureGates
from proreus.offline.api import JsonObject
from proreus.offline.cluster import OfflineCluster
from proreus.offline.decisions import decide
from proreus.offline.scripts import play
from proreus.runtime.registry import Registry
from proreus.runtime.select_host import top_of_heap

_OFFLINE_GATES = ("SchedulerAsyncPreemption=false", "SchedulerAsyncAPICalls=false")
"""Recorded answers were made with everything inline, so that a step has an end."""


def evaluate(
    cases: Iterable[JsonObject],
    registry: Registry,
    configuration: Any = None,
    plugins: Plugins | None = None,
) -> Iterator[JsonObject]:
    """Yield ``{"id", "expect"}`` for each case; ``configuration`` stands in for cases without.

    ``plugins`` are merged over the default ones where there is no configuration at all.
    """
    with asyncio.Runner() as runner:
        for case in cases:
            answer = runner.run(_answer(case, registry, configuration, plugins))
            yield {"id": case["id"], "expect": answer}


async def _answer(
    case: JsonObject, registry: Registry, configuration: Any, plugins: Plugins | None
) -> JsonObject:
    try:
        gates = FeatureGates.from_list([*_OFFLINE_GATES, *case.get("features", ())])
        chosen = case.get("config") or configuration
        if chosen:
            loaded = load(chosen, registry, gates)
        else:
            loaded = default_configuration(registry, gates, plugins)
        # A single decision takes the cluster as it is told; a script is seen through a watch.
        script = "steps" in case
        cluster = OfflineCluster(
            loaded, registry, gates, hide_finished=script, select_host=top_of_heap
        )
    except ConfigError as error:
        return {"configError": str(error)}
    for obj in case["objects"]:
        cluster.api.add(obj)
    await cluster.settle()
    if script:
        return await play(cluster, case["steps"])
    return await decide(cluster, case["pod"])


def read_cases(path: Path) -> Iterator[JsonObject]:
    """Yield the cases of a file, ``.jsonl`` or ``.jsonl.gz``; raises ``ProreusError``."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                case = msgspec.json.decode(line)
                if not isinstance(case, dict) or not {"id", "objects"} <= case.keys():
                    raise ProreusError(f"{path}, line {number}: a case has an id and objects")
                yield case
    except OSError as error:
        raise ProreusError(f"cannot read {path}: {error.strerror or error}") from error
    except (EOFError, zlib.error) as error:
        raise ProreusError(f"cannot read {path}: {error}") from error
    except msgspec.DecodeError as error:
        raise ProreusError(f"{path}, line {number}: not JSON: {error}") from error
