"""Every test here with terms that are matched one by one, and with terms matched together.

Together, and with groups of pods that are not found by their labels.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proreus.framework import many_terms, pod_label_groups


@pytest.fixture(scope="module", autouse=True, params=["one by one", "together"])
def most_terms(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "together":
            patch.setattr(many_terms, "MOST_TERMS", 0)
            patch.setattr(pod_label_groups, "_MOST_LABELS", 0)
        yield
