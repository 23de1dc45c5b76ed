"""Other weights of score plugins, for one dry run.

Scores are kept with the weights that they were added up with: ``change`` comes before the first
pod, and the shared results are cleared (``DryRunEnvironment.forget_results``) before the next dry
run.
"""

from __future__ import annotations

from collections.abc import Mapping

from proreus.engine.runtime.profile import Profile
from proreus.insight.dry_run.api import ScoreWeight
from proreus.insight.dry_run.objects import InvalidDryRun


class ScoreWeights:
    """The weights of some profiles, to be changed and restored."""

    def __init__(self, profiles: Mapping[str, Profile]) -> None:
        self._profiles = profiles
        self._before: dict[tuple[str, str], int] = {}

    def change(self, weights: tuple[ScoreWeight, ...]) -> None:
        """Change weights; raises ``InvalidDryRun``, which names the field, and changes none then.

        A weight can be changed where the plugin scores: none is added to a profile.
        """
        asked: dict[tuple[str, str], int] = {}
        for number, one in enumerate(weights):
            place = f"spec.scoreWeights[{number}]"
            profile = self._profiles.get(one.scheduler_name)
            if profile is None:
                raise InvalidDryRun(
                    f"{place}.schedulerName: no profile is named {one.scheduler_name}"
                )
            if one.plugin not in profile.weights:
                raise InvalidDryRun(
                    f"{place}.plugin: {one.plugin} scores no nodes in the profile "
                    f"{one.scheduler_name}; those that do: {', '.join(profile.weights)}"
                )
            key = one.scheduler_name, one.plugin
            if key in asked:
                raise InvalidDryRun(f"{place}: each plugin may be there once for a profile")
            asked[key] = one.weight
        for (name, plugin), weight in asked.items():
            current = self._profiles[name].weights
            self._before[name, plugin] = current[plugin]
            current[plugin] = weight

    def restore(self) -> None:
        """Restore the weights of the configuration."""
        for (name, plugin), weight in self._before.items():
            self._profiles[name].weights[plugin] = weight
        self._before.clear()
