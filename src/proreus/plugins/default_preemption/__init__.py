"""DefaultPreemption: evict lower-priority pods from the node where that costs least.

Source: KEP-268 and kube-scheduler (``plugins/defaultpreemption``, ``framework/preemption``).
kube-scheduler's steps, in the order in which an attempt takes them, and where they are here:

==========================================  ====================================================
kube-scheduler                              this package
==========================================  ====================================================
PodEligibleToPreemptOthers                  ``plugin``: ``ineligibility``
findCandidates, GetOffsetAndNumCandidates   ``plugin``: ``_find_candidates``, ``num_candidates``
DryRunPreemption                            ``candidates``: ``DryRun.candidates``
SelectVictimsOnNode:
- potential victims, most important first   ``potential_victims``: ``PodsByPriority``
- filterPodsWithPDBViolation                ``potential_victims``: ``DisruptionBudgets``
- remove all, then reprieve one by one      ``candidates``: ``DryRun._victims``, which calls
                                            ``engine.runtime.dry_run.PreemptionDryRun``
callExtenders                               ``plugin``: ``_call_extenders``
SelectCandidate, pickOneNodeForPreemption   ``select_candidate``
prepareCandidate, prepareCandidateAsync     ``eviction``: ``Evictor``
PreEnqueue while victims terminate          ``plugin``: ``pre_enqueue``;
                                            ``running_preemptions``: ``RunningPreemptions``
==========================================  ====================================================

Where pod groups count (KEP-5710, gate GenericWorkload from 1.37 on), pods may be evicted together,
and a group may preempt as a whole:

==========================================  ====================================================
kube-scheduler                              this package
==========================================  ====================================================
getCrossNodesVictims, DomainVictim          ``domain_victims``: ``DomainVictims``
MoreImportantVictim                         ``domain_victims``: ``DomainVictim.importance``
GetPodPriority                              ``domain_victims``: ``DomainVictims.priority_of``
FilterVictimsWithPDBViolation               ``potential_victims``: ``DisruptionBudgets``,
                                            ``reprieve_order``
SelectVictimsOnNode, on a node with groups  ``unit_dry_run``: ``UnitDryRun``
PodGroupEvaluator                           ``pod_group_preemption``: ``PodGroupEvaluator``
RankNodes, CompareVictimSets                ``victim_costs``: ``VictimCosts``
reprieveVictim of selectVictimsOnDomain     ``engine.runtime.pod_group_reprieve``:
                                            ``PodGroupReprieve``
PodGroupEvaluator of 1.37                   ``pod_group_preemption_v1_37``:
                                            ``PodGroupEvaluatorV137``
PodGroupEvaluator of 1.36                   ``pod_group_preemption_v1_36``:
                                            ``PodGroupPreemption``
==========================================  ====================================================

Three things are ours; none of them changes a result:

- Lockstep over columns. kube-scheduler's workers dry-run one node each. Here a step removes all
  lower-priority pods from all candidate rows at once, and each further step reprieves one victim on
  every row, so that a filter evaluates columns (``framework.dry_run_table``).
- ``PodsByPriority`` keeps the pods of each node sorted from one preemption to the next.
- ``DryRunCache`` keeps the result of each row for the preemptors with the same ``DryRunKey``
  (equivalence key) and priority. A row is dry-run again after it changed.

Worked example: a pod of priority 100 requests 2 CPUs. Node ``a`` (4 CPUs) runs pods of priorities
50, 10 and 0 that request 2, 1 and 1 CPUs; node ``b`` (2 CPUs) runs one pod of priority 50 that
requests 2. Without them the pod fits both nodes. The first step reprieves the pods of priority 50:
on ``a`` the preemptor still fits, on ``b`` it does not, so that this one is a victim. The pods of
priorities 10 and 0 on ``a`` follow and are victims as well. Node ``a`` is picked: the highest
priority among its victims is 10, on ``b`` it is 50.
"""

from proreus.plugins.default_preemption.domain_victims import DomainVictim, DomainVictims
from proreus.plugins.default_preemption.plugin import DefaultPreemption, DefaultPreemptionArgs
from proreus.plugins.default_preemption.potential_victims import (
    DisruptionBudgets,
    sorted_by_importance,
)
from proreus.plugins.default_preemption.select_candidate import Candidate
from proreus.plugins.default_preemption.unit_dry_run import (
    NodeDryRun,
    UnitDryRun,
    candidate_of_units,
)

__all__ = [
    "Candidate",
    "DefaultPreemption",
    "DefaultPreemptionArgs",
    "DisruptionBudgets",
    "DomainVictim",
    "DomainVictims",
    "NodeDryRun",
    "UnitDryRun",
    "candidate_of_units",
    "sorted_by_importance",
]
