"""Parsed inter-pod terms."""

from __future__ import annotations

from proreus.framework.affinity_terms import affinity_terms_of
from proreus.testing import make_pod


def test_terms_share_the_set_of_their_own_namespace() -> None:
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": f"{number}"}}}
        for number in range(3)
    ]
    elsewhere = {**terms[0], "namespaces": ["other"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [*terms, elsewhere]}
    pod = make_pod("p", affinity={"podAntiAffinity": required})

    parsed = affinity_terms_of(pod.pod).required_anti

    assert [term.namespaces for _, term in parsed.weighted] == [{"default"}] * 3 + [{"other"}]
    assert len({id(term.namespaces) for _, term in parsed.weighted[:3]}) == 1
