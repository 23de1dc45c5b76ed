"""Sets of inter-pod terms: what they select, add up and depend on."""

from __future__ import annotations

from proreus.framework.term_set import AffinityTerm, TermSet, TermsInNamespaces
from proreus.objects.selectors import NOTHING, Requirement, Selector

HERE = frozenset(("here",))


def labelled(key: str, value: str) -> Selector:
    return Selector((Requirement(key, "In", frozenset((value,))),))


def term(
    selector: Selector, topology_key: str = "zone", namespaces: Selector = NOTHING
) -> AffinityTerm:
    return AffinityTerm(HERE, namespaces, selector, topology_key)


WEB, DB = term(labelled("app", "web")), term(labelled("tier", "db"))


def test_weights_are_added_up_by_topology_key_and_sign() -> None:
    host = term(labelled("app", "web"), "host")
    terms = TermSet(((5, WEB), (7, DB), (-2, DB), (3, host)))
    assert terms.columns == [("zone", False), ("zone", True), ("host", False)]
    for labels, expected in (
        ({"app": "web", "tier": "db"}, [12, -2, 3]),
        ({"app": "web"}, [5, 0, 3]),
        ({"tier": "db"}, [7, -2, 0]),
    ):
        selecting = terms.selecting(terms.covering("here", {}), labels)
        assert selecting is not None
        assert terms.sums(selecting) == expected
    assert terms.selecting(terms.covering("here", {}), {}) is None
    assert terms.selecting(terms.covering("there", {}), {"app": "web"}) is None


def test_terms_depend_on_namespaces_if_they_select_some_by_labels() -> None:
    before: dict[str, dict[str, str]] = {"there": {}}
    after = {"there": {"team": "a"}}
    own, selected = TermSet.required([WEB]), TermSet.required([term(WEB.selector, "zone", TEAM)])

    def counts(terms: TermSet, namespaces: dict[str, dict[str, str]]) -> TermsInNamespaces:
        return TermsInNamespaces(terms, namespaces, False)

    assert counts(own, before) == counts(TermSet.required([WEB]), after)
    assert counts(selected, before) != counts(selected, after)
    assert counts(selected, before).selecting("there", {"app": "web"}) is None
    assert counts(selected, after).selecting("there", {"app": "web"}) is selected.all
    assert counts(selected, before).selecting("here", {"app": "web"}) is selected.all


TEAM = labelled("team", "a")
