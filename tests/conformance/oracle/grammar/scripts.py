"""Scripts: pods are created, clusters change, time passes.

A script has a theme, which determines the constraints of its pods and its additional steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.oracle.grammar import claims, devices, objects, placement, preemption, volumes
from conformance.oracle.grammar.configurations import configuration
from conformance.oracle.grammar.draw import Draw, JsonObject

_NAMESPACED = (
    "Pod",
    "CompositePodGroup",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PodGroup",
    "ReplicaSet",
    "ResourceClaim",
    "Service",
)
_SECONDS = (0.5, 0.99, 1, 1, 1.5, 2, 3, 5, 10, 12, 30)
_RESERVED = {"status": {"allocation": None, "reservedFor": None}}


class Script:
    """A script under construction: the objects so far, and the steps."""

    def __init__(self, draw: Draw, theme: Theme) -> None:
        self.draw = draw
        self.theme = theme
        self.known: dict[str, list[JsonObject]] = {}
        self.steps: list[JsonObject] = []
        self._numbers = 0

    def write(self) -> JsonObject:
        """Return the case."""
        draw = self.draw
        before = objects.namespaces(draw)
        for _ in range(draw.randint(1, 4)):
            before.append(self.note(self.node()))
        before += [self.note(one) for one in self.theme.before(self)]
        for _ in range(draw.randint(0, 5)):
            before.append(self.note(self.assigned()))
        for _ in range(draw.randint(15, 45)):
            self._step()
        self.steps += [{"advance": 12}, {"schedule": 20}]
        return {"config": _configuration(draw), "objects": before, "steps": self.steps}

    def _step(self) -> None:
        draw = self.draw
        kind = draw.weighted({"pod": 4, "schedule": 4, "advance": 2, "change": 5, "theme": 3})
        if kind == "pod":
            self.add(self.waiting())
        elif kind == "schedule":
            self.steps.append({"schedule": draw.choice((1, 1, 2, 3, 6))})
        elif kind == "advance":
            self.steps.append({"advance": draw.choice(_SECONDS)})
        elif kind == "change":
            draw.choice(_CHANGES)(self)
        else:
            draw.choice(self.theme.changes or _CHANGES)(self)

    # ---- steps ---------------------------------------------------------------------------------

    def note(self, one: JsonObject) -> JsonObject:
        """Record an object, so that later steps can change it."""
        self.known.setdefault(one["kind"], []).append(one)
        return one

    def add(self, one: JsonObject) -> None:
        """Add a step that creates an object."""
        self.steps.append({"add": self.note(one)})

    def patch(self, kind: str, patch: JsonObject) -> None:
        """Add a step that changes an object of a kind, if there is one."""
        if reference := self._any(kind):
            self.steps.append({"patch": {**reference, "patch": patch}})

    def delete(self, kind: str) -> None:
        """Add a step that deletes an object of a kind; it may be created again."""
        if not (reference := self._any(kind)):
            return
        self.steps.append({"delete": reference})
        if self.draw.chance(0.25) and kind != "Pod":
            self._return(reference)

    def _return(self, reference: JsonObject) -> None:
        self.steps.append({"schedule": self.draw.choice((1, 3))})
        for one in self.known[reference["kind"]]:
            if one["metadata"]["name"] == reference["name"]:
                self.steps.append({"add": one})
                return

    def _any(self, kind: str) -> JsonObject | None:
        if not self.known.get(kind):
            return None
        metadata = self.draw.choice(self.known[kind])["metadata"]
        reference = {"kind": kind, "name": metadata["name"]}
        if kind in _NAMESPACED:
            reference["namespace"] = metadata["namespace"]
        return reference

    # ---- objects -------------------------------------------------------------------------------

    def name(self, letter: str) -> str:
        """Return a new name."""
        self._numbers += 1
        return f"{letter}{self._numbers}"

    def node(self) -> JsonObject:
        """Return a new node, always a small one."""
        return objects.node(self.draw, self.name("n"), small=True)

    def a_node(self) -> str:
        """Return the name of a node."""
        name: str = self.draw.choice(self.known["Node"])["metadata"]["name"]
        return name

    def assigned(self) -> JsonObject:
        """Return a pod on a node."""
        asked = {"name": "c", "resources": objects.requests(self.draw, small=True)}
        one = objects.running(self.draw, self.name("a"), self.a_node(), containers=[asked])
        placement.wish(self.draw, one, 0.1)
        one["spec"]["priority"] = self.draw.choice((0, 0, 10, 100))
        return one

    def waiting(self) -> JsonObject:
        """Return a pending pod."""
        draw = self.draw
        asked = {"name": "c", "resources": objects.requests(draw, small=True)}
        one = objects.pod(draw, self.name("p"), draw.choice(("default", "team-a")))
        one["spec"]["containers"] = [asked]
        placement.wish(draw, one, self.theme.wishes)
        one["spec"]["priority"] = draw.choice((0, 0, 10, 100, 1000))
        if draw.chance(0.1):
            one["spec"]["schedulingGates"] = [{"name": "g"}, *draw.choice(([], [{"name": "h"}]))]
        if draw.chance(0.08):
            one["spec"]["preemptionPolicy"] = "Never"
        if draw.chance(0.05):
            one["spec"]["schedulerName"] = draw.choice(("other", "nobody"))
        if draw.chance(0.05):
            one["status"]["nominatedNodeName"] = draw.choice((self.a_node(), "gone"))
        self.theme.equip(self, one)
        return self.started(one)

    def started(self, pod: JsonObject) -> JsonObject:
        """Return the pod with a start time: no two victims are equally old."""
        self._numbers += 1
        minutes, seconds = divmod(self._numbers, 60)
        pod["status"]["startTime"] = f"2022-03-01T00:{minutes:02}:{seconds:02}Z"
        return pod


Change = Callable[[Script], Any]


class Theme:
    """The objects and steps of a theme, in addition to nodes and pods."""

    wishes = 0.15

    changes: tuple[Change, ...] = ()
    """The additional steps of a theme."""

    def before(self, script: Script) -> list[JsonObject]:
        """Return the objects at the start, after the nodes."""
        return []

    def equip(self, script: Script, pod: JsonObject) -> None:
        """Add the theme's constraints to a pod."""


# ---- what happens to nodes and pods --------------------------------------------------------------


def _change_node(script: Script) -> None:
    draw = script.draw
    cpu, memory = draw.choice(("1", "4", "8")), draw.choice(("2Gi", "16Gi"))
    allocatable = draw.fields(0.7, cpu=cpu, memory=memory, pods=draw.choice(("1", "10")))
    ready = [{"type": "Ready", "status": draw.choice(("True", "False"))}]
    patches: tuple[JsonObject, ...] = (
        {"metadata": {"labels": draw.fields(0.6, disk="ssd", **{objects.ZONE: "z1"})}},
        {"metadata": {"labels": {draw.choice(("disk", objects.ZONE)): None}}},
        {"metadata": {"annotations": {"x": script.name("v")}}},
        {"spec": {"taints": draw.choice(([], [objects.taint(draw)]))}},
        {"spec": {"unschedulable": draw.chance(0.4)}},
        {"status": {"allocatable": allocatable}},
        {"status": {"conditions": ready}},
    )
    script.patch("Node", draw.choice(patches))


def _change_pod(script: Script) -> None:
    draw = script.draw
    asked = {"name": "c", "resources": objects.requests(draw, small=True)}
    spec = {"containers": [asked]}
    gates = draw.choice((None, [], [{"name": "h"}]))
    patches: tuple[JsonObject, ...] = (
        {"metadata": {"labels": objects.labels(draw)}},
        {"metadata": {"labels": {"app": None}}},
        {"metadata": {"annotations": {"x": script.name("v")}}},
        {"metadata": {"deletionTimestamp": objects.LONG_AGO}},
        {"spec": {"schedulingGates": gates}},
        {"spec": {"schedulingGates": gates}},
        {"spec": {"tolerations": [placement.toleration(draw)]}},
        {"spec": spec},
        {"status": {"phase": draw.choice(("Succeeded", "Failed"))}},
        {"status": {"nominatedNodeName": draw.choice(("", script.a_node()))}},
        {"status": objects.container_statuses(draw, spec)},
        {"status": {"conditions": [{"type": "X", "status": "True"}]}},
    )
    script.patch("Pod", draw.choice(patches))


def _resize(script: Script) -> None:
    """Resize a pod in place, then its status."""
    draw = script.draw
    if not script.known.get("Pod"):
        return
    reference = script.draw.choice(script.known["Pod"])["metadata"]
    target = {"kind": "Pod", "namespace": reference["namespace"], "name": reference["name"]}
    containers = [{"name": "c", "resources": objects.requests(draw, small=True)}]
    script.steps.append({"patch": {**target, "patch": {"spec": {"containers": containers}}}})
    if draw.chance(0.5):
        script.steps.append({"schedule": 2})
    given = {"name": "c", "allocatedResources": containers[0]["resources"]["requests"]}
    status = {"containerStatuses": [given | {"resources": containers[0]["resources"]}]}
    script.steps.append({"patch": {**target, "patch": {"status": status}}})


def _end_victims(script: Script) -> None:
    """End several pods of a node, one after the other."""
    draw = script.draw
    pods = [one for one in script.known.get("Pod", ()) if one["spec"].get("nodeName")]
    for one in draw.sample(pods, min(len(pods), 3)):
        reference = {"kind": "Pod", "name": one["metadata"]["name"]}
        reference["namespace"] = one["metadata"]["namespace"]
        if draw.chance(0.5):
            gone = {"metadata": {"deletionTimestamp": objects.LONG_AGO}}
            script.steps.append({"patch": {**reference, "patch": gone}})
        if draw.chance(0.3):
            script.steps.append({"schedule": 1})
        script.steps.append({"delete": reference})


_CHANGES: tuple[Change, ...] = (
    lambda script: script.add(script.node()),
    lambda script: script.delete("Node"),
    lambda script: script.add(script.assigned()),
    lambda script: script.delete("Pod"),
    lambda script: script.delete("Pod"),
    lambda script: script.patch("Namespace", {"metadata": {"labels": {"env": "prod"}}}),
    _change_node,
    _change_node,
    _change_pod,
    _change_pod,
    _resize,
    _end_victims,
)


# ---- themes --------------------------------------------------------------------------------------


class Wishes(Theme):
    """Affinity, spreading, taints and ports; services, which spread their pods by default."""

    wishes = 0.35
    changes = (
        _change_node,
        _change_pod,
        lambda script: [script.add(one) for one in placement.workloads(script.draw)],
        lambda script: script.delete(script.draw.choice(("Service", "ReplicaSet"))),
        lambda script: script.patch(
            "Service", {"spec": {"selector": {"app": script.draw.choice(objects.APPS)}}}
        ),
    )

    def before(self, script: Script) -> list[JsonObject]:
        """Return services."""
        return placement.workloads(script.draw)

    def equip(self, script: Script, pod: JsonObject) -> None:
        """Let the pod be one of many."""
        if script.draw.chance(0.4):
            placement.own(pod)


class Preemption(Theme):
    """Budgets, and pods of all priorities."""

    wishes = 0.08
    changes = (
        lambda script: script.add(preemption.budget(script.draw, len(script.steps))),
        lambda script: script.patch(
            "PodDisruptionBudget", {"status": {"disruptionsAllowed": script.draw.choice((0, 1))}}
        ),
        lambda script: script.delete("PodDisruptionBudget"),
        lambda script: script.add(script.assigned()),
        lambda script: _important(script),
    )


def _important(script: Script) -> None:
    one = script.waiting()
    one["spec"]["priority"] = 5000
    script.add(one)
    script.steps.append({"schedule": script.draw.choice((1, 2))})


class Volumes(Theme):
    """Claims that are bound, or will be; nothing that waits for a provisioner."""

    def __init__(self) -> None:
        self._stock: volumes.Stock
        self._names = [f"claim{n}" for n in range(5)]
        self.changes = (self._bring_claim, self._bring_claim, self._bind, self._else, self._change)

    def before(self, script: Script) -> list[JsonObject]:
        """Return classes and the attach limits of nodes."""
        draw = script.draw
        nodes = [one["metadata"]["name"] for one in script.known["Node"]]
        self._stock = volumes.Stock(draw, nodes)
        found = [volumes.storage_class(draw, name) for name in draw.some(("now", "wait"))]
        found += [volumes.csi_node(draw, name) for name in nodes if draw.chance(0.6)]
        return found

    def equip(self, script: Script, pod: JsonObject) -> None:
        """Let the pod use some of a few claims."""
        names = script.draw.sample(self._names, script.draw.choice((0, 1, 1, 2)))
        pod["metadata"]["namespace"] = "default"
        pod["spec"]["volumes"] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names
        ]

    def _bring_claim(self, script: Script) -> None:
        name = script.draw.choice(self._names)
        if any(one["metadata"]["name"] == name for one in self._stock.claims):
            return
        bound = script.draw.chance(0.8)
        claim = self._stock.bound(name) if bound else self._stock.claim(name)
        claim["metadata"].pop("deletionTimestamp", None)
        if not bound:  # one that waits would keep its pod in the binding cycle
            claim["spec"]["storageClassName"] = "now"
        parts = [claim]
        if bound and self._stock.volumes:
            parts.append(self._stock.volumes[-1])
        for part in script.draw.sample(parts, len(parts)):
            script.add(part)

    def _bind(self, script: Script) -> None:
        volume = self._stock.volume(script.name("v"))
        name = volume["metadata"]["name"]
        script.add(volume)
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        patch = {"metadata": {"annotations": done}, "spec": {"volumeName": name}}
        script.patch("PersistentVolumeClaim", patch | {"status": {"phase": "Bound"}})

    def _else(self, script: Script) -> None:
        draw = script.draw
        one: Callable[[], Any] = draw.choice(
            (
                lambda: script.add(volumes.csi_node(draw, script.a_node())),
                lambda: script.delete("CSINode"),
                lambda: script.delete("PersistentVolumeClaim"),
                lambda: script.delete("PersistentVolume"),
                lambda: script.delete("StorageClass"),
                lambda: script.add(volumes.storage_class(draw, draw.choice(("now", "wait")))),
            )
        )
        one()

    def _change(self, script: Script) -> None:
        draw = script.draw
        drivers = [{"name": "csi.example.com", "nodeID": "x", "allocatable": {"count": 3}}]
        labels = {objects.ZONE: draw.choice(("z0", "z1", None))}
        kind, patch = draw.choice(
            (
                ("CSINode", {"spec": {"drivers": drivers}}),
                ("CSINode", {"metadata": {"annotations": {"x": script.name("v")}}}),
                ("PersistentVolume", {"metadata": {"labels": labels}}),
                ("PersistentVolume", {"metadata": {"annotations": {"x": script.name("v")}}}),
                ("PersistentVolumeClaim", {"metadata": {"labels": {"x": script.name("v")}}}),
                ("PersistentVolumeClaim", {"spec": {"accessModes": ["ReadWriteOncePod"]}}),
                ("StorageClass", {"allowedTopologies": None}),
                ("StorageClass", {"metadata": {"labels": {"x": script.name("v")}}}),
            )
        )
        script.patch(kind, patch)


class Devices(Theme):
    """Claims, slices and classes that are created, changed and deleted."""

    def __init__(self) -> None:
        self._names = [f"rc{n}" for n in range(5)]
        self._wide = False
        self.changes = (self._bring_claim, self._bring_claim, self._bring_slice, self._change)

    def before(self, script: Script) -> list[JsonObject]:
        """Return classes and some slices."""
        self._wide = script.draw.chance(0.3)
        found = [one for one in devices.classes(script.draw) if script.draw.chance(0.8)]
        return found + self._slices(script)

    def equip(self, script: Script, pod: JsonObject) -> None:
        """Let the pod use some of few claims, or an extended resource."""
        draw = script.draw
        names = draw.sample(self._names, draw.choice((0, 1, 1, 1, 2)))
        pod["metadata"]["namespace"] = "default"
        refer = [{"name": name, "resourceClaimName": name} for name in names]
        pod["spec"]["resourceClaims"] = refer
        asked = pod["spec"]["containers"][0]["resources"]
        asked["claims"] = [{"name": name} for name in names]
        if draw.chance(0.15):
            for side in ("requests", "limits"):
                asked.setdefault(side, {})["example.com/bar"] = "1"

    def _slices(self, script: Script) -> list[JsonObject]:
        nodes = [one["metadata"]["name"] for one in script.known["Node"]]
        found, _ = devices.slices(script.draw, nodes, wide=self._wide)
        for one in found:
            one["metadata"]["name"] = script.name("s")
            for device in one["spec"].get("devices", ()):
                device.pop("bindingConditions", None)  # nobody would fulfil them
                device.pop("bindingFailureConditions", None)
        return found

    def _bring_claim(self, script: Script) -> None:
        name = script.draw.choice(self._names)
        script.add(claims.claim(script.draw, name, wide=self._wide))

    def _bring_slice(self, script: Script) -> None:
        script.add(self._slices(script)[0])

    def _change(self, script: Script) -> None:
        draw = script.draw
        selectors = draw.choice(([], devices.selectors(draw)))
        one: Callable[[], Any] = draw.choice(
            (
                lambda: script.delete("ResourceSlice"),
                lambda: script.patch("ResourceSlice", {"spec": {"pool": {"generation": 2}}}),
                lambda: script.patch("ResourceSlice", {"spec": {"devices": [{"name": "gpu-9"}]}}),
                lambda: script.delete("ResourceClaim"),
                lambda: script.patch("ResourceClaim", _RESERVED),
                lambda: script.patch("ResourceClaim", {"status": {"reservedFor": None}}),
                lambda: script.patch("ResourceClaim", {"metadata": {"labels": {"a": "b"}}}),
                lambda: script.patch("DeviceClass", {"spec": {"selectors": selectors}}),
                lambda: script.delete("DeviceClass"),
            )
        )
        one()


class Mixture(Theme):
    """All other themes at once."""

    wishes = 0.2

    def __init__(self) -> None:
        self._themes = (Volumes(), Devices(), Preemption())
        self.changes = tuple(change for theme in self._themes for change in theme.changes)

    def before(self, script: Script) -> list[JsonObject]:
        """Return the objects of all themes."""
        return [one for theme in self._themes for one in theme.before(script)]

    def equip(self, script: Script, pod: JsonObject) -> None:
        """Add the constraints of one or two themes to the pod."""
        for theme in self._themes:
            if script.draw.chance(0.4):
                theme.equip(script, pod)


def _configuration(draw: Draw) -> JsonObject | None:
    if draw.chance(0.5):
        return None
    made = configuration([])
    if draw.chance(0.5):
        made |= draw.choice(
            (
                {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 3},
                {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 5},
                {"podInitialBackoffSeconds": 3, "podMaxBackoffSeconds": 30},
            )
        )
    if draw.chance(0.5):
        made["profiles"].append({"schedulerName": "other"})
    if draw.chance(0.3):
        off = draw.choice(("DefaultPreemption", "NodeResourcesFit", "InterPodAffinity"))
        made["profiles"][0]["plugins"] = {"multiPoint": {"disabled": [{"name": off}]}}
    if draw.chance(0.3):
        scored = [{"name": "cpu", "weight": 1}]
        args = {"scoringStrategy": {"type": "MostAllocated", "resources": scored}}
        made["profiles"][0]["pluginConfig"] = [{"name": "NodeResourcesFit", "args": args}]
    return made


def script_of(theme: type[Theme]) -> Callable[[Draw], JsonObject]:
    """Return the grammar of scripts of a theme."""
    return lambda draw: Script(draw, theme()).write()
