"""Columns say what single nodes say, whatever storage there is."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.framework.cycle_state import CycleState
from proreus.framework.plugin import FilterPlugin, PreFilterPlugin
from proreus.framework.verdicts import Verdicts
from proreus.objects.codec import decoder_for
from proreus.objects.selectors import NodeSelector, ParsedNodeSelector, parse_node_selector
from proreus.plugins.node_volume_limits import NodeVolumeLimits
from proreus.plugins.volume_binding import VolumeBinding
from proreus.plugins.volume_binding.reach import Reach, first_reached, reaches, reaching
from proreus.plugins.volume_restrictions import VolumeRestrictions
from proreus.plugins.volume_zone import VolumeZone
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod, make_table
from proreus.testing.agreement import assert_agreement
from proreus.testing.volumes import (
    DRIVER,
    by_claim,
    make_attachment,
    make_capacity,
    make_claim,
    make_class,
    make_csi_node,
    make_volume,
)

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
BETA_ZONE, EBS_ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"
NODES = tuple(f"n{number}" for number in range(6))
ZONES, CLAIMS, VOLUMES = ("a", "b"), ("c0", "c1", "c2"), ("pv0", "pv1", "pv2", "pv3", "pv4")
SIZES = ("1Gi", "2Gi", "3Gi")
CLASSES = ("wait", "allowed", "static", "now", "ebs")
EBS = "ebs.csi.aws.com"


def maps(**values: tuple[str, ...]) -> st.SearchStrategy[dict[str, str]]:
    keys = {"zone": ZONE, "beta": BETA_ZONE, "ebs": EBS_ZONE}
    return st.fixed_dictionaries(
        {}, optional={keys[name]: st.sampled_from(choice) for name, choice in values.items()}
    )


def places() -> st.SearchStrategy[dict[str, list[str]] | None]:
    zones = st.lists(st.sampled_from((*ZONES, "elsewhere")), min_size=1, max_size=2)
    hosts = st.lists(st.sampled_from((*NODES, "gone")), min_size=1, max_size=3)
    some = st.fixed_dictionaries({}, optional={ZONE: zones, HOST: hosts, BETA_ZONE: zones})
    return st.one_of(st.none(), some)


def sources() -> st.SearchStrategy[dict[str, Any]]:
    handles = st.sampled_from(("vol-1", "vol-2", "aws://a/vol-1", "aws://a/odd"))
    return st.one_of(
        st.builds(lambda h: {"csi": {"driver": DRIVER, "volumeHandle": h}}, handles),
        st.builds(lambda h: {"csi": {"driver": EBS, "volumeHandle": h}}, handles),
        st.builds(lambda h: {"awsElasticBlockStore": {"volumeID": h}}, handles),
        st.just({"local": {"path": "/"}}),
    )


def volumes(name: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        make_volume,
        st.just(name),
        st.sampled_from(SIZES),
        st.sampled_from(CLASSES),
        claim=st.sampled_from(("", "", "", *(f"default/{claim}" for claim in CLAIMS))),
        claim_uid=st.sampled_from((None, None, "", "another")),
        where=places(),
        labels=maps(zone=("a", "a__b"), beta=("a", "b__")),
        source=sources(),
    )


def claims(name: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        make_claim,
        st.just(name),
        st.sampled_from((*SIZES, None)),
        st.sampled_from(CLASSES),
        volume=st.sampled_from(("", "", "", "gone", *VOLUMES)),
        selected_node=st.sampled_from(("", "", "", "n0", "n1")),
        modes=st.sampled_from((["ReadWriteOnce"], ["ReadWriteOncePod"], ["ReadWriteMany"])),
    )


def some(each: Any, names: tuple[str, ...]) -> st.SearchStrategy[list[dict[str, Any]]]:
    return st.tuples(*(st.one_of(st.none(), each(name)) for name in names)).map(
        lambda made: [one for one in made if one is not None]
    )


def csi_nodes(name: str) -> st.SearchStrategy[dict[str, Any]]:
    limits = st.dictionaries(
        st.sampled_from((DRIVER, EBS)), st.sampled_from((None, 0, 1, 2, 3)), max_size=2
    )
    migrated = st.sampled_from(([], ["kubernetes.io/aws-ebs"]))
    return st.builds(make_csi_node, st.just(name), limits, migrated=migrated)


FIXED = [
    make_class("wait"),
    make_class("allowed", allowed=[{ZONE: ["a"]}, {HOST: ["n1", "n2"]}]),
    make_class("static", "kubernetes.io/no-provisioner"),
    make_class("now", mode="Immediate"),
    make_class("ebs", "kubernetes.io/aws-ebs"),
    {"kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}},
]


@st.composite
def clusters(draw: st.DrawFn) -> FakeHandle:
    labels = maps(zone=ZONES, beta=ZONES, ebs=ZONES)
    nodes = [make_node(name, labels=draw(labels)) for name in NODES]
    used = st.lists(st.sampled_from(CLAIMS), max_size=2)
    pods = [
        make_pod(f"p{number}", node_name=draw(st.sampled_from(NODES)), spec=by_claim(*draw(used)))
        for number in range(draw(st.integers(0, 4)))
    ]
    rooms = [
        make_capacity(
            f"room{number}",
            draw(st.sampled_from(SIZES)),
            draw(st.one_of(st.none(), maps(zone=ZONES))),
            draw(st.sampled_from(CLASSES[:2])),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    attachments = [
        make_attachment(
            f"va{number}",
            draw(st.sampled_from(NODES)),
            draw(st.sampled_from(VOLUMES)),
            draw(st.sampled_from((DRIVER, EBS))),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    objects = [
        *FIXED,
        *draw(some(volumes, VOLUMES)),
        *draw(some(claims, CLAIMS)),
        *draw(some(csi_nodes, NODES)),
        *rooms,
        *attachments,
    ]
    return FakeHandle(nodes, pods, objects=objects)


@settings(max_examples=200, deadline=None)
@given(clusters(), st.lists(st.sampled_from(CLAIMS), min_size=1, max_size=3, unique=True))
def test_both_forms_agree(handle: FakeHandle, names: list[str]) -> None:
    pod, nodes = make_pod("pending", spec=by_claim(*names)), handle.nodes
    for kind in (VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone):
        plugin = make_plugin(kind, handle)
        assert isinstance(plugin, PreFilterPlugin)
        assert isinstance(plugin, FilterPlugin)
        assert_agreement(plugin, pod, nodes)
        # The table itself, for which some plugins keep columns of their own.
        state = CycleState()
        if plugin.pre_filter(state, pod, nodes) is not None:
            continue
        verdicts = Verdicts(len(nodes), plugin.name)
        plugin.filter_all(state, pod, nodes, verdicts)
        for row, node in enumerate(nodes):
            status = plugin.filter(state, pod, node)
            assert verdicts.status(row) == (None if status is None else status.of(plugin.name))


# ---- many selectors at once ----------------------------------------------------------------------


def selectors(fewest: int = 0) -> st.SearchStrategy[Reach]:
    """Draw who can reach something; ``fewest``: expressions a term."""
    values = st.lists(st.sampled_from((*ZONES, *NODES, "gone")), min_size=1, max_size=2)
    expression = st.fixed_dictionaries(
        {
            "key": st.sampled_from((ZONE, HOST, BETA_ZONE)),
            "operator": st.sampled_from(("In", "In", "In", "NotIn", "Near")),
            "values": values,
        }
    )
    expressions = st.lists(expression, min_size=fewest, max_size=2)
    term = st.fixed_dictionaries({"matchExpressions": expressions})
    made = st.lists(term, max_size=2).map(
        lambda terms: parse_node_selector(
            decoder_for(NodeSelector).convert({"nodeSelectorTerms": terms})
        )
    )
    return made if fewest else st.one_of(made, made, made, st.none())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(maps(zone=ZONES, beta=ZONES), max_size=7),
    st.one_of(
        st.lists(selectors(), max_size=14),
        st.lists(st.one_of(selectors(1), selectors(2)), min_size=8, max_size=24),
    ),
)
def test_the_first_that_can_be_reached(labels: list[dict[str, str]], all_of: list[Reach]) -> None:
    nodes = make_table(make_node(f"n{row}", labels=one) for row, one in enumerate(labels))
    expected = [
        next(
            (place for place, reach in enumerate(all_of) if reaches(node.labels, reach)),
            len(all_of),
        )
        for node in nodes
    ]
    assert first_reached(nodes, all_of).tolist() == expected
    limited = [reach for reach in all_of if reach is not None]
    any_of_them = ParsedNodeSelector(tuple(term for reach in limited for term in reach.terms))
    for reach in (*limited, any_of_them):
        mask = reaching(nodes, reach)
        assert mask.tolist() == [reaches(node.labels, reach) for node in nodes]
