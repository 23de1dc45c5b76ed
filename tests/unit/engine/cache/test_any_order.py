"""Whatever happens in whatever order: cache and columns agree, and with a model of a few lines."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proreus.base.clock import FakeClock
from proreus.engine.cache.cache import Cache, CacheError
from proreus.framework.pod_info import PodInfo
from proreus.testing.builders import make_node, make_pod

NODES = st.sampled_from(["n0", "n1", "n2", "n3"])
PODS = st.sampled_from([f"p{i}" for i in range(8)])
CPU = st.integers(0, 3)
ANTI = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
        ]
    }
}
SHAPES: dict[str, dict[str, object]] = {
    "plain": {},
    "ports": {"host_ports": [80, "81/UDP"]},
    "affinity": {"affinity": ANTI, "labels": {"app": "a"}},
    "volume": {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
    "device": {"resources": {"example.com/device": 1}},
}
SHAPE = st.sampled_from(sorted(SHAPES))
ZONES = st.sampled_from(["", "a", "b"])


class CacheMachine(RuleBasedStateMachine):
    """The model: pod -> (node, milli-CPU, assumed), and the nodes that are known."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(0)
        self.cache = Cache(self.clock, 30)
        self.pods: dict[str, tuple[str, int, bool]] = {}
        self.infos: dict[str, PodInfo] = {}
        self.expires: dict[str, float] = {}
        self.nodes: set[str] = set()

    def make(self, name: str, cpu: int, shape: str, node: str = "") -> PodInfo:
        return make_pod(name, cpu=cpu, node_name=node, **SHAPES[shape])  # type: ignore[arg-type]

    def forget_expiry(self, name: str) -> None:
        self.expires.pop(name, None)

    @rule(name=PODS, node=NODES, cpu=CPU, shape=SHAPE)
    def assume(self, name, node, cpu, shape) -> None:
        info = self.make(name, cpu, shape)
        try:
            self.cache.assume(info, node)
            assert name not in self.pods
            self.pods[name], self.infos[name] = (node, 1000 * cpu, True), info
        except CacheError:
            assert name in self.pods

    @rule(name=PODS, node=NODES)
    def forget(self, name, node) -> None:
        known = self.pods.get(name)
        try:
            self.cache.forget(make_pod(name), node)
            if known is not None:
                assert known[0] == node
                assert known[2]
                del self.pods[name]
                self.forget_expiry(name)
        except CacheError:
            assert known is not None
            assert known[0] != node or not known[2]

    @rule(name=PODS, node=NODES, cpu=CPU, shape=SHAPE)
    def add(self, name, node, cpu, shape) -> None:
        known = self.pods.get(name)
        try:
            self.cache.add_pod(self.make(name, cpu, shape, node))
            assert known is None or known[2]
            self.pods[name] = (node, 1000 * cpu, False)
            self.forget_expiry(name)
        except CacheError:
            assert known is not None
            assert not known[2]

    @rule(name=PODS)
    def confirm_as_assumed(self, name) -> None:
        known = self.pods.get(name)
        if known is None or not known[2]:
            return
        node, cpu, _ = known
        pod = self.infos[name].pod
        shape = next(s for s in SHAPES if self.make(name, cpu // 1000, s).pod.spec == pod.spec)
        self.cache.add_pod(self.make(name, cpu // 1000, shape, node))
        self.pods[name] = (node, cpu, False)
        self.forget_expiry(name)

    @rule(name=PODS, cpu=CPU, shape=SHAPE)
    def update(self, name, cpu, shape) -> None:
        known = self.pods.get(name)
        node = known[0] if known else "n0"
        try:
            self.cache.update_pod(self.make(name, cpu, shape, node))
            assert known is not None
            assert not known[2]
            self.pods[name] = (node, 1000 * cpu, False)
        except CacheError:
            assert known is None or known[2]

    @rule(name=PODS)
    def remove(self, name) -> None:
        known = self.pods.pop(name, None)
        self.forget_expiry(name)
        try:
            self.cache.remove_pod(make_pod(name, node_name=known[0] if known else "n0").pod)
            assert known is not None
        except CacheError:
            assert known is None

    @rule(name=PODS)
    def finish(self, name) -> None:
        info = make_pod(name)
        self.cache.finish_binding(info.uid)
        known = self.pods.get(name)
        if known is not None and known[2]:
            self.expires[name] = self.clock.now() + 30

    @rule(seconds=st.sampled_from([10, 40]))
    def pass_time(self, seconds) -> None:
        self.clock.advance(seconds)
        overdue = {name for name, at in self.expires.items() if at <= self.clock.now()}
        gone = {(pod.name, node) for pod, node in self.cache.expire_assumed()}
        assert gone == {(name, self.pods[name][0]) for name in overdue}
        for name in overdue:
            del self.pods[name], self.expires[name]

    @rule(name=NODES, cpu=st.integers(1, 9), zone=ZONES, image=st.booleans())
    def put_node(self, name, cpu, zone, image) -> None:
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        images = {"app:1": 10**8} if image else {}
        self.cache.update_node(make_node(name, cpu=cpu, labels=labels, images=images))
        self.nodes.add(name)

    @rule(name=NODES)
    def remove_node(self, name) -> None:
        try:
            self.cache.remove_node(name)
            self.nodes.remove(name)
        except CacheError:
            assert name not in self.nodes

    @rule()
    def look_across_nodes(self) -> None:
        assert self.cache.table.pod_index is not None

    @invariant()
    def everything_agrees(self) -> None:
        cache, table = self.cache, self.cache.table
        cache.validate()
        assert set(table.rows) == self.nodes
        on = {name: sum(c for n, c, _ in self.pods.values() if n == name) for name in self.nodes}
        cpu = table.requested["cpu"].tolist()
        assert {name: cpu[row] for name, row in table.rows.items()} == on
        assert cache.pod_count == len(self.pods)
        assert cache.assumed_count == sum(assumed for _, _, assumed in self.pods.values())
        ghosts = {node for node, _, _ in self.pods.values()} - self.nodes
        assert cache.node_count == len(self.nodes) + len(ghosts)
        assert sorted(cache.node_order().tolist()) == list(range(table.size))


CacheMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestCache = CacheMachine.TestCase
