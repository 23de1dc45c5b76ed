"""The configurations that a simulation is made with, loaded as ``proreus run`` loads its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proreus.base.errors import ConfigError
from proreus.process.cli.plugin_options import load_plugins

if TYPE_CHECKING:
    from proreus.base.kubernetes_version import KubernetesVersion
    from proreus.workbench.cli.simulate.output import Output
    from proreus.workbench.simulation.simulated_cluster import Settings


class Configurations:
    """Loads configurations for one version of Kubernetes, with the plugins of the options."""

    def __init__(
        self,
        version: KubernetesVersion | None,
        emulated_version: str | None,
        gates: tuple[str, ...],
        corrections: str,
        plugin: tuple[str, ...],
        plugin_dir: tuple[str, ...],
        seed: int,
    ) -> None:
        from proreus.base.feature_gates import FeatureGates
        from proreus.base.known_faults import parse_corrections
        from proreus.base.kubernetes_version import DEFAULT_VERSION, parse_emulated_version

        version = version or DEFAULT_VERSION
        if emulated_version:
            text = emulated_version.removeprefix("kube=")
            version = parse_emulated_version(text, "--emulated-version")
        settings = [one for text in gates for one in text.split(",") if one]
        corrected = parse_corrections(corrections.split(","))
        self._gates = FeatureGates.from_list(settings, version, corrections=corrected)
        self._loaded = load_plugins(plugin, plugin_dir)
        self._seed = seed

    def settings(self, path: Path | None, output: Output, task: str) -> Settings:
        """Return the settings of a configuration; raises ``ConfigError`` if it is invalid."""
        from proreus.config.load import default_configuration, load_file
        from proreus.workbench.simulation.simulated_cluster import Settings

        loaded, registry = self._loaded, self._loaded.registry
        if path is None:
            problems = loaded.problems_with(loaded.requested_names)
            if problems:
                raise ConfigError(*problems)
            plugins = loaded.default_plugins()
            configuration = default_configuration(registry, self._gates, plugins)
        else:
            with loaded.attributing_errors_to_plugins():
                try:
                    configuration = load_file(str(path), registry, self._gates)
                except ConfigError as error:
                    raise ConfigError(*(f"{path}: {one}" for one in error.problems)) from None
            if problems := loaded.problems(configuration):
                raise ConfigError(*problems)
        if configuration.extenders:
            output.note("extenders are not called: a simulation asks nobody")
        return Settings(configuration, registry, self._gates, self._seed, output.progress(task))
