"""Mode ``plan``: counts the pods of groups, and finds groups that start together or lack pods.

    PodGroupStates.changed_since ─► PlannedGroup.count ─► complete? ─► StartingTogether.note
                                                                          └─► ``released``

Each change costs the same however many pods and tasks a group has: sums are kept, not made.
"""

from __future__ import annotations

from collections.abc import Callable

from proreus.addons.coscheduling.groups import Group, MatchPolicy, Membership


class PlannedGroup:
    """A group, and the numbers of its pods. ``group`` is None while its PodGroup does not exist.

    ``pods``: the number of all pods, ``scheduled``: of pods with a node. ``priority``: the
    highest of its pods. ``is_satisfied``: whether its pods may start alone from now on.
    """

    # Invariants: pods and scheduled are the sums of _tasks; _short has the tasks of group.minimums
    # that have too few pods.

    def __init__(self, membership: Membership, priority: int) -> None:
        self.membership = membership
        self.priority = priority
        self.group: Group | None = None
        self.is_satisfied = False
        self.pods = self.scheduled = 0
        self._tasks: dict[str, tuple[int, int]] = {}
        self._short: set[str] = set()

    @property
    def key(self) -> str:
        """The key of the group."""
        return self.membership.key

    @property
    def tasks(self) -> list[str]:
        """The tasks of its pods in order; "" for pods without one."""
        return sorted(self._tasks)

    @property
    def has_tasks(self) -> bool:
        """Whether some of its pods have a task."""
        return len(self._tasks) > 1 or "" not in self._tasks

    def has_task(self, task: str) -> bool:
        """Return whether a pod of a task has been seen."""
        return task in self._tasks

    def use(self, group: Group | None) -> None:
        """Use another version of the group."""
        self.group = group
        minimums = {} if group is None else group.minimums
        self._short = {task for task in minimums if self._is_short(task)}

    def count(self, task: str, pods: int, scheduled: int) -> None:
        """Set how many pods of a task there are, and how many of them have a node."""
        pods_before, scheduled_before = self._tasks.get(task, (0, 0))
        self._tasks[task] = pods, scheduled
        self.pods += pods - pods_before
        self.scheduled += scheduled - scheduled_before
        if self._is_short(task):
            self._short.add(task)
        else:
            self._short.discard(task)

    def _is_short(self, task: str) -> bool:
        if self.group is None:
            return False
        return self._counted(*self._tasks.get(task, (0, 0))) < self.group.minimums.get(task, 0)

    def _counted(self, pods: int, scheduled: int) -> int:
        """Return the number of pods that count to the minimum."""
        only_waiting = self.group is not None and self.group.policy is MatchPolicy.ONLY_WAITING
        return pods - scheduled if only_waiting else pods

    @property
    def known(self) -> int:
        """The number of pods that count to the minimum."""
        return self._counted(self.pods, self.scheduled)

    @property
    def is_complete(self) -> bool:
        """Whether the group has all pods that it needs."""
        group = self.group
        return group is not None and not self._short and self.known >= group.min_member


class _Gangs:
    """Gangs that start together; ``lacking``: gangs that lack pods, ``owners``: gangs that name it.

    Compared by identity: a list of thousands of names need not be hashed at every look-up.
    """

    __slots__ = ("keys", "lacking", "owners")

    def __init__(self, keys: tuple[str, ...], lacking: dict[str, None]) -> None:
        self.keys = keys
        self.lacking = lacking
        self.owners: dict[str, None] = {}


class StartingTogether:
    """The groups that start at once. ``is_complete``: of a group, by its key.

    ``released``: the keys of groups that lacked pods, or waited for others, and may start now; the
    reader removes them.
    """

    # Invariants: _own has the lists that groups name, _lists each of them by its keys, and _with
    # the lists that a key is in. No list is without owners.

    def __init__(self, is_complete: Callable[[str], bool]) -> None:
        self._is_complete = is_complete
        self._own: dict[str, _Gangs] = {}
        self._lists: dict[tuple[str, ...], _Gangs] = {}
        self._with: dict[str, dict[_Gangs, None]] = {}
        self.released: dict[str, None] = {}

    def put(self, key: str, together: tuple[str, ...]) -> None:
        """Let a group start together with others; ``together``: all keys, its own included."""
        own = self._own.get(key)
        if own is not None and own.keys == together:
            return
        self.remove(key)
        gangs = self._lists.get(together)
        if gangs is None:
            lacking = dict.fromkeys(one for one in together if not self._is_complete(one))
            gangs = self._lists[together] = _Gangs(together, lacking)
            for one in together:
                self._with.setdefault(one, {})[gangs] = None
        gangs.owners[key] = None
        self._own[key] = gangs
        if not gangs.lacking:
            self.released[key] = None

    def remove(self, key: str) -> None:
        """Forget the gangs of a group; others may still name it."""
        self.released.pop(key, None)
        gangs = self._own.pop(key, None)
        if gangs is None:
            return
        del gangs.owners[key]
        if gangs.owners:
            return
        del self._lists[gangs.keys]
        for one in gangs.keys:
            self._with[one].pop(gangs)
            if not self._with[one]:
                del self._with[one]

    def note(self, key: str, complete: bool) -> None:
        """Note whether a group has all pods that it needs."""
        for gangs in self._with.get(key, ()):
            if not complete:
                gangs.lacking[key] = None
            elif key in gangs.lacking:
                del gangs.lacking[key]
                if not gangs.lacking:
                    self.released.update(gangs.owners)

    def lacking(self, key: str) -> str | None:
        """Return a group that a group waits for, maybe itself; None if all are complete."""
        own = self._own.get(key)
        return key if own is None else next(iter(own.lacking), None)
