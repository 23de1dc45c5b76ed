"""One HTTP extender: its verbs, its responses, and pauses while it does not respond.

``extender_chain`` has the order in which several are called and the handling of their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from proreus.base.clock import Clock
from proreus.base.errors import ConfigError, ExtenderError
from proreus.base.logs import logger
from proreus.config.types import Extender as ExtenderConfiguration
from proreus.engine.extenders import extender_wire as wire
from proreus.engine.runtime import score_log
from proreus.framework.node_table import NodeTable
from proreus.framework.pod_info import PodInfo
from proreus.framework.post_filter_result import Victims
from proreus.objects.kinds import NODES, PODS
from proreus.objects.meta import key_of
from proreus.objects.node import Node
from proreus.objects.pod import Container, Pod
from proreus.objects.with_json import NodeWithJson, PendingPodWithJson, PodWithJson

log = logger(__name__)

MAX_EXTENDER_PRIORITY = 10
_SCALE = 100 // MAX_EXTENDER_PRIORITY

_REFUSED_SECONDS = (1.0, 30.0)
"""First and longest pause after a refused connection: trying again costs next to nothing."""
_TIMEOUTS = 4
_HUNG_SECONDS = 300.0
"""After a time-out the first pause is four time-outs, the longest five minutes."""


class ExtenderUnreachable(ExtenderError):
    """The extender was not reached or did not respond. ``timed_out``: by a time-out."""

    def __init__(self, text: str, timed_out: bool) -> None:
        super().__init__(text)
        self.timed_out = timed_out


def status_error(verb: str, url: str, status: int) -> ExtenderError:
    """Return the error of a response that is no 200."""
    return ExtenderError(f"failed {verb} with extender at URL {url}, code {status}")


class ExtenderTransport(Protocol):
    """Carries requests to one extender, as ``extender_transport.Transport`` and fakes of it do."""

    async def post(self, verb: str, body: bytes, *, repeatable: bool = True) -> bytes:
        """Return the body of a response; raises ``ExtenderError``."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


TransportFactory = Callable[[ExtenderConfiguration], ExtenderTransport]


def new_transport(config: ExtenderConfiguration) -> ExtenderTransport:
    """Return the connections to one extender; raises ``ConfigError``."""
    # Here, since a start does without aiohttp, and most processes have no extender.
    from proreus.engine.extenders.extender_transport import Transport

    return Transport(config)


class _VerbState(Struct):
    """The state of one verb. ``pause``: seconds of the last pause, 0 while the extender answers.

    ``until``: when the pause ends. ``opened``: when the first failure of a series was seen.
    ``answered``: when a response last came.
    """

    pause: float = 0.0
    until: float = 0.0
    opened: float = 0.0
    answered: float = -1.0


class CircuitBreakers:
    """Pauses requests by verb of one extender; pauses double until it responds again.

    kube-scheduler sends a dead extender a request for every pod and waits for its time-out every
    time, even where the failure is ignored: errors of an ignorable extender, and all errors in
    Prioritize. Here such requests pause after a failure. Where a failure fails the pod, every pod
    sends its request, as in kube-scheduler.

    The circuit breaker of a plugin process (``remote/circuit``) has other rules: such a process
    can be probed in the background, while an extender has no endpoint to probe.
    """

    def __init__(self, verbs: Iterable[str], clock: Clock, timeout_seconds: float) -> None:
        self._verbs = {verb: _VerbState() for verb in verbs}
        self._clock = clock
        self._timeout = timeout_seconds

    def allows(self, verb: str) -> bool:
        """Return whether to send a request; at the end of a pause one caller may probe."""
        state, now = self._verbs[verb], self._clock.monotonic()
        if not state.pause:
            return True
        if now < state.until:
            return False
        # One probe at a time: until it has ended, or timed out, all other pods go on without.
        state.until = now + self._timeout
        return True

    def answered(self, verb: str) -> bool:
        """Record a response; return whether it ended a pause."""
        state = self._verbs[verb]
        paused, state.pause, state.answered = bool(state.pause), 0.0, self._clock.monotonic()
        return paused

    def failed(self, verb: str, timed_out: bool) -> float:
        """Record that no response came; return for how many seconds to pause."""
        first, longest = _REFUSED_SECONDS
        if timed_out:
            first, longest = _TIMEOUTS * self._timeout, max(_HUNG_SECONDS, self._timeout)
        state, now = self._verbs[verb], self._clock.monotonic()
        if not state.pause:
            state.opened = now
        pause = min(max(first, 2 * state.pause), longest)
        # A dead extender should cost one time-out, not one a verb: so all verbs pause. But if
        # another verb has responded since this one first failed, only this one hangs.
        alive = any(other.answered > state.opened for other in self._verbs.values())
        for other in (state,) if alive else self._verbs.values():
            if not other.pause:
                other.opened = now
            other.pause, other.until = pause, now + pause
        return pause


class HTTPExtender:
    """An extender as configured. Raises ``ConfigError`` when its TLS options do not work.

    Every method that sends a request raises ``ExtenderError``.
    """

    def __init__(
        self,
        config: ExtenderConfiguration,
        clock: Clock,
        transport: TransportFactory = new_transport,
    ) -> None:
        self.url = config.url_prefix
        self.filter_verb = config.filter_verb
        self.prioritize_verb = config.prioritize_verb
        self.preempt_verb = config.preempt_verb
        self.bind_verb = config.bind_verb
        self.ignorable = config.ignorable
        self._weight = config.weight
        self._by_name = config.node_cache_capable
        self._managed = frozenset(resource.name for resource in config.managed_resources)
        self._transport = transport(config)
        verbs = (self.filter_verb, self.prioritize_verb, self.preempt_verb, self.bind_verb)
        seconds = config.http_timeout_seconds
        self._circuit_breakers = CircuitBreakers((verb for verb in verbs if verb), clock, seconds)

    def is_interested(self, pod: Pod) -> bool:
        """Return whether to call it for a pod: always, or if it requests a managed resource."""
        managed, spec = self._managed, pod.spec
        return not managed or any(
            _names_any(container, managed)
            for container in (*spec.containers, *spec.init_containers)
        )

    async def filter(self, pod: Pod, nodes: Sequence[Node]) -> wire.ExtenderFilterResult:
        """Return the nodes that the extender accepts for the pod."""
        body = wire.extender_args(pod, nodes, self._by_name)
        response = await self._send(self.filter_verb, body, failure_ignored=self.ignorable)
        filtered = wire.read_filter_result(response, self._by_name)
        # A node that was not sent would bypass every filter before this one.
        known = {node.metadata.name for node in nodes}
        for name in filtered.names:
            if name not in known:
                raise ExtenderError(
                    f'extender "{self.url}" claims a filtered node "{name}" which is not found in '
                    "the input node list"
                )
        return filtered

    async def prioritize(self, pod: Pod, nodes: Sequence[Node]) -> dict[str, int]:
        """Return the extender's weighted scores by node name, to be added to the plugins'."""
        body = wire.extender_args(pod, nodes, self._by_name)
        response = await self._send(self.prioritize_verb, body, failure_ignored=True)
        added: dict[str, int] = {}
        logged = score_log.log.threshold >= score_log.LEVEL
        for name, score in wire.read_host_priority_list(response):
            if logged:
                score_log.log_extender_score(key_of(pod), self.url, name, score)
            # Extenders score from 0 to 10, plugins from 0 to 100.
            added[name] = added.get(name, 0) + score * self._weight * _SCALE
        return added

    async def preempt(
        self, pod: Pod, victims: Mapping[str, Victims], nodes: NodeTable
    ) -> dict[str, Victims]:
        """Return the nodes, with their victims, on which the extender allows preemption."""
        body = wire.extender_preemption_args(pod, victims, self._by_name)
        response = await self._send(self.preempt_verb, body, failure_ignored=self.ignorable)
        return {
            name: self._known_victims(name, meta, nodes)
            for name, meta in wire.read_preemption_result(response).items()
        }

    async def bind(self, pod: Pod, node_name: str) -> None:
        """Let the extender bind the pod. Sent once: it may have taken effect without a response."""
        body = wire.extender_binding_args(pod, node_name)
        response = await self._send(
            self.bind_verb, body, failure_ignored=self.ignorable, repeatable=False
        )
        wire.read_binding_result(response)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    def _known_victims(self, name: str, meta: wire.MetaVictims, nodes: NodeTable) -> Victims:
        """Return the pods that the extender names by UID."""
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

    async def _send(
        self, verb: str, body: bytes, *, failure_ignored: bool, repeatable: bool = True
    ) -> bytes:
        """Send a request, unless it is paused. ``failure_ignored``: failures have no effect."""
        circuits = self._circuit_breakers
        if failure_ignored and not circuits.allows(verb):
            raise ExtenderError(f"extender {self.url} has not answered and is skipped for a while")
        try:
            response = await self._transport.post(verb, body, repeatable=repeatable)
        except ExtenderUnreachable as error:
            seconds = circuits.failed(verb, error.timed_out)
            if failure_ignored:
                message = "Extender does not answer, going on without it for a while"
                log.warning(message, err=error, extender=self.url, verb=verb, seconds=seconds)
            raise
        except ExtenderError:
            # An error response is a response: the extender is alive.
            circuits.answered(verb)
            raise
        if circuits.answered(verb):
            log.info("Extender answers again", extender=self.url, verb=verb)
        return response


def build_extenders(
    configs: Iterable[ExtenderConfiguration],
    clock: Clock,
    transport: TransportFactory = new_transport,
) -> list[HTTPExtender]:
    """Return extenders in the order of their calls: ignorable ones last, as in kube-scheduler.

    Raises ``ConfigError``.
    """
    try:
        extenders = [HTTPExtender(config, clock, transport) for config in configs]
    except ConfigError as error:
        raise ConfigError(f"couldn't build extenders: {error}") from error
    return sorted(extenders, key=lambda extender: extender.ignorable)


def whole_types(configs: Iterable[ExtenderConfiguration]) -> dict[str, type]:
    """Return, by kind, the types to decode watched objects as, so that extenders see every field.

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
