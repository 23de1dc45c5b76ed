import json

from prometheus_client.parser import text_string_to_metric_families as parse_text

from proreus.objects.codec import decoder_for
from proreus.objects.pod import Pod
from proreus.server.pod_resources import write_pod_resources


def container(requests=None, limits=None, **fields):
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}} | fields


def pod(name="a", phase="Pending", **spec):
    content = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"schedulerName": "s", **spec},
        "status": {"phase": phase},
    }
    return decoder_for(Pod).decode(json.dumps(content).encode())


async def scrape(*pods):
    text = b"".join([part async for part in write_pod_resources(pods)]).decode()
    return {
        (family.name.removeprefix("kube_pod_resource_"), sample.labels["resource"]): sample
        for family in parse_text(text)
        for sample in family.samples
    }


async def values(*pods):
    return {key: sample.value for key, sample in (await scrape(*pods)).items()}


async def test_labels_and_units():
    amounts = {"cpu": "250m", "memory": "1Gi", "example.com/gpu": 2, "attachable-volumes-x": 3}
    samples = await scrape(
        pod(containers=[container(amounts)], nodeName="n", priority=7, schedulerName='s"1')
    )
    assert samples["request", "cpu"].labels == {
        "namespace": "ns",
        "pod": "a",
        "node": "n",
        "scheduler": 's"1',
        "priority": "7",
        "resource": "cpu",
        "unit": "cores",
    }
    amounts = {key[1]: (sample.value, sample.labels["unit"]) for key, sample in samples.items()}
    assert amounts == {
        "cpu": (0.25, "cores"),
        "memory": (2**30, "bytes"),
        "example.com/gpu": (2, ""),
        "attachable-volumes-x": (3, "integer"),
    }


async def test_node_and_priority_are_empty_when_unset():
    samples = await scrape(pod(containers=[container({"cpu": "1"})]))
    labels = samples["request", "cpu"].labels
    assert (labels["node"], labels["priority"]) == ("", "")


async def test_init_containers_and_sidecars():
    found = await values(
        pod(
            containers=[container({"cpu": "1"}), container({"cpu": "1"})],
            initContainers=[
                container({"cpu": "500m"}, restartPolicy="Always"),
                container({"cpu": "4", "memory": "1"}),
            ],
        )
    )
    assert found == {("request", "cpu"): 4.5, ("request", "memory"): 1}


async def test_overhead_is_added_to_requests_and_to_existing_limits():
    found = await values(
        pod(
            containers=[container({"cpu": "1"}, {"cpu": "2"})],
            overhead={"cpu": "100m", "memory": "64"},
        )
    )
    assert found == {
        ("request", "cpu"): 1.1,
        ("request", "memory"): 64,
        ("limit", "cpu"): 2.1,
    }


async def test_pod_level_resources_replace_the_sum():
    found = await values(
        pod(
            containers=[container({"cpu": "1", "example.com/gpu": 1})],
            resources={"requests": {"cpu": "3"}, "limits": {"memory": "5"}},
        )
    )
    assert found == {
        ("request", "cpu"): 3,
        ("request", "example.com/gpu"): 1,
        ("limit", "memory"): 5,
    }


async def test_zero_amounts_and_terminated_pods_are_omitted():
    done = pod("done", "Succeeded", nodeName="n", containers=[container({"cpu": "1"})])
    none = pod("none", containers=[container({"cpu": "0"})])
    assert await values(done, none) == {}


async def test_a_large_cluster_is_written_in_slices():
    pods = [pod(f"p{n}", containers=[container({"cpu": "1"})]) for n in range(1200)]
    parts = [part async for part in write_pod_resources(pods)]
    assert len(parts) == 3
    (family,) = parse_text(b"".join(parts).decode())
    assert len(family.samples) == 1200


async def test_a_limit_that_one_container_lacks_is_none_since_1_38():
    one = pod(
        containers=[
            container(limits={"cpu": "1", "memory": "1Gi", "example.com/a": 1}),
            container(limits={"cpu": "2", "memory": "0"}, name="d"),
        ],
    )
    for partial_limits, resources in ((True, {"cpu", "memory"}), (False, {"cpu"})):
        parts = write_pod_resources([one], partial_limits=partial_limits)
        text = b"".join([part async for part in parts]).decode()
        labels = [s.labels for family in parse_text(text) for s in family.samples]
        assert {one["resource"] for one in labels} == {*resources, "example.com/a"}
