"""One HTTP extender: who may be asked what, and what its answers mean for our nodes and pods.

The order in which several are asked, and what becomes of their errors, is ``extender_chain``'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proreus.clock import Clock
from proreus.config.types import Extender as ExtenderConfiguration
from proreus.errors import ConfigError, ExtenderError
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.victims import Victims
from proreus.logs import logger
from proreus.objects.kinds import NODES, PODS
from proreus.objects.node import Node
from proreus.objects.pod import Container, Pod
from proreus.objects.with_json import NodeWithJson, PendingPodWithJson, PodWithJson
from proreus.scheduler import extender_wire as wire
from proreus.scheduler.extender_circuit import CircuitBreakers
from proreus.scheduler.extender_transport import ExtenderUnreachable, Transport

log = logger(__name__)

MAX_EXTENDER_PRIORITY = 10
_SCALE = 100 // MAX_EXTENDER_PRIORITY


class HTTPExtender:
    """An extender as configured. Raises ``ConfigError`` when its TLS options do not work.

    Every method that asks raises ``ExtenderError``.
    """

    def __init__(self, config: ExtenderConfiguration, clock: Clock) -> None:
        self.url = config.url_prefix
        self.filter_verb = config.filter_verb
        self.prioritize_verb = config.prioritize_verb
        self.preempt_verb = config.preempt_verb
        self.bind_verb = config.bind_verb
        self.ignorable = config.ignorable
        self._weight = config.weight
        self._by_name = config.node_cache_capable
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self._transport = Transport(config)
        verbs = (self.filter_verb, self.prioritize_verb, self.preempt_verb, self.bind_verb)
        seconds = config.http_timeout_seconds
        self._circuit_breakers = CircuitBreakers((verb for verb in verbs if verb), clock, seconds)

    def is_interested(self, pod: Pod) -> bool:
        """Tell whether to ask about a pod: always, or where it names a managed resource."""
        managed, spec = self._managed, pod.spec
        return not managed or any(
            _names_any(container, managed)
            for container in (*spec.containers, *spec.init_containers)
        )

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> wire.ExtenderFilterResult:
        """Ask which of the nodes can take the pod."""
        body = wire.extender_args(pod, nodes, self._by_name)
        answer = await self._ask(self.filter_verb, body, failure_ignored=self.ignorable)
        filtered = wire.read_filter_result(answer, self._by_name)
        known = {node.metadata.name for node in nodes}
        for name in filtered.names:
            if name not in known:
                raise ExtenderError(
                    f'extender "{self.url}" claims a filtered node "{name}" which is not found in '
                    "the input node list"
                )
        return filtered

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> dict[str, int]:
        """Ask how good the nodes are; return what that adds to their scores, by name."""
        body = wire.extender_args(pod, nodes, self._by_name)
        answer = await self._ask(self.prioritize_verb, body, failure_ignored=True)
        added: dict[str, int] = {}
        for name, score in wire.read_host_priority_list(answer):
            added[name] = added.get(name, 0) + score * self._weight * _SCALE
        return added

    async def preempt(
        self, pod: Pod, victims: Mapping[str, Victims], nodes: NodeTable
    ) -> dict[str, Victims]:
        """Ask on which nodes room may be made, and at whose expense."""
        body = wire.extender_preemption_args(pod, victims, self._by_name)
        answer = await self._ask(self.preempt_verb, body, failure_ignored=self.ignorable)
        return {
            name: self._known_victims(name, meta, nodes)
            for name, meta in wire.read_preemption_result(answer).items()
        }

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Have the extender bind the pod."""
        body = wire.extender_binding_args(pod, node_name)
        answer = await self._ask(
            self.bind_verb, body, failure_ignored=self.ignorable, repeatable=False
        )
        wire.read_binding_result(answer)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _known_victims(self, name: str, meta: wire.MetaVictims, nodes: NodeTable) -> Victims:
        """Find the pods that the extender names."""
        row = nodes.rows.get(name)
        if row is None:
            raise ExtenderError(f'nodeinfo not found for node name "{name}"')
        here = nodes[row].pods
        found: list[PodInfo] = []
        for uid in meta.uids:
            if uid not in here:
                raise ExtenderError(
                    f"extender: {self.url} claims to preempt pod (UID: &{{{uid}}}) on node: "
                    f"{name}, but the pod is not found on that node"
                )
            found.append(here[uid])
        return Victims(tuple(found), meta.pdb_violations)

    async def _ask(
        self, verb: str, body: bytes, *, failure_ignored: bool, repeatable: bool = True
    ) -> bytes:
        """Send a question. ``failure_ignored``: nothing comes of a failure, so it may be spared."""
        circuits = self._circuit_breakers
        if failure_ignored and not circuits.allows(verb):
            raise ExtenderError(f"extender {self.url} has not answered and is left out for a while")
        try:
            answer = await self._transport.post(verb, body, repeatable=repeatable)
        except ExtenderUnreachable as error:
            seconds = circuits.failed(verb, error.timed_out)
            if failure_ignored:
                message = "Extender does not answer, going on without it for a while"
                log.warning(message, err=error, extender=self.url, verb=verb, seconds=seconds)
            raise
        except ExtenderError:
            circuits.answered(verb)
            raise
        if circuits.answered(verb):
            log.info("Extender answers again", extender=self.url, verb=verb)
        return answer


def build_extenders(configs: Iterable[ExtenderConfiguration], clock: Clock) -> list[HTTPExtender]:
    """Make extenders in the order in which they are asked: those that may be ignored come last.

    Raises ``ConfigError``.
    """
    try:
        extenders = [HTTPExtender(config, clock) for config in configs]
    except ConfigError as error:
        raise ConfigError(f"couldn't build extenders: {error}") from error
    return sorted(extenders, key=lambda extender: extender.ignorable)


def whole_types(configs: Iterable[ExtenderConfiguration]) -> dict[str, type]:
    """Return, by kind, the types of which watched objects must be for extenders to see all of them.

    An extender that caches nodes is sent no nodes, and UIDs in place of victims.
    """
    types: dict[str, type] = {}
    for config in configs:
        about_nodes = bool(config.filter_verb or config.prioritize_verb)
        if about_nodes or config.preempt_verb:
            types.setdefault(PODS.kind, PendingPodWithJson)
        if config.preempt_verb and not config.node_cache_capable:
            types[PODS.kind] = PodWithJson
        if about_nodes and not config.node_cache_capable:
            types[NODES.kind] = NodeWithJson
    return types


def _names_any(container: Container, names: frozenset[str]) -> bool:
    resources = container.resources
    return any(name in names for name in (*resources.requests, *resources.limits))
