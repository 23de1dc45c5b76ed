"""Scripts of pod groups: gangs that come in any order, grow, shrink, preempt and are victims."""

from __future__ import annotations

from collections.abc import Callable

from conformance.oracle.grammar import objects, placement, preemption
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing
from conformance.oracle.grammar.scripts import Script, Theme

RACK = "topology.example.com/rack"
_PRIORITIES = (None, 0, 0, 10, 100, 1000)
_MODES: tuple[JsonObject | None, ...] = (None, {"single": {}}, {"all": {}}, {"all": {}})
_API = "scheduling.k8s.io/v1beta1"
_WORKLOAD = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
_KEYS = (RACK, RACK, objects.ZONE, objects.HOSTNAME)


class Groups(Theme):
    """Pod groups beside single pods; each has a template that its pods are made from."""

    wishes = 0.1
    gates: tuple[str, ...] = ()
    topology = 0.0
    parents = 0.0

    def __init__(self) -> None:
        self._members: dict[str, list[JsonObject]] = {}
        self._templates: dict[str, JsonObject] = {}
        self._roots: list[str] = []
        self.changes = (
            self._bring,
            self._bring,
            self._bring,
            self._grow,
            self._shrink,
            self._change_count,
            self._change_pods,
            lambda script: script.delete("PodGroup"),
            lambda script: script.delete("CompositePodGroup"),
            lambda script: script.add(preemption.budget(script.draw, len(script.steps))),
            self._label_node,
        )

    def settings(self, draw: Draw) -> JsonObject:
        """Return the feature gates, and what is observed."""
        gates = ["GenericWorkload=true", *self.gates]
        if draw.chance(0.2):
            gates.append("PodGroupPreemptionPolicy=true")
        # In one of several placements, what a condition says is that of any of them.
        conditions = () if self.topology else ("conditions",)
        observe = ["incomplete", "waiting", "bound", *conditions, "groups"]
        return {"features": gates, "observe": observe}

    def before(self, script: Script) -> list[JsonObject]:
        """Return groups whose pods run, some on nodes of one rack."""
        draw = script.draw
        for node in script.known["Node"]:
            node["metadata"]["labels"][RACK] = draw.choice(("r0", "r1"))
        found = []
        for _ in range(draw.choice((0, 1, 2, 3))):
            group = self._group(script)
            pods = [self._member(script, group) for _ in range(draw.randint(1, 4))]
            for pod in pods:
                pod["spec"]["nodeName"] = script.a_node()
            found += [group, *pods]
        return found

    # ---- objects -------------------------------------------------------------------------------

    def _group(self, script: Script) -> JsonObject:
        draw, name = script.draw, script.name("g")
        spec = self._spec(draw)
        if self._roots and draw.chance(self.parents):
            root = draw.choice(self._roots)
            spec["parentCompositePodGroupName"] = root
            spec |= {"priority": self._templates[root]["priority"]} if draw.chance(0.9) else {}
            spec |= _WORKLOAD if draw.chance(0.97) else {}
        group = thing("PodGroup", name, _API, namespace="default", spec=spec)
        group["metadata"] |= {"uid": name, "generation": 1}
        self._members[name] = []
        self._templates[name] = self._template(script, name, spec)
        return group

    def _spec(self, draw: Draw) -> JsonObject:
        """Return what groups of pods and groups of groups have in common."""
        gang = {"gang": {"minCount": draw.choice((1, 2, 2, 3, 4))}}
        spec: JsonObject = {"schedulingPolicy": gang if draw.chance(0.8) else {"basic": {}}}
        if mode := draw.choice(_MODES):
            spec["disruptionMode"] = mode
        spec["priority"] = draw.choice(_PRIORITIES)
        if draw.chance(0.2):
            spec["preemptionPolicy"] = draw.choice(("Never", "PreemptLowerPriority"))
        if draw.chance(self.topology):
            spec["schedulingConstraints"] = {"topology": [{"key": draw.choice(_KEYS)}]}
        return spec

    def _template(self, script: Script, group: str, spec: JsonObject) -> JsonObject:
        draw = script.draw
        template = objects.pod(draw, "template")
        template["metadata"]["labels"]["group"] = group
        made = template["spec"]
        made["schedulingGroup"] = {"podGroupName": group}
        made["containers"] = [{"name": "c", "resources": objects.requests(draw, small=True)}]
        placement.wish(draw, template, 0.1)
        if draw.chance(0.15):
            term = {"labelSelector": {"matchLabels": {"group": group}}}
            term["topologyKey"] = draw.choice((objects.HOSTNAME, objects.ZONE))
            kind = draw.choice(("podAffinity", "podAntiAffinity"))
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            made.setdefault("affinity", {})[kind] = required
        if spec.get("priority") is not None:
            made["priority"] = spec["priority"]
        if spec.get("preemptionPolicy"):
            made["preemptionPolicy"] = spec["preemptionPolicy"]
        return template

    def _member(self, script: Script, group: JsonObject) -> JsonObject:
        draw, name = script.draw, group["metadata"]["name"]
        pod_name = f"{name}-{len(self._members[name])}"
        template = self._templates[name]
        pod = objects.pod(draw, pod_name)
        pod["metadata"]["labels"] = dict(template["metadata"]["labels"])
        pod["spec"] = dict(template["spec"])
        if draw.chance(0.1):
            asked = {"name": "c", "resources": objects.requests(draw, small=True)}
            pod["spec"]["containers"] = [asked]
        if draw.chance(0.04):
            pod["spec"]["schedulingGates"] = [{"name": "g"}]
        if draw.chance(0.02):
            pod["spec"]["priority"] = 5
        if draw.chance(0.02):
            pod["spec"]["schedulerName"] = "other"
        self._members[name].append(pod)
        return script.started(pod)

    # ---- steps ---------------------------------------------------------------------------------

    def _bring(self, script: Script) -> None:
        """Add a group and its pods, in any order, perhaps with a root of its own."""
        draw = script.draw
        parts: list[JsonObject] = []
        if draw.chance(self.parents):
            parts.append(self._root(script))
        for _ in range(draw.choice((1, 1, 2, 3)) if self.parents else 1):
            group = self._group(script)
            parts += [group, *(self._member(script, group) for _ in range(draw.randint(0, 5)))]
        if draw.chance(0.4):
            draw.shuffle(parts)
        for part in parts:
            script.add(part)
            if draw.chance(0.05):
                script.steps.append({"schedule": 1})
        if draw.chance(0.6):
            script.steps.append({"schedule": draw.choice((1, 2))})

    def _root(self, script: Script) -> JsonObject:
        draw, name = script.draw, script.name("c")
        spec = self._spec(draw)
        if self._roots and draw.chance(0.25):
            spec["parentCompositePodGroupName"] = parent = draw.choice(self._roots)
            spec["priority"] = self._templates[parent]["priority"]
        spec |= _WORKLOAD
        self._roots.append(name)
        self._templates[name] = spec
        made = thing("CompositePodGroup", name, _API, namespace="default", spec=spec)
        made["metadata"] |= {"uid": name, "generation": 1}
        return made

    def _grow(self, script: Script) -> None:
        if groups := script.known.get("PodGroup"):
            group = script.draw.choice(groups)
            for _ in range(script.draw.choice((1, 1, 2, 3))):
                script.add(self._member(script, group))

    def _shrink(self, script: Script) -> None:
        draw = script.draw
        pods = self._members[draw.choice(list(self._members))] if self._members else []
        for pod in draw.sample(pods, min(len(pods), draw.choice((1, 2, 5)))):
            meta = pod["metadata"]
            reference = {"kind": "Pod", "namespace": "default", "name": meta["name"]}
            script.steps.append({"delete": reference})

    def _change_count(self, script: Script) -> None:
        draw = script.draw
        policy = {"gang": {"minCount": draw.randint(1, 6)}}
        generation = {"generation": len(script.steps)}
        patch = {"metadata": generation, "spec": {"schedulingPolicy": policy}}
        script.patch(draw.choice(("PodGroup", "PodGroup", "CompositePodGroup")), patch)

    def _change_pods(self, script: Script) -> None:
        draw = script.draw
        pods = self._members[draw.choice(list(self._members))] if self._members else []
        patches: tuple[JsonObject, ...] = (
            {"spec": {"schedulingGates": None}},
            {"spec": {"tolerations": [{"operator": "Exists"}]}},
            {"metadata": {"labels": {"app": draw.choice(objects.APPS)}}},
            {"metadata": {"deletionTimestamp": objects.LONG_AGO}},
            {"status": {"phase": "Failed"}},
            {"status": {"nominatedNodeName": draw.choice(("", script.a_node()))}},
        )
        patch = draw.choice(patches)
        for pod in draw.sample(pods, min(len(pods), draw.choice((1, 1, 3)))):
            reference = {"kind": "Pod", "namespace": "default", "name": pod["metadata"]["name"]}
            script.steps.append({"patch": {**reference, "patch": patch}})

    def _label_node(self, script: Script) -> None:
        rack = script.draw.choice(("r0", "r1", "r2", None))
        script.patch("Node", {"metadata": {"labels": {RACK: rack}}})


class PlacedGroups(Groups):
    """Groups that must stay in one domain."""

    gates = ("TopologyAwareWorkloadScheduling=true",)
    topology = 0.6


class GroupsOfGroups(PlacedGroups):
    """Groups of groups."""

    gates = (*PlacedGroups.gates, "CompositePodGroup=true")
    topology = 0.3
    parents = 0.6


def script_of_groups(theme: type[Groups]) -> Callable[[Draw], JsonObject]:
    """Return the grammar of scripts of a theme of groups."""

    def write(draw: Draw) -> JsonObject:
        groups = theme()
        return groups.settings(draw) | Script(draw, groups).write()

    return write
