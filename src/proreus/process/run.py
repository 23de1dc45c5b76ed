"""One scheduler process from its flags to its exit code.

    _run_until    plugins' processes ─► plugins ─► configuration ─► clients ─► Process.run
    Process.run   server ─► informers ─► Lease ─► scheduling loop, and the same in reverse

Everything is made here and passed down; packages below find nothing by themselves. The order and
the exit codes are kube-scheduler's, except that a signal ends with 0 also without leader election.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from proreus.base import logs
from proreus.base.clock import RealClock
from proreus.base.errors import ConfigError, LeaseLost, ProreusError, explained
from proreus.base.feature_gates import FeatureGates
from proreus.base.metrics import SchedulerMetrics
from proreus.config.load import naming_file
from proreus.config.types import SchedulerConfiguration
from proreus.config.write import to_yaml
from proreus.process.blocked_plugins import BlockedPlugins, default_path
from proreus.process.clients import make_clients
from proreus.process.configuration import configuration, report
from proreus.process.emulation import with_emulated_version
from proreus.process.loading.load import load
from proreus.process.loading_thread import LOADING, READING, run_in_loading_thread
from proreus.process.loop_errors import handle_loop_error
from proreus.process.loop_watchdog import LoopWatchdog
from proreus.process.options import RunOptions
from proreus.process.process import Foundation, Process
from proreus.process.reload import Reloader
from proreus.process.remote_plugins import connect_plugins
from proreus.process.shadow_trials import ShadowTrials
from proreus.process.stopping import first_error, until_set
from proreus.process.watched_files import WatchedFiles
from proreus.server.open_files import raise_open_files_limit

log = logs.logger(__name__)


async def run(options: RunOptions, on_signal: Callable[[], None] = lambda: None) -> int:
    """Run one scheduler process; return its exit code.

    0 after SIGTERM or SIGINT, 1 after a lost Lease or an error, which is one sentence in the log. A
    second signal ends the process with 1 on the spot. ``on_signal`` is called at the first one.
    """
    logs.configure(options.verbosity, options.logging_format, options.vmodule)
    if options.flags_without_effect:
        log.warning("Flags without effect in proreus", flags=list(options.flags_without_effect))
    raise_open_files_limit()
    asyncio.get_running_loop().set_exception_handler(handle_loop_error)
    stopping = asyncio.Event()
    failure: tuple[str, BaseException] | None = None
    rules = options.plugin_rules
    path = Path(options.blocked_plugins_file) if options.blocked_plugins_file else default_path()
    watchdog = LoopWatchdog(
        options.loop_blocked_threshold_seconds,
        options.plugin_blocked_exit_seconds,
        BlockedPlugins(path, rules.policy),
    )
    with _signals(stopping, on_signal), watchdog:
        try:
            await _run_until(stopping, options, watchdog)
        except* LeaseLost as group:
            failure = "Leaderelection lost", first_error(group)
        except* ProreusError as group:
            failure = "command failed", first_error(group)
    if failure is not None:
        message, error = failure
        log.error(message, err=explained(error))
        return 1
    log.info("Requested to terminate, exiting")
    return 0


async def _run_until(stopping: asyncio.Event, options: RunOptions, watchdog: LoopWatchdog) -> None:
    """Start, schedule until ``stopping`` is set, and stop in order."""
    async with contextlib.AsyncExitStack() as stack:
        started = None
        # The start waits for others too: a plugin's process, a credential plugin, the apiserver.
        async with until_set(stopping):
            started = await _start(options, stack, watchdog)
        if started is not None and not stopping.is_set():
            process, reloading = started
            await process.run(stopping, reloading)


async def _follow(
    options: RunOptions, process: Process, reloader: Reloader, trials: ShadowTrials | None
) -> None:
    """Reload changes; try a candidate and record arrivals, if asked to."""
    async with asyncio.TaskGroup() as tasks:
        if options.record_arrivals:
            work = _record_arrivals(options, process)
            tasks.create_task(work, name="recording of arrivals")
        tasks.create_task(reloader.run(), name="reloading")
        if trials is not None:
            tasks.create_task(trials.run(), name="shadow trials")


async def _record_arrivals(options: RunOptions, process: Process) -> None:
    """Record from the moment when all informers have synced, until cancelled."""
    from proreus.insight.snapshots.recording import ArrivalRecorder

    await process.synced.wait()
    recorder = ArrivalRecorder(Path(options.record_arrivals), RealClock())
    resources = [informer.resource for informer in process.stores.group.by_kind.values()]
    recorder.begin(process.stores, resources, options.feature_gates.emulation_version)
    await recorder.run()


async def _start(
    options: RunOptions, stack: contextlib.AsyncExitStack, watchdog: LoopWatchdog
) -> tuple[Process, Callable[[], Coroutine[Any, Any, None]]] | None:
    """Return a process that can run, and its reloader; ``stack`` closes its parts.

    None where the configuration was only to be written.
    """
    metrics = SchedulerMetrics(
        options.disabled_metrics,
        options.allow_metric_labels,
        options.feature_gates.emulation_version,
        options.show_hidden_metrics,
    )
    remote_plugins = await stack.enter_async_context(
        connect_plugins(options.plugin_endpoints, options.plugin_slots, metrics)
    )
    # Before any file is read: a file that changes while it is loaded counts as changed.
    files = WatchedFiles(options.config, options.plugins)
    # No limit: without its plugins the process has nothing to do, and they may import much.
    folders = options.plugins.folders
    loading = partial(load, options.plugins, remote_plugins.classes)
    loaded_plugins = await run_in_loading_thread(loading, LOADING, folders)
    files.set_loaded(loaded_plugins)
    watchdog.blocked_plugins.apply(loaded_plugins)
    report(loaded_plugins)
    reading = partial(configuration, options, loaded_plugins, files)
    config = await run_in_loading_thread(reading, READING, folders)
    await remote_plugins.check_args(config)
    remote_plugins.keep_for_slots(config)
    clients = await make_clients(options, config, metrics, stack)
    emulating = options
    if not options.write_config_to:
        emulating = await with_emulated_version(options, clients.main)
    if emulating is not options:
        options = emulating
        reading = partial(configuration, options, loaded_plugins, files)
        config = await run_in_loading_thread(reading, READING, folders)
        metrics.emulate(options.feature_gates.emulation_version)
    _set_versions(metrics, options)
    with naming_file(options.config):
        process = Process(
            Foundation(
                options=options,
                config=config,
                registry=loaded_plugins.registry,
                metrics=metrics,
                clients=clients,
                remote_plugins=remote_plugins,
                watchdog=watchdog,
            )
        )
    # After the clients on the stack, and so closed before them.
    stack.push_async_callback(process.close)
    # Not before everything was made of it: plugins and extenders find faults of their own.
    if options.write_config_to:
        await _write_configuration(options.write_config_to, config, options.feature_gates)
        return None
    process.state.plugin_files = loaded_plugins.files()
    metrics.plugin_file_info.set_function(
        lambda: {
            (one["file"], one["sha256"], one["package"]): 1.0 for one in process.state.plugin_files
        }
    )
    reloader = Reloader(options, files, remote_plugins, metrics, process)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, process.debugger.request)
    trials = None
    if options.shadow is not None:
        trials = ShadowTrials(options, process, remote_plugins, metrics, reloader)
        process.state.shadow = trials.describe
    return process, partial(_follow, options, process, reloader, trials)


def _set_versions(metrics: SchedulerMetrics, options: RunOptions) -> None:
    gates = options.feature_gates
    metrics.set_versions(
        options.version, str(gates.emulation_version), str(gates.min_compatibility_version)
    )
    metrics.set_features(
        (name, gate.stage, gates.enabled(name)) for name, gate in gates.specs.items()
    )


async def _write_configuration(
    path: str, config: SchedulerConfiguration, gates: FeatureGates
) -> None:
    try:
        await asyncio.to_thread(Path(path).write_text, to_yaml(config, gates))
    except OSError as error:
        raise ConfigError(f"--write-config-to {path}: {error.strerror or error}") from error
    log.info("Wrote configuration", file=path)


@contextlib.contextmanager
def _signals(stopping: asyncio.Event, on_signal: Callable[[], None]) -> Iterator[None]:
    """Set ``stopping`` at the first SIGTERM or SIGINT, and exit at the second.

    SIGUSR2, which would end the process, is ignored until there is something to compare.
    """
    requested = False

    loop = asyncio.get_running_loop()

    # Python's handler in the place of the loop's: it runs also where a plugin blocks the loop, on
    # top of the plugin's code.
    def received(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            os._exit(1)
        requested = True
        on_signal()
        loop.call_soon_threadsafe(stopping.set)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Makes the loop wake up at the signal, in which Python then calls the handler.
        loop.add_signal_handler(number, lambda: None)
        signal.signal(number, received)
    loop.add_signal_handler(signal.SIGUSR2, lambda: None)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            loop.remove_signal_handler(number)
