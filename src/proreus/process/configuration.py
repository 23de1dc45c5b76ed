"""The configuration of a process, from flags, files and plugins.

Built at the start, where a fault ends the process, and at each reload, where it does not.
"""

from __future__ import annotations

from typing import Any

from proreus.base import logs
from proreus.base.errors import ConfigError
from proreus.config.load import default_configuration, load, naming_file, read_file
from proreus.config.types import ClientConnection, SchedulerConfiguration
from proreus.engine.runtime.expansion import effective_configuration
from proreus.process.loading.loaded_plugins import LoadedPlugins
from proreus.process.options import RunOptions
from proreus.process.watched_files import WatchedFiles

log = logs.logger(__name__)

DEFAULT_QPS = -1.0
"""No fixed rate, where the user states none. ``client.writing.request_window`` adapts to what the
apiserver can take; kube-scheduler's 50 requests a second would be the bottleneck."""


def configuration(
    options: RunOptions, loaded_plugins: LoadedPlugins, files: WatchedFiles
) -> SchedulerConfiguration:
    """Return the completed configuration: the file or the defaults, with flags over it.

    ``files`` learns what was read of the configuration file.
    Raises ``ConfigError``, also for a plugin that was refused and that the configuration names.
    """
    registry = loaded_plugins.registry

    def override(config: SchedulerConfiguration) -> SchedulerConfiguration:
        election = config.leader_election.model_copy(update=options.leader_election)
        return config.model_copy(update={"leader_election": election})

    gates = options.feature_gates
    with naming_file(options.config), loaded_plugins.attributing_errors_to_plugins():
        if options.config:
            source = read_file(options.config)
            files.set_loaded_config(source)
            config = load(source, registry, gates, override, DEFAULT_QPS)
            problems = loaded_plugins.problems(config)
        else:
            problems = loaded_plugins.problems_with(loaded_plugins.requested_names)
            plugins = loaded_plugins.default_plugins()
            config = override(default_configuration(registry, gates, plugins, DEFAULT_QPS))
            config = config.model_copy(update={"client_connection": _connection(options, config)})
    if problems:
        raise ConfigError(*problems)
    # Most likely a forgotten entry in the configuration; kube-scheduler cannot know such plugins.
    if unused := loaded_plugins.unused(config):
        log.warning("Plugins are loaded, but no profile enables them", plugins=unused)
    return effective_configuration(config, registry)


def report(loaded_plugins: LoadedPlugins) -> None:
    """Log which out-of-tree plugins were loaded, and which were refused."""
    for refusal in loaded_plugins.refusals:
        log.error("Plugin refused", err=refusal.why, source=refusal.source, place=refusal.place)
    for name, found in loaded_plugins.out_of_tree.items():
        content = loaded_plugins.hashes.get(found.origin.file, "")
        log.info("Plugin loaded", plugin=name, origin=str(found.origin), sha256=content)
        if loaded_plugins.replaces_add_on(name):
            log.warning(
                "Plugin replaces the add-on of that name", plugin=name, origin=str(found.origin)
            )


def _connection(options: RunOptions, config: SchedulerConfiguration) -> ClientConnection:
    """Apply the flags that are ignored if there is a configuration file."""
    update: dict[str, Any] = {"kubeconfig": options.kubeconfig}
    if options.kube_api_qps is not None:
        update["qps"] = options.kube_api_qps
    if options.kube_api_burst is not None:
        update["burst"] = options.kube_api_burst
    return config.client_connection.model_copy(update=update)
