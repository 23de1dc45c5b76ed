"""The configurations that a simulation is made with, loaded as ``proreus run`` loads its own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from proreus.base.errors import ConfigError
from proreus.base.feature_gates import FeatureGates
from proreus.base.known_faults import parse_corrections
from proreus.base.kubernetes_version import (
    DEFAULT_VERSION,
    KubernetesVersion,
    parse_emulated_version,
)
from proreus.process.cli.plugin_options import load_plugins

if TYPE_CHECKING:
    from proreus.process.loading.loaded_plugins import LoadedPlugins
    from proreus.workbench.cli.simulate.output import Output
    from proreus.workbench.simulation.simulated_cluster import Settings


@dataclass(frozen=True)
class Configurations:
    """Loads configurations, with the plugins and gates of the options."""

    emulated_version: str | None
    gates: tuple[str, ...]
    corrections: str
    plugin: tuple[str, ...]
    plugin_dir: tuple[str, ...]
    seed: int

    def settings(
        self, version: KubernetesVersion | None, path: Path | None, output: Output, task: str
    ) -> Settings:
        """Return the settings of a configuration; raises ``ConfigError`` if it is invalid.

        ``version``: that of the cluster, which applies if no option names another one.
        """
        from proreus.config.load import default_configuration, load_file
        from proreus.workbench.simulation.simulated_cluster import Settings

        gates, loaded = self._gates(version), self._loaded
        if path is None:
            if problems := loaded.problems_with(loaded.requested_names):
                raise ConfigError(*problems)
            plugins = loaded.default_plugins()
            configuration = default_configuration(loaded.registry, gates, plugins)
        else:
            with loaded.attributing_errors_to_plugins():
                try:
                    configuration = load_file(str(path), loaded.registry, gates)
                except ConfigError as error:
                    raise ConfigError(*(f"{path}: {one}" for one in error.problems)) from None
            if problems := loaded.problems(configuration):
                raise ConfigError(*problems)
        if configuration.extenders:
            output.note("extenders are not called: a simulation asks nobody")
        return Settings(configuration, loaded.registry, gates, self.seed, output.progress(task))

    @cached_property
    def _loaded(self) -> LoadedPlugins:
        return load_plugins(self.plugin, self.plugin_dir)

    def _gates(self, version: KubernetesVersion | None) -> FeatureGates:
        version = version or DEFAULT_VERSION
        if self.emulated_version:
            text = self.emulated_version.removeprefix("kube=")
            version = parse_emulated_version(text, "--emulated-version")
        settings = [one for text in self.gates for one in text.split(",") if one]
        corrected = parse_corrections(self.corrections.split(","))
        return FeatureGates.from_list(settings, version, corrections=corrected)
