"""Every test here with groups of pods that are found by their labels, and that are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proreus.framework import pod_label_groups


@pytest.fixture(scope="module", autouse=True, params=[0, 1_000])
def most_labels(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_label_groups, "_MOST_LABELS", request.param)
        yield
