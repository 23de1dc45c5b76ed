"""Whether trees of groups are ready, kept in step with pods and groups that come and go."""

from __future__ import annotations

from random import Random

import pytest

from proreus.engine.cache.pod_group_states import PodGroupStates
from proreus.framework.workload_forest import Group, WorkloadForest
from proreus.objects.codec import decoder_for
from proreus.objects.scheduling import CompositePodGroup, PodGroup
from proreus.plugins.ready_groups import ReadyGroups
from unit.plugins.test_gang_scheduling_of_trees import composite, group, member


def made_group(rng: Random, number: int) -> Group:
    """Return one of nine groups: three levels of three, each below one of the level above."""
    parent = None if number < 3 else f"g{rng.randrange(number // 3 * 3 - 3, number // 3 * 3)}"
    least = rng.randrange(1, 3)
    if number >= 6:
        return decoder_for(PodGroup).convert(group(f"g{number}", least, parent))
    return decoder_for(CompositePodGroup).convert(composite(f"g{number}", least, parent))


@pytest.mark.parametrize("seed", range(20))
def test_it_answers_what_counting_from_the_root_gives(seed: int) -> None:
    rng = Random(seed)
    forest, states = WorkloadForest(composite=True), PodGroupStates()

    def has_enough(one: PodGroup) -> bool:
        state = states.get(one.key.namespaced_name)
        return state is not None and state.all_pods_count >= one.min_count

    def counted(one: Group) -> bool:
        if isinstance(one, PodGroup):
            return has_enough(one)
        return sum(map(counted, forest.children_of(one.key))) >= one.min_count

    ready, answers = ReadyGroups(forest, states, has_enough), set()
    for _ in range(600):
        number = rng.randrange(9)
        pod = member(f"p{rng.randrange(12)}", f"g{rng.randrange(6, 9)}")
        known = made_group(rng, number)
        match rng.randrange(12):
            case 0:
                forest.put(known)
            case 1 if rng.random() < 0.3:
                forest.remove(known.key)
            case step if step < 8:
                states.add(pod)
            case _:
                states.remove(pod.pod)
        for root in (forest.get(made_group(rng, one).key) for one in range(3)):
            if root is not None:
                assert ready.is_ready(root) == counted(root)
                answers.add(counted(root))
    assert answers == {False, True}
