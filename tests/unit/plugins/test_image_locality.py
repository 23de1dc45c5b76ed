"""ImageLocality: kube-scheduler's worked examples, image names, and signatures."""

from __future__ import annotations

from typing import Any

import pytest

from proreus.framework.cycle_state import CycleState
from proreus.framework.pod_info import PodInfo
from proreus.plugins.image_locality import ImageLocality, normalized_image_name
from proreus.testing import FakeHandle, make_node, make_plugin, make_pod
from proreus.testing.agreement import assert_agreement

MI = 2**20


def pod_of(*images: str, **spec: Any) -> PodInfo:
    return make_pod(spec={"containers": [{"image": image} for image in images], **spec})


def cluster(total: int, version: str = "1.37", **present: tuple[int, int]) -> FakeHandle:
    """Nodes of which the first has every image; each image is (Mi, number of nodes)."""
    nodes = []
    for index in range(total):
        images = {f"{n}:v1": size * MI for n, (size, count) in present.items() if index < count}
        nodes.append(make_node(f"n{index}", images=images))
    return FakeHandle(nodes, kubernetes_version=version)


def score(handle: FakeHandle, pod: PodInfo, row: int = 0) -> int:
    plugin = make_plugin(ImageLocality, handle)
    assert_agreement(plugin, pod, handle.nodes)
    return plugin.score(CycleState(), pod, handle.nodes[row])


@pytest.mark.parametrize(
    ("handle", "images", "expected"),
    [
        (cluster(2, a=(250, 1)), ("a:v1",), 10),
        (cluster(2, a=(250, 2)), ("a:v1",), 23),
        (cluster(2, a=(40, 1), b=(300, 1)), ("a:v1", "b:v1"), 7),
        (cluster(2, a=(30, 2), b=(40, 1)), ("a:v1", "b:v1"), 1),
        (cluster(3, a=(4000, 1)), ("a:v1", "gone:v1"), 66),
        (cluster(3, a=(600, 2), b=(900, 2)), ("a:v1", "b:v1", "gone:v1"), 32),
        (cluster(3, a=(300, 1), b=(600, 2), c=(900, 2)), ("a:v1", "b:v1", "c:v1"), 36),
        (cluster(2, a=(2000, 1)), ("a:v1", "gone:v1"), 49),
        (cluster(3, a=(1500, 3)), ("a:v1",), 100),
        (cluster(1, a=(23, 1)), ("a:v1",), 0),
        (cluster(2, a=(500, 1)), ("gone:v1",), 0),
    ],
)
def test_score(handle: FakeHandle, images: tuple[str, ...], expected: int) -> None:
    assert score(handle, pod_of(*images)) == expected


def test_an_image_that_two_containers_use_counts_twice() -> None:
    handle = cluster(1, a=(500, 1))

    once, twice = score(handle, pod_of("a:v1")), score(handle, pod_of("a:v1", "a:v1"))

    assert once == 100 * (500 - 23) // 977
    assert twice == 100 * (1000 - 23) // 1977


@pytest.mark.parametrize(("version", "limits"), [("1.36", 1), ("1.37", 2)])
def test_image_volumes_raise_the_limit_since_1_37(version: str, limits: int) -> None:
    volume = {"name": "data", "image": {"reference": "a:v1"}}
    handle = cluster(2, version, a=(300, 1))

    expected = 100 * (150 - 23) // (limits * 1000 - 23)
    assert score(handle, pod_of("gone:v1", volumes=[volume])) == expected


def test_init_containers_raise_the_limit() -> None:
    pod = pod_of("a:v1", initContainers=[{"image": "gone:v1"}])

    assert score(cluster(1, a=(500, 1)), pod) == 100 * (500 - 23) // 1977


def test_an_image_counts_with_its_size_on_the_node() -> None:
    nodes = [
        make_node("n0", images={"a:v1": 1000 * MI}),
        make_node("n1", images={"a:v1": 300 * MI}),
    ]
    handle = FakeHandle(nodes)

    assert score(handle, pod_of("a:v1"), 0) == 100
    assert score(handle, pod_of("a:v1"), 1) == 100 * (300 - 23) // 977


@pytest.mark.parametrize(
    ("name", "normalized"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("host:5000/img", "host:5000/img:latest"),
        ("host:5000/img:2", "host:5000/img:2"),
        ("img@sha256:abc", "img@sha256:abc"),
        ("", ":latest"),
    ],
)
def test_names_get_a_tag(name: str, normalized: str) -> None:
    assert normalized_image_name(name) == normalized


def test_without_images_on_nodes_nothing_is_scored() -> None:
    handle = cluster(2, a=(250, 1))
    plugin = make_plugin(ImageLocality, handle)

    assert plugin.score_all(CycleState(), pod_of("gone:v1"), handle.nodes) == 0
    assert plugin.sign(pod_of("gone:v1")) == plugin.sign(pod_of("lost:v2", "gone:v1"))


def test_the_signature_follows_the_cluster() -> None:
    handle = cluster(2, a=(250, 1))
    plugin = make_plugin(ImageLocality, handle)
    pod, other = pod_of("a:v1"), pod_of("gone:v1")
    before, other_before = plugin.sign(pod), plugin.sign(other)

    info = handle.nodes[1]
    info.set_node(make_node("n1", images={"a:v1": 250 * MI}))
    handle.nodes.update_node(info)

    assert plugin.sign(pod) != before
    assert plugin.sign(other) == other_before
