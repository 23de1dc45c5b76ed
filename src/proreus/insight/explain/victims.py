"""Finds the reason for each victim: the plugin that would reject the preemptor beside that pod.

Asked of the engine while the preemptor waits; of victims that are gone nothing can be asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proreus.base.errors import PluginError
from proreus.framework.pod_info import PodInfo
from proreus.insight.explain.engine import Engine


def rejections_beside(
    engine: Engine, pod: PodInfo, node: str, victims: Sequence[str]
) -> Mapping[str, str]:
    """Return, by victim, why the pod would not fit the node if only the other victims were gone.

    ``victims``: ``namespace/name``. Left out are those that are gone, and those beside which the
    pod would fit by now.
    """
    row = engine.table.rows.get(node)
    if row is None:
        return {}
    present = {other.key: other for other in engine.table[row].pods.values()}
    left = [present[key] for key in victims if key in present]
    found: dict[str, str] = {}
    for victim in left:
        if engine.out_of_time:
            break
        try:
            others = [other for other in left if other is not victim]
            status = (
                engine.rejection_without(pod, row, others) if others else engine.rejection(pod, row)
            )
        except PluginError:
            continue
        if status is not None:
            found[victim.key] = f"{', '.join(status.reasons)} ({status.plugin})"
    return found
