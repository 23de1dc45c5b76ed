from __future__ import annotations

from proreus.addons.sysched import SySched, profiles_of
from proreus.objects import Pod
from proreus.objects.codec import decoder_for
from proreus.testing import Harness


def profile(name: str, *calls: str, **more: str) -> dict:
    rules = [{"action": "SCMP_ACT_ALLOW", "names": calls}]
    rules += [{"action": action, "names": [call]} for action, call in more.items()]
    return {
        "apiVersion": "security-profiles-operator.x-k8s.io/v1beta1",
        "kind": "SeccompProfile",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"syscalls": rules},
    }


def pod(name: str, of: str = "", node_name: str = "") -> dict:
    spec: dict = {"containers": [{"name": "c"}], "nodeName": node_name}
    if of:
        path = f"operator/default/{of}.json"
        reference = {"type": "Localhost", "localhostProfile": path}
        spec["securityContext"] = {"seccompProfile": reference}
    status = {"phase": "Running"} if node_name else {}
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


FILES = profile("files", "read", "write", SCMP_ACT_KILL="reboot")
NET = profile("net", "read", "bind", SCMP_ACT_LOG="socket")


def raw_scores(cluster: Harness, name: str, nodes: str = "abc") -> list[int]:
    plugin, found = cluster.plugin(SySched), cluster.pod(name)
    info = next(one.info for one in cluster.scheduler.queue.active_pods() if one.info.pod is found)
    return [plugin.score(None, info, cluster.node(one)) for one in nodes]  # type: ignore[arg-type]


def test_nodes_with_similar_pods_are_preferred() -> None:
    cluster = Harness([SySched], ["a", "b", "c"], [FILES, NET, pod("x", "files", "a")])
    cluster.add(pod("y", "net", "b"))
    cluster.add(pod("p", "net"))
    # a: write is not used by p, bind and socket not by x. b: nothing.
    assert raw_scores(cluster, "p") == [1 + 2, 0, 0]
    outcome = cluster.schedule("p")
    assert [outcome.score(name, "SySched") for name in "abc"] == [0, 100, 100]


def test_a_pod_that_is_gone_counts_no_more() -> None:
    cluster = Harness([SySched], ["a"], [FILES, NET, pod("x", "files", "a"), pod("y", "net", "a")])
    cluster.add(pod("p", "files"))
    assert raw_scores(cluster, "p", "a") == [2 + 2 + 1]
    cluster.remove("Pod", "y")
    assert raw_scores(cluster, "p", "a") == [0]


def test_a_changed_profile_counts_at_once() -> None:
    cluster = Harness([SySched], ["a", "b"], [FILES, pod("x", "files", "a")])
    cluster.add(pod("p", "files"))
    assert raw_scores(cluster, "p", "ab") == [0, 0]
    cluster.add(profile("all-syscalls", "mount"))
    cluster.add(pod("q"))
    assert raw_scores(cluster, "q", "ab") == [2 + 1, 0]


def test_without_any_profile_all_nodes_are_alike() -> None:
    cluster = Harness([SySched], ["a", "b"], [pod("x", "files", "a")])
    cluster.add(pod("p", "files"))
    outcome = cluster.schedule("p")
    assert [outcome.score(name, "SySched") for name in "ab"] == [100, 100]


def test_profiles_of_containers_and_of_an_annotation_count() -> None:
    local = {"seccompProfile": {"type": "Localhost", "localhostProfile": "operator/ns/b.json"}}
    found = decoder_for(Pod).convert(
        {
            "metadata": {
                "annotations": {
                    "seccomp.security.alpha.kubernetes.io/pod": "localhost/operator/ns/a.json"
                }
            },
            "spec": {"containers": [{"name": "main", "securityContext": local}]},
        },
    )
    assert list(profiles_of(found)) == ["ns/b", "ns/a"]


def test_a_node_without_pods_is_forgotten() -> None:
    cluster = Harness([SySched], ["a"], [FILES])
    plugin = cluster.plugin(SySched)
    for number in range(3):
        cluster.add(pod("x", "files", f"gone-{number}"))
        assert plugin._running.keys() == {f"gone-{number}"}
        cluster.remove("Pod", "x")
    assert not plugin._running
