"""FilterFeasible: plugins that choose among the nodes that passed Filter and extenders.

scheduling_cycle ─► run_feasible_filter    only where a profile has such a plugin
"""

from __future__ import annotations

from time import perf_counter

from proreus.engine.runtime.find_nodes import FeasibleNodes
from proreus.engine.runtime.plugin_errors import check_allowed
from proreus.engine.runtime.points import call_plugin
from proreus.engine.runtime.profile import Profile
from proreus.framework.columns import read_only
from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.framework.status import SUCCESS, Code

POINT = "FilterFeasible"


def run_feasible_filter(
    profile: Profile, state: CycleState, pod: PodInfo, found: FeasibleNodes
) -> FeasibleNodes:
    """Return the nodes that are left, each plugin seeing what the one before it left.

    Raises ``PluginError``.
    """
    started, code = perf_counter(), SUCCESS
    for plugin in profile.feasible_filter:
        # A copy: what Filter found belongs to all pods of the equivalence class.
        verdicts = found.verdicts.copy()
        verdicts.plugin = plugin.name
        known = len(verdicts.statuses)
        # These very rows are scored: one that a plugin wrote there would not have been filtered.
        feasible = read_only(found.rows[:])
        call_plugin(plugin, POINT, state, plugin.filter_feasible, state, pod, feasible, verdicts)
        for status in verdicts.statuses[known:]:
            if status is not None:
                check_allowed(plugin, POINT, status)
        found = found.after_feasible_filter(verdicts)
        if not len(found.rows):
            found.held_back_by = (plugin.name,)
            code = Code.UNSCHEDULABLE
            break
    profile.point_seconds[POINT, code].observe(perf_counter() - started)
    return found
