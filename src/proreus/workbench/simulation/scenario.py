"""A cluster and the changes to make in it before the scheduler is asked.

    scenario = Scenario(objects)
    scenario.drain("node-7")
    result, timings = run_scenario(scenario, settings)

Pods that lose their node come back as their controllers would create them: pending, with the same
name (so that a report can say where each went) and another uid. Pods without a controller do not
come back, and pods of DaemonSets go with their node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from proreus.base.errors import ConfigError
from proreus.insight.snapshots.cluster_objects import ClusterObjects
from proreus.insight.snapshots.object_files import decode_checked
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Pod, PodStatus, is_terminal
from proreus.objects.policy import POD_DISRUPTION_BUDGETS
from proreus.objects.priority_class import PRIORITY_CLASSES
from proreus.objects.selectors import SelectorError, parse_label_selector
from proreus.objects.storage import PERSISTENT_VOLUME_CLAIMS
from proreus.workbench.simulation.controllers import Controllers, WorkloadKey, is_daemon_pod
from proreus.workbench.simulation.templates import (
    Admission,
    PodTemplate,
    copies_of_node,
    other_object,
    read_node,
    read_templates,
)

_replace = msgspec.structs.replace
DEFAULT_SCHEDULER = "default-scheduler"


def with_scheduler(pod: Pod, name: str) -> Pod:
    """Return the pod as one of another scheduler, or profile."""
    return _replace(pod, spec=_replace(pod.spec, scheduler_name=name))


class Scenario:
    """Objects as they are (``before``), and as they are to be when the scheduler starts.

    ``evicted``: the node that each evicted pod was on, by key. ``lost``: evicted pods that nobody
    creates anew. ``removed``: pods that were taken away. ``notes``: sentences about what a reader
    of the result should know. All methods raise ``ConfigError``.
    """

    def __init__(self, before: ClusterObjects) -> None:
        self.before = before
        self.objects = before.copy()
        self.evicted: dict[str, str] = {}
        self.lost: list[str] = []
        self.removed: list[str] = []
        self.added_nodes: list[str] = []
        self.notes: list[str] = []
        self._without_scheduler: set[str] = set()
        """Keys of added pods from files that name no scheduler."""
        self.controllers = Controllers(self.objects)
        self._admission: Admission | None = None
        if not before.of(NODES):
            self.notes.append("the cluster has no nodes: is that file the right one?")
        if before.ignored:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(before.ignored.items()))
            self.notes.append(f"not read, since no scheduler does: {kinds}")

    @property
    def admission(self) -> Admission:
        """Stores added pods as an apiserver would."""
        if self._admission is None:
            self._admission = Admission(self.objects)
        return self._admission

    # ---- pods and nodes that are added ---------------------------------------------------------

    def add_file(self, path: Path, replicas: int | None = None) -> list[str]:
        """Add the objects of a file, ``replicas`` of each pod; return the keys of the pods.

        ``replicas`` None: one of each pod, and of a workload as many as it says.
        """
        templates, others = read_templates(path)
        for place, obj in others:
            found = other_object(place, obj)
            if found is None:
                self.notes.append(f"{place}: ignored, since no scheduler reads a {obj['kind']}")
                continue
            if found[0] is PRIORITY_CLASSES:
                self.admission.add_class(place, obj)
            self.objects.put(*found)
        if not templates and not others:
            raise ConfigError(f"{path}: there is no object in it")
        added = []
        for template in templates:
            for pod in template.pods(replicas):
                added.append(self.add_pod(template.place, pod))
                self._add_claims(template, pod["metadata"]["name"])
        return added

    def add_pod(self, place: str, pod: dict[str, Any]) -> str:
        """Add a pending pod as plain data; ``place``: for errors. Returns its key."""
        admitted = self.admission.admit(place, pod)
        self.objects.put(PODS, admitted)
        if not pod["spec"].get("schedulerName"):
            self._without_scheduler.add(key_of(admitted))
        return key_of(admitted)

    def objects_for(self, profiles: Sequence[str]) -> tuple[ClusterObjects, list[str]]:
        """Return the objects as they are to be under a configuration, and notes about them.

        Added pods that name no scheduler have the API's default, default-scheduler. Where the
        configuration has no such profile they belong to its first one: who writes a pod by hand
        means the scheduler that is simulated.
        """
        if DEFAULT_SCHEDULER in profiles or not self._without_scheduler:
            return self.objects, []
        objects, first = self.objects.copy(), profiles[0]
        pods = objects.of(PODS)
        found = [key for key in self._without_scheduler if key in pods]
        for key in found:
            pods[key] = with_scheduler(pods[key], first)
        note = f"pods that are added and name no scheduler belong to the profile {first}"
        return objects, [note] if found else []

    def _add_claims(self, template: PodTemplate, pod_name: str) -> None:
        present = self.objects.of(PERSISTENT_VOLUME_CLAIMS)
        for claim in template.claims_of(pod_name):
            typed = decode_checked(PERSISTENT_VOLUME_CLAIMS, claim, template.place)
            if key_of(typed) not in present:  # as a StatefulSet's next pod finds its volume
                self.objects.put(PERSISTENT_VOLUME_CLAIMS, typed)

    def add_nodes(self, template: str, count: int) -> list[str]:
        """Add nodes like that of a file, or like ``node/NAME``; these get its DaemonSet pods
        too.
        """
        if count < 1:
            raise ConfigError(f"--add-nodes {template}: at least one node is needed")
        nodes = self.objects.of(NODES)
        daemon_pods: list[Pod] = []
        if template.startswith("node/"):
            model = self._node(template.removeprefix("node/"))
            daemon_pods = [
                pod for pod in self._pods_on({model.metadata.name}) if is_daemon_pod(pod)
            ]
        else:
            model = read_node(Path(template))
        names = []
        for node in copies_of_node(model, count, nodes):
            name = node.metadata.name
            self.objects.put(NODES, node)
            names.append(name)
            for pod in daemon_pods:
                self.objects.put(PODS, _on_node(pod, name))
        self.added_nodes += names
        return names

    # ---- removals ------------------------------------------------------------------------------

    def remove(self, reference: str) -> None:
        """Remove ``node/NAME``, ``pod/NAMESPACE/NAME`` or ``workload/NAMESPACE/NAME``.

        Instead of ``workload`` a kind may stand (``deployment``); without a namespace it is
        "default". Pods of a removed node are evicted; removed pods do not come back.
        """
        kind, _, name = reference.partition("/")
        if not name:
            raise ConfigError(f"--remove {reference}: must be node/…, pod/… or workload/…")
        if kind == "node":
            node = self._node(name)
            self._evict(self._pods_on({node.metadata.name}))
            del self.objects.of(NODES)[name]
            return
        if "/" not in name:
            name = f"default/{name}"
        if kind == "pod":
            if name not in self.objects.of(PODS):
                raise ConfigError(f"--remove {reference}: there is no pod {name}")
            self._delete(name)
            self.removed.append(name)
            return
        found = [
            key for key, pod in self.objects.of(PODS).items() if self._belongs(pod, kind, name)
        ]
        if not found:
            raise ConfigError(f"--remove {reference}: no pod belongs to a {kind} {name}")
        for key in found:
            self._delete(key)
        self.removed += found

    def drain(self, name: str) -> None:
        """Cordon a node and evict its pods, as ``kubectl drain --force --ignore-daemonsets``."""
        node = self._node(name)
        self.objects.put(NODES, _replace(node, spec=_replace(node.spec, unschedulable=True)))
        pods = [pod for pod in self._pods_on({name}) if not is_daemon_pod(pod)]
        self._note_budgets(name, pods)
        self._evict(pods)

    def evict_all(self) -> None:
        """Evict every pod but those of DaemonSets; the oldest are scheduled first."""
        pods = [
            pod
            for pod in self.objects.of(PODS).values()
            if pod.spec.node_name and not is_daemon_pod(pod) and not is_terminal(pod)
        ]
        pods.sort(key=_age)
        # Pods without a controller too: the question is how all of them would fit.
        self._evict(pods, force=True)

    def pending(self) -> list[Pod]:
        """Return the pods that wait for a node, in the order in which they arrive."""
        return [
            pod
            for pod in self.objects.of(PODS).values()
            if not pod.spec.node_name
            and not is_terminal(pod)
            and pod.metadata.deletion_timestamp is None
        ]

    def nodes(self) -> list[Node]:
        """Return the nodes as they are to be."""
        return list(self.objects.of(NODES).values())

    # ---- inside --------------------------------------------------------------------------------

    def _node(self, name: str) -> Node:
        node = self.objects.of(NODES).get(name)
        if node is None:
            raise ConfigError(f"there is no node {name}")
        return node

    def _pods_on(self, names: set[str]) -> list[Pod]:
        return [
            pod
            for pod in self.objects.of(PODS).values()
            if pod.spec.node_name in names and not is_terminal(pod)
        ]

    def _belongs(self, pod: Pod, kind: str, name: str) -> bool:
        workload = self.controllers.workload_of(pod)
        if workload is None:
            return False
        owners = [workload]
        meta = pod.metadata
        owners += [
            WorkloadKey(one.kind.lower(), meta.namespace, one.name) for one in meta.owner_references
        ]
        return any(
            f"{one.namespace}/{one.name}" == name and kind in ("workload", one.kind)
            for one in owners
        )

    def _evict(self, pods: Iterable[Pod], force: bool = False) -> None:
        for pod in pods:
            key = key_of(pod)
            self._delete(key)
            if force or self.controllers.workload_of(pod) is not None:
                if is_daemon_pod(pod):
                    continue
                self.evicted[key] = pod.spec.node_name
                self.objects.put(PODS, recreated(pod))
            elif not is_daemon_pod(pod):
                self.lost.append(key)

    def _delete(self, key: str) -> None:
        del self.objects.of(PODS)[key]

    def _note_budgets(self, node: str, pods: list[Pod]) -> None:
        for key, budget in self.objects.of(POD_DISRUPTION_BUDGETS).items():
            try:
                selector = parse_label_selector(budget.spec.selector)
            except SelectorError:
                continue
            protected = sum(
                pod.metadata.namespace == budget.metadata.namespace
                and selector.matches(pod.metadata.labels)
                for pod in pods
            )
            allowed = budget.status.disruptions_allowed
            if protected > allowed:
                self.notes.append(
                    f"node {node}: PodDisruptionBudget {key} allows {allowed} of {protected} "
                    "evictions at once; kubectl drain would wait for the others"
                )


def recreated(pod: Pod) -> Pod:
    """Return a pod as its controller creates it anew: pending, with another uid."""
    # Pods that were written by hand have no uid; the API in memory takes their key for it.
    uid = f"{pod.metadata.uid or key_of(pod)}+"
    meta = _replace(pod.metadata, uid=uid, resource_version="", deletion_timestamp=None)
    status = PodStatus(phase="Pending", resource_claim_statuses=pod.status.resource_claim_statuses)
    return _replace(pod, metadata=meta, spec=_replace(pod.spec, node_name=""), status=status)


def _on_node(pod: Pod, node_name: str) -> Pod:
    name = f"{pod.metadata.generate_name or pod.metadata.name + '-'}{node_name}"
    meta = _replace(pod.metadata, name=name, uid=f"simulated/{pod.metadata.namespace}/{name}")
    return _replace(pod, metadata=meta, spec=_replace(pod.spec, node_name=node_name))


def _age(pod: Pod) -> tuple[float, str]:
    created = pod.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0), key_of(pod)
