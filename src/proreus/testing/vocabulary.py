"""The names in random clusters, and the names that a plugin asks for.

A plugin that reads a resource or label which no drawn cluster has gives the same result everywhere,
and any two forms of it agree. So ``agree`` runs the plugin on a few clusters first, in which
mappings by resource or label record the keys that are looked up.

Example: PreFilter skips pods that do not request ``nvidia.com/gpu``. The first round records the
resource; in the second one a pod requests it and nodes have it, so that Filter runs and looks up
the node label ``gpu-model``; in the third round nothing new is asked for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from proreus.framework.cluster_table import ClusterTable
from proreus.framework.columns import ResourceColumns
from proreus.framework.cycle_state import CycleState
from proreus.framework.node_info import NodeInfo
from proreus.framework.plugin import (
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from proreus.framework.pod_info import PodInfo
from proreus.framework.read_only import Amounts
from proreus.framework.status import Code, Status
from proreus.framework.verdicts import CodeArray, IntArray, Verdicts
from proreus.objects.node import LABEL_HOSTNAME, Node
from proreus.objects.resource_names import is_tracked_resource
from proreus.testing.builders import make_node, make_plugin, make_pod
from proreus.testing.fake_handle import FakeHandle

_ROUNDS = 5
_MOST_WORDS = 8
"""More words of one sort would make each of them rare in the clusters."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_QUALIFIED_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/" + _LABEL_VALUE.pattern)
_ALWAYS_DRAWN = frozenset(
    {"cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"}
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names in clusters besides the ones that ``clusters()`` always draws.

    ``resources``: of nodes, and requested by pods. ``node_labels``, ``pod_labels``: label keys.
    ``values``: of labels of both.
    """

    resources: Sequence[str] = ()
    node_labels: Sequence[str] = ()
    pod_labels: Sequence[str] = ()
    values: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Make tuples of the fields without duplicates, so that vocabularies are hashable."""
        for name in self.__slots__:
            words = getattr(self, name)
            if isinstance(words, str):
                raise TypeError(f"{name} must be a sequence of names, not {words!r}")
            object.__setattr__(self, name, tuple(dict.fromkeys(words)))

    def __or__(self, other: Vocabulary) -> Vocabulary:
        """Return the names of both, this one's first."""
        return Vocabulary(
            *((*getattr(self, name), *getattr(other, name)) for name in self.__slots__)
        )

    def __str__(self) -> str:
        """Return the names by sort."""
        return "; ".join(
            f"{name}: {', '.join(getattr(self, name)) or 'none'}" for name in self.__slots__
        )


def vocabulary_of(
    plugin: type[Plugin], args: Mapping[str, Any] | None, gates: tuple[str, ...], given: Vocabulary
) -> Vocabulary:
    """Return ``given`` with the names in the arguments and the names that the plugin looks up."""
    known = given | _words_in(args)
    for _ in range(_ROUNDS):
        lookups = _Lookups()
        _run(plugin, args, gates, known, lookups)
        grown = known | lookups.vocabulary()
        if grown == known:
            break
        known = grown
    return known


def _words_in(args: Mapping[str, Any] | None) -> Vocabulary:
    strings = [text for text in _strings(args) if text not in _ALWAYS_DRAWN]
    names = [text for text in strings if _QUALIFIED_NAME.fullmatch(text)][:_MOST_WORDS]
    return Vocabulary(
        resources=[name for name in names if is_tracked_resource(name)],
        node_labels=[name for name in names if name != LABEL_HOSTNAME],
        pod_labels=names,
        values=[text for text in strings if _LABEL_VALUE.fullmatch(text)][:_MOST_WORDS],
    )


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            # Keys too: a table of weights by label value has the values there. Names of fields come
            # along; as label values they cost nothing.
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, Iterable):
        for item in value:
            yield from _strings(item)


# ---- recording -----------------------------------------------------------------------------------


@dataclass
class _Lookups:
    """The keys that a plugin has looked up; dicts as ordered sets."""

    resources: dict[str, None] = field(default_factory=dict)
    node_labels: dict[str, None] = field(default_factory=dict)
    pod_labels: dict[str, None] = field(default_factory=dict)

    def vocabulary(self) -> Vocabulary:
        """Return the names that clusters can have and do not have anyway."""
        resources = (
            name
            for name in self.resources
            if name not in _ALWAYS_DRAWN and is_tracked_resource(name)
        )
        return Vocabulary(
            resources=list(resources)[:_MOST_WORDS],
            # The builders set it to the node's name; a drawn one would be another node's.
            node_labels=[key for key in self.node_labels if key != LABEL_HOSTNAME][:_MOST_WORDS],
            pod_labels=list(self.pod_labels)[:_MOST_WORDS],
        )


class _RecordingDict(dict[str, Any]):
    """A dict that records the string keys that are looked up."""

    def __init__(self, content: Mapping[str, Any], seen: dict[str, None]) -> None:
        super().__init__(content)
        self._seen = seen

    def _record(self, key: object) -> None:
        if isinstance(key, str):
            self._seen[key] = None

    def __getitem__(self, key: str) -> Any:
        self._record(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._record(key)
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._record(key)
        return super().get(key, default)


class _RecordingAmounts(_RecordingDict, Amounts):
    """The same for amounts, where a missing resource reads as 0."""


class _RecordingColumns(ResourceColumns):
    """Columns of another table that record the resources that are looked up."""

    __slots__ = ("_seen",)

    def __init__(
        self, table: ClusterTable, columns: ResourceColumns, seen: dict[str, None]
    ) -> None:
        super().__init__(table)
        self.arrays, self._sparse = columns.arrays, columns._sparse
        self._readable = columns._readable
        self._rows_with = columns._rows_with
        self._seen = seen

    def __getitem__(self, resource: str) -> IntArray:
        self._seen[resource] = None
        return super().__getitem__(resource)

    def __contains__(self, resource: str) -> bool:
        self._seen[resource] = None
        return super().__contains__(resource)


class _RecordingTable(ClusterTable):
    """A table that records label keys, and, once ``start`` was called, resources."""

    def __init__(self, lookups: _Lookups) -> None:
        super().__init__()
        self._lookups = lookups

    def start(self) -> None:
        """Record lookups of resources from now on; no row may change any more."""
        seen = self._lookups.resources
        self.allocatable = _RecordingColumns(self, self.allocatable, seen)
        self.requested = _RecordingColumns(self, self.requested, seen)
        for info in self.infos:
            info.allocatable = _RecordingAmounts(info.allocatable, seen)
            info.requested = _RecordingAmounts(info.requested, seen)

    def has_label(self, key: str) -> bool:
        self._lookups.node_labels[key] = None
        return super().has_label(key)

    def label(self, key: str) -> CodeArray:
        self._lookups.node_labels[key] = None
        return super().label(key)


def _recording_node(node: Node, lookups: _Lookups) -> Node:
    replace, status = msgspec.structs.replace, node.status
    resources = lookups.resources
    return replace(
        node,
        metadata=replace(
            node.metadata, labels=_RecordingDict(node.metadata.labels, lookups.node_labels)
        ),
        status=replace(status, allocatable=_RecordingDict(status.allocatable, resources)),
    )


def _recording_pod(info: PodInfo, lookups: _Lookups) -> PodInfo:
    replace, pod = msgspec.structs.replace, info.pod
    containers = tuple(
        replace(
            one,
            resources=replace(
                one.resources, requests=_RecordingDict(one.resources.requests, lookups.resources)
            ),
        )
        for one in pod.spec.containers
    )
    labels = _RecordingDict(pod.metadata.labels, lookups.pod_labels)
    recording = PodInfo(
        replace(
            pod,
            metadata=replace(pod.metadata, labels=labels),
            spec=replace(pod.spec, containers=containers),
        )
    )
    # A copy: pods with equal requests share one object.
    recording.requests = copy.copy(recording.requests)
    recording.requests.amounts = _RecordingDict(recording.requests.amounts, lookups.resources)
    return recording


# ---- running the plugin --------------------------------------------------------------------------


def _run(
    plugin: type[Plugin],
    args: Mapping[str, Any] | None,
    gates: tuple[str, ...],
    known: Vocabulary,
    lookups: _Lookups,
) -> None:
    """Run every form of the plugin on nodes and pods with and without all known names."""
    handle = FakeHandle(gates=gates)
    table = handle.nodes = _RecordingTable(lookups)
    values = ("7", *known.values)
    for index, value in enumerate((*values[:2], "")):
        info = NodeInfo(f"n{index}")
        labels = dict.fromkeys(known.node_labels, value) if value else {}
        amounts = dict.fromkeys(known.resources, "4") if value else {}
        node = make_node(info.name, labels=labels, resources=amounts)
        info.set_node(_recording_node(node, lookups))
        table.add_node(info)
    pods = [
        _recording_pod(pod, lookups)
        for pod in (
            *(
                make_pod(
                    f"p{index}",
                    labels=dict.fromkeys(known.pod_labels, value),
                    resources=dict.fromkeys(known.resources, "1"),
                )
                for index, value in enumerate(values)
            ),
            make_pod("plain"),
        )
    ]
    table.add_pod(0, pods[0])
    made = make_plugin(plugin, handle, args)
    table.start()
    for pod in pods:
        # An exception here is raised in the comparison too, with a cluster that shows it.
        with suppress(Exception):
            made.sign(pod)
        state = CycleState()
        with suppress(Exception):
            _run_filter(made, state, pod, table)
        with suppress(Exception):
            _run_score(made, state, pod, table)


def _run_filter(plugin: Plugin, state: CycleState, pod: PodInfo, nodes: ClusterTable) -> None:
    if isinstance(plugin, PreFilterPlugin):
        result = plugin.pre_filter(state, pod, nodes)
        if isinstance(result, Status) and result.code != Code.SUCCESS:
            return
    if isinstance(plugin, FilterPlugin):
        for node in nodes:
            plugin.filter(state, pod, node)
        plugin.filter_all(state, pod, nodes, Verdicts(len(nodes), plugin.name))


def _run_score(plugin: Plugin, state: CycleState, pod: PodInfo, nodes: ClusterTable) -> None:
    if isinstance(plugin, PreScorePlugin) and plugin.pre_score(state, pod, nodes) is not None:
        return
    if isinstance(plugin, ScorePlugin):
        for node in nodes:
            plugin.score(state, pod, node)
        plugin.score_all(state, pod, nodes)
