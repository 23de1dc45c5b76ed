"""CycleState: data of plugins between the extension points of one attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from proreus.base.errors import PluginError
from proreus.base.logs import error_text
from proreus.framework.attribute_hints import AttributeHints
from proreus.framework.pod_info import PodInfo

if TYPE_CHECKING:
    from proreus.framework.attempt_budget import AttemptBudget

_NO_PODS: Mapping[str, Sequence[PodInfo]] = MappingProxyType({})


class PluginTimer(Protocol):
    """Records how long single plugin calls take."""

    def observe(self, plugin: Any, point: str, result: object, started: float) -> None:
        """Record one call that began at ``started`` (of ``time.perf_counter``)."""
        ...


class CycleState(AttributeHints):
    """Plugins' data about one pod, by key (usually the plugin's name).

    ``clone`` copies values that have a ``clone`` method and shares the rest, so that a dry run with
    pods added or removed does not change the original.
    """

    __slots__ = (
        "_data",
        "_pods_to_activate",
        "_replaceable_pods",
        "binding_plugins",
        "budget",
        "skip_filter",
        "skip_score",
        "timer",
    )

    def __init__(self) -> None:
        self._data: dict[str, Any] = {}
        self.skip_filter: frozenset[str] = frozenset()
        """Plugins whose PreFilter returned Skip."""
        self.skip_score: frozenset[str] = frozenset()
        """Plugins whose PreScore returned Skip."""
        self.timer: PluginTimer | None = None
        """Set in one cycle out of ten: times every plugin call."""
        self.budget: AttemptBudget | None = None
        """The computing time that the attempt may use; None: no limit."""
        self._pods_to_activate: list[str] = []
        self._replaceable_pods: Mapping[str, Sequence[PodInfo]] = _NO_PODS
        self.binding_plugins: tuple[str, ...] = ()
        """The plugins whose PreBind or Bind is running."""

    @property
    def pods_to_activate(self) -> list[str]:
        """Keys of pods to be moved to the active queue once this pod has succeeded."""
        return self._pods_to_activate

    @pods_to_activate.setter
    def pods_to_activate(self, keys: Iterable[str]) -> None:
        self._pods_to_activate = list(keys)

    def take_pods_to_activate(self) -> list[str]:
        """Return the keys in ``pods_to_activate``, and remove them."""
        keys, self._pods_to_activate = self._pods_to_activate, []
        # What is no text is no key: plugins may have put anything into the list.
        return [key for key in keys if issubclass(type(key), str)]

    @property
    def replaceable_pods(self) -> Mapping[str, Sequence[PodInfo]]:
        """Pods whose place this pod may take, by the name of their node; PreFilter may set it.

        Filter looks at these nodes without them. Who sets it removes from the node in Reserve what
        the pod takes the place of (``Handle.remove_pod``), and puts it back in Unreserve.
        """
        return self._replaceable_pods

    @replaceable_pods.setter
    def replaceable_pods(self, pods_by_node: Mapping[str, Iterable[PodInfo]]) -> None:
        # Here the traceback of what is no such mapping ends in the plugin's line.
        pods_by_name = {str(name): tuple(pods) for name, pods in pods_by_node.items()}
        for pods in pods_by_name.values():
            for pod in pods:
                if not isinstance(pod, PodInfo):
                    raise TypeError(f"replaceable_pods must be PodInfos by node, not {pod!r}")
        self._replaceable_pods = pods_by_name

    def write(self, key: str, data: Any) -> None:
        """Store data under a key."""
        self._data[key] = data

    def read(self, key: str) -> Any:
        """Return the data of a key; raises ``KeyError`` if there is none."""
        try:
            return self._data[key]
        except KeyError:
            text = f"nothing was written for {key!r} in this attempt; state.get returns None then"
            raise KeyError(text) from None

    def get(self, key: str) -> Any | None:
        """Return the data of a key, or None."""
        return self._data.get(key)

    def check_budget(self, plugin: str, point: str) -> None:
        """Raise ``BudgetExceeded`` if the attempt has computed for too long.

        For loops whose length a pod decides; the arguments name the plugin at work.
        """
        if self.budget is not None:
            self.budget.check(plugin, point)

    def clone(self) -> CycleState:
        """Return a copy for a dry run, as kube-scheduler's ``CycleState.Clone``."""
        # As in kube-scheduler, the data decides: counts that AddPod changes define ``clone``, and
        # what is fixed after PreFilter does not, so that a dry run on many nodes copies little.
        other = CycleState()
        for key, data in self._data.items():
            try:
                other._data[key] = data.clone() if hasattr(data, "clone") else data
            except (Exception, SystemExit) as error:
                text = f'cloning the data of "{key}" in the cycle state: {error_text(error)}'
                raise PluginError(key, "PreFilter", text) from error
        other.skip_filter = self.skip_filter
        other.skip_score = self.skip_score
        other._replaceable_pods = self._replaceable_pods
        other.timer = self.timer
        other.budget = self.budget
        return other
