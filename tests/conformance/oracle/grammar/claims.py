"""Claims for devices: requests of every mode, constraints, allocations; pods that have them."""

from __future__ import annotations

from conformance.oracle.grammar import devices, objects
from conformance.oracle.grammar.configurations import configuration
from conformance.oracle.grammar.devices import GPU, Pool
from conformance.oracle.grammar.draw import Draw, JsonObject
from conformance.oracle.grammar.objects import thing

_TOLERATIONS: tuple[JsonObject, ...] = (
    {"operator": "Exists"},
    {"key": "bad", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "bad", "operator": "Equal", "value": "x"},
    {"key": "worse", "operator": "Equal", "value": "y", "effect": "NoExecute"},
)
_OF_A_CLASS = "deviceclass.resource.kubernetes.io/gpu"


def devices_wanted(draw: Draw) -> JsonObject:
    """Return a case whose pod wants devices, through claims or as extended resources."""
    names = [f"n{i}" for i in range(draw.randint(1, 4))]
    wide = draw.chance(0.5)
    everything = [*objects.namespaces(draw), *(_node(draw, name) for name in names)]
    everything += devices.classes(draw)
    found, pools = devices.slices(draw, names, wide=wide)
    everything += found
    filled = [pool for pool in pools if pool.devices]
    wanted = [f"rc{n}" for n in range(draw.choice((0, 1, 1, 1, 2, 2, 3)))]
    for name in wanted:
        if draw.chance(0.96):
            one = claim(draw, name, wide=wide)
            if filled and draw.chance(0.2):
                first = one["spec"]["devices"]["requests"][0]["name"]
                one["status"] = _allocation(draw, filled, names, first)
            if draw.chance(0.03):
                one["metadata"] |= {"deletionTimestamp": objects.LONG_AGO, "finalizers": ["x/y"]}
            everything.append(one)
    for n in range(draw.randint(0, 4)):
        one = claim(draw, f"held{n}", wide=wide)
        if filled:
            one["status"] = _allocation(draw, filled, names, "r0")
        everything.append(one)
    everything += _neighbours(draw, names)
    return {"config": _configuration(draw), "objects": everything, "pod": _pod(draw, wanted)}


def _node(draw: Draw, name: str) -> JsonObject:
    """Return a node that has no say of its own in who fits, as a rule."""
    one = objects.node(draw, name)
    if draw.chance(0.8):
        one["spec"] = {}
    return one


def _neighbours(draw: Draw, nodes: list[str]) -> list[JsonObject]:
    """Return pods of other priorities that hold a claim, or an extended resource."""
    found = []
    for n in range(draw.choice((0, 0, 1, 2))):
        asked: JsonObject = {"requests": {"cpu": draw.choice(("1", "7"))}}
        if draw.chance(0.4):
            asked["requests"] |= {"example.com/foo": "1"}
            asked["limits"] = {"example.com/foo": "1"}
        one = objects.running(
            draw, f"e{n}", draw.choice(nodes), containers=[{"name": "c", "resources": asked}]
        )
        if draw.chance(0.5):
            one["spec"]["resourceClaims"] = [{"name": "h", "resourceClaimName": f"held{n}"}]
        found.append(one)
    return found


def _pod(draw: Draw, wanted: list[str]) -> JsonObject:
    asked: JsonObject = {"requests": {"cpu": "1"}, "claims": [{"name": name} for name in wanted]}
    spec: JsonObject = {"containers": [{"name": "c0", "image": "pause", "resources": asked}]}
    if draw.chance(0.25):
        _ask_for_extended(draw, spec)
    pod = objects.pending(draw, **spec)
    refer = [{"name": name, "resourceClaimName": name} for name in wanted]
    if refer and draw.chance(0.1):
        refer[0] = {"name": wanted[0], "resourceClaimTemplateName": "t"}
        made: tuple[list[JsonObject], ...] = (
            [],
            [{"name": wanted[0], "resourceClaimName": wanted[0]}],
            [{"name": wanted[0]}],
        )
        pod["status"]["resourceClaimStatuses"] = draw.choice(made)
    pod["spec"]["resourceClaims"] = refer
    if draw.chance(0.3):
        pod["spec"]["priority"] = 100
    return pod


def _ask_for_extended(draw: Draw, spec: JsonObject) -> None:
    """Let containers ask for devices without a claim."""
    name = draw.choice((*devices.EXTENDED, _OF_A_CLASS))
    amount = draw.choice(("1", "2"))
    asked = spec["containers"][0]["resources"]
    asked["requests"][name] = amount
    asked["limits"] = {name: amount}
    one: JsonObject = {"requests": {name: "1"}, "limits": {name: "1"}}
    if draw.chance(0.3):
        first = {"name": "i0", "resources": one}
        spec["initContainers"] = [first | draw.fields(0.5, restartPolicy="Always")]
    if draw.chance(0.3):
        spec["containers"].append({"name": "c1", "resources": one})


def claim(draw: Draw, name: str, *, wide: bool) -> JsonObject:
    """Return a claim that nothing is allocated to."""
    requests: list[JsonObject] = []
    for n in range(draw.choice((1, 1, 1, 2, 3))):
        if draw.chance(0.25):
            subs = [{"name": f"s{m}", **_wish(draw, wide)} for m in range(draw.choice((1, 2, 3)))]
            requests.append({"name": f"r{n}", "firstAvailable": subs})
        else:
            wish = _wish(draw, wide) | draw.fields(0.08, adminAccess=True)
            requests.append({"name": f"r{n}", "exactly": wish})
    asked: JsonObject = {"requests": requests}
    if draw.chance(0.35):
        asked["constraints"] = [
            _constraint(draw, requests, wide) for _ in range(draw.choice((1, 1, 2)))
        ]
    made = thing(
        "ResourceClaim",
        name,
        devices.VERSION,
        namespace="default",
        spec={"devices": asked},
        status={},
    )
    made["metadata"] |= {"uid": name, "resourceVersion": "1"}
    return made


def _wish(draw: Draw, wide: bool) -> JsonObject:
    wish: JsonObject = {"deviceClassName": draw.weighted({"gpu": 12, "big": 8, "missing": 0.5})}
    if draw.chance(0.15):
        wish["allocationMode"] = "All"
    else:
        wish |= {"allocationMode": "ExactCount", "count": draw.choice((1, 1, 1, 2, 3))}
    if draw.chance(0.4):
        wish["selectors"] = devices.selectors(draw)
    if draw.chance(0.25):
        wish["tolerations"] = [draw.choice(_TOLERATIONS)]
    if wide and draw.chance(0.3):
        dimension = draw.weighted({"memory": 3, "missing": 1})
        amount = draw.choice(("10Gi", "7Gi", "20Gi", "1Gi", "100Gi"))
        wish["capacity"] = {"requests": {dimension: amount}}
    return wish


def _constraint(draw: Draw, requests: list[JsonObject], wide: bool) -> JsonObject:
    attribute = draw.choice(("model", "numa", "version", "healthy", "missing"))
    kind = "distinctAttribute" if wide and draw.chance(0.35) else "matchAttribute"
    constraint: JsonObject = {kind: f"{GPU}/{attribute}"}
    if draw.chance(0.5):
        constraint["requests"] = draw.some([one["name"] for one in requests], least=1)
    return constraint


def _allocation(draw: Draw, pools: list[Pool], nodes: list[str], request: str) -> JsonObject:
    """Return the status of a claim that has devices, and perhaps a pod that uses it."""
    pool = draw.choice(pools)
    results: dict[str, JsonObject] = {}
    for _ in range(draw.choice((1, 1, 2))):
        device = draw.choice(pool.devices)
        result = {"request": request, "driver": pool.driver, "pool": pool.name}
        result |= {"device": device["name"], **draw.fields(0.05, adminAccess=True)}
        if device.get("allowMultipleAllocations"):
            result["shareID"] = f"a671734a-e8e5-11e4-8fde-42010af0932{draw.randrange(10)}"
            result["consumedCapacity"] = {"memory": draw.choice(("10Gi", "20Gi"))}
        results.setdefault(device["name"], result)
    allocation: JsonObject = {"devices": {"results": list(results.values())}}
    if draw.chance(0.7):
        home = pool.name if pool.name in nodes else draw.choice(nodes)
        field = {"key": "metadata.name", "operator": "In", "values": [home]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    users = draw.weighted({"": 0.3, "default/other": 0.5, "default/pending": 0.2})
    status: JsonObject = {"allocation": allocation}
    if users:
        name = users.rpartition("/")[2]
        status["reservedFor"] = [{"resource": "pods", "name": name, "uid": users}]
    return status


def _configuration(draw: Draw) -> JsonObject | None:
    """Return one that scores extended resources, now and then.

    Balanced allocation leaves them out: kube-scheduler crashes where it is to score one whose
    class has selectors.
    """
    if draw.chance(0.7):
        return None
    scored = [{"name": "cpu", "weight": 1}, {"name": draw.choice(devices.EXTENDED), "weight": 3}]
    kind = draw.choice(("LeastAllocated", "MostAllocated"))
    plain = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    return configuration(
        [
            {
                "name": "NodeResourcesFit",
                "args": {"scoringStrategy": {"type": kind, "resources": scored}},
            },
            {"name": "NodeResourcesBalancedAllocation", "args": {"resources": plain}},
        ]
    )
