"""The configuration in force, replaced between two scheduling cycles, or tried in its shadow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.config.fields import names_in_files
from proreus.config.types import SchedulerConfiguration
from proreus.engine.assembly import Assembly
from proreus.engine.extenders.extender import whole_types
from proreus.engine.profile_set import ProfileSet
from proreus.engine.runtime.registry import Registry
from proreus.insight.shadow.assembly import prepare_shadow
from proreus.insight.shadow.trial import ShadowLimits, ShadowTrial
from proreus.process.informer_sync import InformerSync
from proreus.process.process_state import ProcessState

log = logs.logger(__name__)

_FIXED_AT_START = (
    "leader_election",
    "client_connection",
    "enable_profiling",
    "delay_cache_until_active",
)
"""Fields of the configuration that are about the process."""


class ActiveConfiguration:
    """Puts configurations in force. ``sent_whole`` has, by kind, the objects whose JSON informers
    keep for extenders.
    """

    def __init__(
        self,
        state: ProcessState,
        assembly: Assembly,
        informer_sync: InformerSync,
        sent_whole: Mapping[str, type],
    ) -> None:
        self._state = state
        self._assembly = assembly
        self._scheduler = assembly.scheduler
        self._informer_sync = informer_sync
        self._sent_whole = sent_whole

    async def use(self, config: SchedulerConfiguration, registry: Registry) -> None:
        """Schedule by another configuration; raises ``ConfigError``, and then nothing has changed.

        Fields that concern the process rather than scheduling wait for the next start.
        """
        config = self._with_fixed_fields(config)
        if whole_types(config.extenders) != self._sent_whole:
            raise ConfigError("extenders: the objects sent to these need a restart of proreus")
        profile_set = self._assembly.prepare(config, registry)
        try:
            await self._wait_for_sync(profile_set)
        except BaseException:
            profile_set.close()
            raise
        # A cycle in progress keeps its plugins: half an attempt by each configuration would mix
        # the CycleState of one set of plugins with the methods of another.
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scheduler.between_cycles(partial(self._take, config, profile_set, taken))
        await taken

    async def begin_shadow(
        self, config: SchedulerConfiguration, registry: Registry, limits: ShadowLimits
    ) -> ShadowTrial:
        """Try another configuration in parallel with the one in force; raises ``ConfigError``."""
        trial = prepare_shadow(self._assembly, config, registry, limits)
        try:
            await self._wait_for_sync(trial.profile_set)
        except BaseException:
            trial.close()
            raise
        trial.start_background_work()
        self._scheduler.shadow = trial
        return trial

    def end_shadow(self, trial: ShadowTrial) -> None:
        """End a trial: it decides nothing more."""
        self._scheduler.shadow = None
        trial.close()

    def _with_fixed_fields(self, config: SchedulerConfiguration) -> SchedulerConfiguration:
        fixed = {name: getattr(self._state.config, name) for name in _FIXED_AT_START}
        changed = [n for n, value in fixed.items() if getattr(config, n) != value]
        if changed:
            aliases = names_in_files(SchedulerConfiguration)
            names = [aliases[name] for name in changed]
            log.warning("These fields come into force at the next start", fields=names)
        return config.model_copy(update=fixed)

    async def _wait_for_sync(self, profile_set: ProfileSet) -> None:
        await self._informer_sync.wait_for_kinds(profile_set.kinds, profile_set.needed_kinds)

    def _take(
        self, config: SchedulerConfiguration, profile_set: ProfileSet, taken: asyncio.Future[None]
    ) -> None:
        if taken.cancelled():  # the process is about to end
            profile_set.close()
            return
        try:
            self._assembly.use(profile_set)
            self._state.config = config
        except Exception as error:
            taken.set_exception(error)
        else:
            taken.set_result(None)
