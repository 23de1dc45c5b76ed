"""Small objects of every kind that an apiserver stores, with odd values wherever it allows them.

Validation leaves room for extremes: numbers at the bounds of their types, quantities of all scales,
selectors of every operator, references to what is not there, texts of any character, and bytes
that are no UTF-8 in what the apiserver passes on unread. Equal seeds give equal objects.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from envtest.objects import ZONES
from hostile.odd_json import odd_json

Json = dict[str, Any]
Maker = Callable[[random.Random, int], Json]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DRIVER = "gpu.example.com"
CLASS = "gpu"
"""The device class of the cluster's own devices, which ``run`` creates."""

_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_QUANTITIES = ["0", "1", "100m", "1n", "1.5Gi", str(_INT64), "1E", "7Ei", "1e3", "0.1"]
_TEXTS = ["", "\u0000", "\u202e", "\U0001f600", "x\ny", "%s{0}", "../..", "[" * 2_000, "9" * 400]
_VALUES = ["", "a", "0", "7", "A.b_c-d", "z" * 63, *ZONES]
_NUMBERS = ["0", "7", str(_INT64), "9" * 60]
_KEYS = [HOST, ZONE, "a", "x" * 63, f"{'d' * 60}.example/{'k' * 63}", "app"]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def valid_object(kind: str, number: int, seed: int) -> Json:
    """Return an object without apiVersion and namespace, named by kind and number."""
    rng = random.Random(f"{kind} {number} {seed}")
    obj = MAKERS[kind](rng, number)
    obj["metadata"] = _metadata(rng) | obj.get("metadata", {}) | {"name": name_of(kind, number)}
    return obj


def name_of(kind: str, number: int) -> str:
    """Return the name of a kind's object."""
    return f"hostile-{kind.lower()}-{number}"


def _metadata(rng: random.Random) -> Json:
    meta: Json = {"labels": _labels(rng)}
    if rng.random() < 0.5:
        texts = [rng.choice(_TEXTS) for _ in range(rng.randrange(20))]
        meta["annotations"] = {f"example.com/a{n}": text for n, text in enumerate(texts)}
    if rng.random() < 0.3:
        meta["ownerReferences"] = [
            {"apiVersion": "v9", "kind": "Odd", "name": f"o{n}", "uid": rng.choice("é\u0001x") * 9}
            for n in range(rng.choice([1, 3, 200]))
        ]
    if rng.random() < 0.5:
        meta["managedFields"] = [
            {
                "manager": "somebody",
                "operation": "Update",
                "apiVersion": "v1",
                "time": "2026-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": rng.choice([odd_json(rng), _nested(rng.randrange(1, 900))]),
            }
        ]
    return meta


def _nested(depth: int) -> Json:
    fields: Json = {}
    for _ in range(depth):
        fields = {"f:a": fields}
    return fields


def _labels(rng: random.Random) -> dict[str, str]:
    if rng.random() < 0.05:
        return {f"wide-{n}": "v" for n in range(300)}
    return {rng.choice(_KEYS): rng.choice(_VALUES) for _ in range(rng.randrange(4))}


def _some(rng: random.Random, make: Callable[[], Any], most: int = 4) -> list[Any]:
    return [make() for _ in range(rng.randrange(1, most + 1))]


def _label_requirement(rng: random.Random) -> Json:
    operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    found: Json = {"key": rng.choice(_KEYS), "operator": operator}
    if operator in ("In", "NotIn"):
        found["values"] = _some(rng, lambda: rng.choice(_VALUES), 30)
    return found


def _label_selector(rng: random.Random) -> Json:
    selector: Json = {}
    if rng.random() < 0.7:
        selector["matchLabels"] = _labels(rng)
    if rng.random() < 0.7:
        selector["matchExpressions"] = _some(rng, lambda: _label_requirement(rng))
    return selector


def _node_requirement(rng: random.Random) -> Json:
    if rng.random() < 0.7:
        return _label_requirement(rng)
    operator = rng.choice(["Gt", "Lt"])
    return {"key": rng.choice(_KEYS), "operator": operator, "values": [rng.choice(_NUMBERS)]}


def _node_term(rng: random.Random) -> Json:
    term: Json = {"matchExpressions": _some(rng, lambda: _node_requirement(rng))}
    if rng.random() < 0.3:
        name = rng.choice(["node-00001", "gone", "x"])
        operator = rng.choice(["In", "NotIn"])
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    return term


def _node_selector(rng: random.Random) -> Json:
    return {"nodeSelectorTerms": _some(rng, lambda: _node_term(rng))}


def _quantities(rng: random.Random, *names: str) -> dict[str, str]:
    return {name: rng.choice(_QUANTITIES) for name in names if rng.random() < 0.7}


# ---- pods ----------------------------------------------------------------------------------------


def _pod(rng: random.Random, number: int) -> Json:
    spec: Json = {"containers": [_container(rng, n) for n in range(rng.choice([1, 1, 3]))]}
    fields: dict[str, Callable[[], Any]] = {
        "nodeSelector": lambda: {rng.choice(_KEYS): rng.choice(_VALUES)},
        "affinity": lambda: _affinity(rng),
        "topologySpreadConstraints": lambda: _spread_constraints(rng),
        "tolerations": lambda: _some(rng, lambda: _toleration(rng)),
        "volumes": lambda: _volumes(rng, number),
        "initContainers": lambda: [_init_container(rng, n) for n in range(rng.choice([1, 2, 30]))],
        "terminationGracePeriodSeconds": lambda: rng.choice([0, 1, _INT64]),
        "imagePullSecrets": lambda: [{"name": f"s{n}"} for n in range(rng.choice([1, 100]))],
        "hostAliases": lambda: [{"ip": "127.0.0.1", "hostnames": ["a"] * 100}],
        "schedulingGates": lambda: [{"name": f"example.com/g{n}"} for n in range(rng.choice([1, 30]))],
        "nodeName": lambda: rng.choice(["node-00002", "gone"]),
        "schedulerName": lambda: rng.choice(["default-scheduler", "nobody", "\U0001f600"]),
        "resourceClaims": lambda: _pod_claims(rng, number),
    }  # fmt: skip
    for name, make in fields.items():
        if rng.random() < (0.05 if name in ("schedulingGates", "nodeName") else 0.2):
            spec[name] = make()
    if "schedulingGates" in spec:
        spec.pop("nodeName", None)
    pod: Json = {"spec": spec}
    if "nodeName" not in spec and rng.random() < 0.1:
        conditions = [{"type": f"T{n}", "status": "False"} for n in range(rng.choice([1, 300]))]
        nominated = rng.choice(["node-00003", "gone"])
        pod["status"] = {"nominatedNodeName": nominated, "conditions": conditions}
    return pod


def _container(rng: random.Random, number: int) -> Json:
    requests = _quantities(rng, "cpu", "memory", "ephemeral-storage")
    limits: Json = {}
    if rng.random() < 0.2:
        extended = {f"example.com/r{n}": str(rng.choice([0, 1, _INT64])) for n in range(9)}
        requests |= extended
        limits |= extended
    ports: list[Json] = []
    if rng.random() < 0.2:
        first = rng.randrange(1, 60_000)
        protocol = rng.choice(["TCP", "UDP", "SCTP"])
        ports = [
            {"containerPort": port, "hostPort": port, "protocol": protocol, "hostIP": ip}
            for port, ip in zip(range(first, first + 9), ["", "0.0.0.0", "::", "10.0.0.1"] * 3)
        ]
    return {
        "name": f"c{number}",
        "image": rng.choice(["i", "\U0001f600", "r/" + "n" * 5_000, "a@sha256:b"]),
        "env": [{"name": f"E{n}", "value": rng.choice(_TEXTS)} for n in range(rng.randrange(5))],
        "resources": {"requests": requests, "limits": limits},
        "ports": ports,
    }


def _init_container(rng: random.Random, number: int) -> Json:
    container = _container(rng, number) | {"name": f"init{number}", "ports": []}
    return container | ({"restartPolicy": "Always"} if rng.random() < 0.5 else {})


def _affinity(rng: random.Random) -> Json:
    def weighted(field: str, make: Callable[[random.Random], Json]) -> Json:
        return {"weight": rng.choice([1, 50, 100]), field: make(rng)}

    node = {
        _REQUIRED: _node_selector(rng),
        _PREFERRED: _some(rng, lambda: weighted("preference", _node_term)),
    }
    made: Json = {}
    if rng.random() < 0.6:
        made["nodeAffinity"] = {name: node[name] for name in node if rng.random() < 0.6}
    for name in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.4:
            made[name] = {
                _REQUIRED: _some(rng, lambda: _pod_affinity_term(rng), 2),
                _PREFERRED: _some(rng, lambda: weighted("podAffinityTerm", _pod_affinity_term)),
            }
    return made


def _pod_affinity_term(rng: random.Random) -> Json:
    term: Json = {"topologyKey": rng.choice(_KEYS), "labelSelector": _label_selector(rng)}
    if rng.random() < 0.3:
        term["namespaceSelector"] = rng.choice([{}, _label_selector(rng)])
    if rng.random() < 0.3:
        term["namespaces"] = ["default", "gone", *(f"ns-{n}" for n in range(rng.randrange(100)))]
    return term


def _spread_constraints(rng: random.Random) -> list[Json]:
    # unique by topology key and action
    return [
        {
            "maxSkew": rng.choice([1, _INT32]),
            "topologyKey": key,
            "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": rng.choice([None, {}, _label_selector(rng)]),
            "nodeAffinityPolicy": rng.choice(["Honor", "Ignore"]),
            "nodeTaintsPolicy": rng.choice(["Honor", "Ignore"]),
        }
        for key in rng.sample(_KEYS, rng.randrange(1, 4))
    ]


def _toleration(rng: random.Random) -> Json:
    if rng.random() < 0.3:
        return {"operator": "Exists"}
    return {
        "key": rng.choice(_KEYS),
        "value": rng.choice(_VALUES),
        "effect": "NoExecute",
        "tolerationSeconds": rng.choice([0, -1, _INT64, -(2**63)]),
    }


def _volumes(rng: random.Random, number: int) -> list[Json]:
    claim = {"claimName": rng.choice([name_of("PersistentVolumeClaim", number), "gone"])}
    request = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    kinds: list[Json] = [
        {"persistentVolumeClaim": claim},
        {"ephemeral": {"volumeClaimTemplate": {"spec": request}}},
        {"csi": {"driver": name_of("CSIDriver", number), "volumeAttributes": {"a": "\u0000"}}},
        {"emptyDir": {"sizeLimit": rng.choice(_QUANTITIES)}},
        {"nfs": {"server": "\u202e", "path": "/"}},
        {"iscsi": {"targetPortal": "p", "iqn": "iqn.2026-01.com.example:a", "lun": 0}},
        {"rbd": {"monitors": ["m"], "image": "i"}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"awsElasticBlockStore": {"volumeID": "v"}},
    ]
    chosen = rng.sample(kinds, rng.randrange(1, 5))
    return [{"name": f"v{n}", **volume} for n, volume in enumerate(chosen)]


def _pod_claims(rng: random.Random, number: int) -> list[Json]:
    """Return references to the claim of that number, to one that does not exist, or a template."""
    return [
        rng.choice(
            [
                {"name": f"c{n}", "resourceClaimName": name_of("ResourceClaim", number)},
                {"name": f"c{n}", "resourceClaimName": "gone"},
                {"name": f"c{n}", "resourceClaimTemplateName": "gone"},
            ]
        )
        for n in range(rng.choice([1, 1, 30]))
    ]


def _pod_template(rng: random.Random) -> Json:
    labels = {"app": "template"}
    return {"metadata": {"labels": labels}, "spec": {"containers": [_container(rng, 0)]}}


# ---- nodes, namespaces, policies, workloads ------------------------------------------------------


def _node(rng: random.Random, _number: int) -> Json:
    amounts = _quantities(rng, "cpu", "memory", "ephemeral-storage", "hugepages-2Mi")
    amounts |= {"pods": rng.choice(["0", "110", str(_INT64)])}
    amounts |= {f"example.com/r{n}": rng.choice(["0", str(_INT64)]) for n in range(rng.choice([0, 90]))}  # fmt: skip
    taints = [
        {
            "key": f"t{n}",
            "value": rng.choice(_VALUES),
            "effect": rng.choice(["NoSchedule", "NoExecute"]),
        }  # fmt: skip
        for n in range(rng.choice([0, 1, 300]))
    ]
    images = [
        {
            "names": [rng.choice(["i", "\U0001f600", "n" * 500])],
            "sizeBytes": rng.choice([0, _INT64]),
        }  # fmt: skip
        for _ in range(rng.choice([0, 1, 200]))
    ]
    conditions = [{"type": rng.choice(["Ready", "Odd", "\u0000"]), "status": "Unknown"}]
    return {
        "spec": {"taints": taints, "unschedulable": rng.random() < 0.3},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "images": images,
            "conditions": conditions,
            "volumesInUse": [rng.choice(_TEXTS) for _ in range(rng.randrange(5))],
        },
    }


def _namespace(_rng: random.Random, _number: int) -> Json:
    return {}


def _pod_disruption_budget(rng: random.Random, _number: int) -> Json:
    field = rng.choice(["minAvailable", "maxUnavailable"])
    spec = {field: rng.choice([0, _INT32, "0%", "100%"])}
    if rng.random() < 0.9:
        spec["selector"] = rng.choice([{}, _label_selector(rng)])
    numbers = {
        name: rng.choice([0, 1, _INT32])
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    }
    disrupted = {f"p{n}": "2026-01-01T00:00:00Z" for n in range(rng.choice([0, 200]))}
    return {"spec": spec, "status": {**numbers, "disruptedPods": disrupted}}


def _priority_class(rng: random.Random, _number: int) -> Json:
    return {
        "value": rng.choice([0, 10**9, -(2**31)]),
        "description": rng.choice(_TEXTS),
        "preemptionPolicy": rng.choice(["Never", "PreemptLowerPriority"]),
    }


def _scheduling_policy(rng: random.Random, field: str) -> Json:
    return rng.choice([{"basic": {}}, {"gang": {field: rng.choice([1, 3, _INT32])}}])


def _pod_group(rng: random.Random, _number: int) -> Json:
    spec: Json = {"schedulingPolicy": _scheduling_policy(rng, "minCount")}
    if rng.random() < 0.3:
        spec["schedulingConstraints"] = {"topology": [{"key": rng.choice(_KEYS)}]}
    return {"spec": spec}


def _composite_pod_group(rng: random.Random, _number: int) -> Json:
    template = {"workloadName": "gone", "templateName": "t"}
    policy = _scheduling_policy(rng, "minGroupCount")
    return {"spec": {"workloadRef": template, "schedulingPolicy": policy}}


def _service(rng: random.Random, _number: int) -> Json:
    # without an address: there are 254 of them
    ports = [{"name": f"p{n}", "port": 1 + n} for n in range(rng.choice([1, 100]))]
    return {"spec": {"clusterIP": "None", "selector": _labels(rng), "ports": ports}}


def _replication_controller(rng: random.Random, _number: int) -> Json:
    template = _pod_template(rng)
    return {"spec": {"replicas": rng.choice([0, _INT32]), "selector": {"app": "template"}, "template": template}}  # fmt: skip


def _with_selector(rng: random.Random) -> Json:
    selector: Json = {"matchLabels": {"app": "template"}}
    if rng.random() < 0.5:
        selector["matchExpressions"] = [{"key": "app", "operator": "NotIn", "values": ["x", "0"]}]
    spec = {"selector": selector, "template": _pod_template(rng)}
    return {"spec": {**spec, "replicas": rng.choice([0, 1, _INT32])}}


def _replica_set(rng: random.Random, _number: int) -> Json:
    return _with_selector(rng)


def _stateful_set(rng: random.Random, _number: int) -> Json:
    made = _with_selector(rng)
    made["spec"]["serviceName"] = rng.choice(["", "s"])
    return made


# ---- devices -------------------------------------------------------------------------------------

_EXPRESSIONS = [
    "true",
    "1/0 == 1",
    f'device.driver == "{DRIVER}"',
    f'device.attributes["{DRIVER}"].gone == 1',
    f'device.attributes["{DRIVER}"].number > -9223372036854775807',
    f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Ei"))',
    '"\\u0000".size() == 1',
    "[1, 2, 3].all(x, [1, 2, 3].all(y, x + y < 9223372036854775807))",
    f'"{"a" * 700}".replace("a", "{"b" * 700}").size() > 3',
    '"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".matches("(a+)+$")',
]


def _selectors(rng: random.Random) -> list[Json]:
    return [{"cel": {"expression": rng.choice(_EXPRESSIONS)}} for _ in range(rng.randrange(4))]


def _device_config(rng: random.Random) -> list[Json]:
    parameters = {"a": odd_json(rng)}
    return [{"opaque": {"driver": DRIVER, "parameters": parameters}} for _ in range(rng.randrange(3))]  # fmt: skip


def _resource_claim(rng: random.Random, _number: int) -> Json:
    def exactly() -> Json:
        mode = rng.choice([{"allocationMode": "All"}, {"count": rng.choice([1, 2, 32])}])
        return {
            "deviceClassName": rng.choice([CLASS, "gone"]),
            "selectors": _selectors(rng),
            **mode,
        }

    names = [f"r{n}" for n in range(rng.choice([1, 1, 2, 15, 32]))]
    requests: list[Json] = [
        {"name": name, "exactly": exactly()}
        if rng.random() < 0.8
        else {"name": name, "firstAvailable": [{"name": f"s{n}", **exactly()} for n in range(8)]}
        for name in names
    ]
    attribute = f"{DRIVER}/{rng.choice(['side', 'number', 'gone'])}"
    constraint = {rng.choice(["matchAttribute", "distinctAttribute"]): attribute}
    devices = {"requests": requests, "config": _device_config(rng)}
    if rng.random() < 0.5:
        devices["constraints"] = [constraint]
    return {"spec": {"devices": devices}}


def _device_class(rng: random.Random, _number: int) -> Json:
    return {"spec": {"selectors": _selectors(rng), "config": _device_config(rng)}}


def _resource_slice(rng: random.Random, number: int) -> Json:
    where: Json = rng.choice(
        [
            {"allNodes": True},
            {"nodeName": "gone"},
            {"nodeSelector": {"nodeSelectorTerms": [_node_term(rng)]}},
        ]  # fmt: skip
    )
    attributes = [{"int": -(2**63)}, {"int": _INT64}, {"bool": False}, {"string": "\u0000"}, {"string": ""}, {"version": "1.0.0-a+b"}]  # fmt: skip
    devices = [
        {
            "name": f"d{n}",
            "attributes": {f"a{i}": rng.choice(attributes) for i in range(rng.choice([0, 9, 25]))},
            "capacity": {"memory": {"value": rng.choice(_QUANTITIES)}},
        }
        for n in range(rng.choice([0, 1, 8, 128]))
    ]
    pool = {"name": f"pool-{number}", "generation": rng.choice([1, _INT64]), "resourceSliceCount": rng.choice([1, _INT64])}  # fmt: skip
    return {"spec": {"driver": rng.choice([DRIVER, "other.example.com"]), "pool": pool, **where, "devices": devices}}  # fmt: skip


def _device_taint_rule(rng: random.Random, _number: int) -> Json:
    selector = {name: value for name, value in (("driver", "none.example.com"), ("pool", "gone"), ("device", "d0")) if rng.random() < 0.7}  # fmt: skip
    # a rule for all devices would be no odd object, but an order to leave them alone
    selector["pool"] = "gone"
    effect = rng.choice(["NoSchedule", "NoExecute", "None"])
    taint = {"key": rng.choice(_KEYS), "value": rng.choice(_VALUES), "effect": effect}
    return {"spec": {"deviceSelector": selector, "taint": taint}}


# ---- volumes -------------------------------------------------------------------------------------


def _persistent_volume(rng: random.Random, number: int) -> Json:
    sources: list[Json] = [
        {"hostPath": {"path": "/x"}},
        {"csi": {"driver": name_of("CSIDriver", number), "volumeHandle": "\U0001f600"}},
        {"nfs": {"server": "s", "path": "/"}},
        {"gcePersistentDisk": {"pdName": "d"}},
        {"local": {"path": "/l"}},
    ]
    spec: Json = {
        "capacity": {"storage": rng.choice(["1", "1n", "7Ei", str(_INT64)])},
        "accessModes": [rng.choice(["ReadWriteOnce", "ReadOnlyMany", "ReadWriteOncePod"])],
        "storageClassName": rng.choice(["", name_of("StorageClass", number), "gone"]),
        **rng.choice(sources),
    }
    if "local" in spec or rng.random() < 0.5:
        spec["nodeAffinity"] = {"required": _node_selector(rng)}
    if rng.random() < 0.5:
        claim = rng.choice([name_of("PersistentVolumeClaim", number), "gone"])
        uid = rng.choice(["", "\u0001"])
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim, "uid": uid}  # fmt: skip
    return {"spec": spec}


def _persistent_volume_claim(rng: random.Random, number: int) -> Json:
    spec: Json = {
        "accessModes": [rng.choice(["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"])],
        "resources": {"requests": {"storage": rng.choice(["1", "1n", "7Ei", str(_INT64)])}},
        "storageClassName": rng.choice(["", name_of("StorageClass", number), "gone"]),
    }
    if rng.random() < 0.3:
        spec["volumeName"] = rng.choice([name_of("PersistentVolume", number), "gone"])
    if rng.random() < 0.3:
        spec["selector"] = _label_selector(rng)
    key = rng.choice(["pv.kubernetes.io/bind-completed", "volume.kubernetes.io/selected-node"])
    return {"metadata": {"annotations": {key: rng.choice(_TEXTS)}}, "spec": spec}


def _storage_class(rng: random.Random, _number: int) -> Json:
    made: Json = {
        "provisioner": rng.choice(["kubernetes.io/no-provisioner", DRIVER]),
        "parameters": {f"p{n}": rng.choice(_TEXTS) for n in range(rng.choice([0, 3, 100]))},
        "volumeBindingMode": rng.choice(["Immediate", "WaitForFirstConsumer"]),
    }
    if rng.random() < 0.5:
        expression = {"key": rng.choice(_KEYS), "values": [*{*_some(rng, lambda: rng.choice(_VALUES))}]}  # fmt: skip
        made["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return made


def _csi_node(rng: random.Random, _number: int) -> Json:
    drivers = [
        {
            "name": f"d{n}.example.com",
            "nodeID": rng.choice(["x", "\U0001f600", "i" * 190]),
            "topologyKeys": rng.sample(_KEYS, 2),
            "allocatable": {"count": rng.choice([0, _INT32])},
        }
        for n in range(rng.choice([0, 1, 100]))
    ]
    return {"spec": {"drivers": drivers}}


def _csi_driver(rng: random.Random, _number: int) -> Json:
    switches = ("attachRequired", "storageCapacity", "podInfoOnMount", "requiresRepublish")
    return {"spec": {name: rng.random() < 0.5 for name in switches}}


def _csi_storage_capacity(rng: random.Random, number: int) -> Json:
    made: Json = {"storageClassName": name_of("StorageClass", number)}
    made |= _quantities(rng, "capacity", "maximumVolumeSize")
    if rng.random() < 0.8:
        made["nodeTopology"] = _label_selector(rng)
    return made


def _volume_attachment(rng: random.Random, number: int) -> Json:
    volume = rng.choice([name_of("PersistentVolume", number), "gone"])
    node = rng.choice(["node-00001", "gone"])
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return {"spec": spec}


MAKERS: dict[str, Maker] = {
    "Namespace": _namespace,
    "Node": _node,
    "PriorityClass": _priority_class,
    "PodDisruptionBudget": _pod_disruption_budget,
    "PodGroup": _pod_group,
    "CompositePodGroup": _composite_pod_group,
    "Service": _service,
    "ReplicationController": _replication_controller,
    "ReplicaSet": _replica_set,
    "StatefulSet": _stateful_set,
    "DeviceClass": _device_class,
    "ResourceSlice": _resource_slice,
    "DeviceTaintRule": _device_taint_rule,
    "ResourceClaim": _resource_claim,
    "StorageClass": _storage_class,
    "CSINode": _csi_node,
    "CSIDriver": _csi_driver,
    "CSIStorageCapacity": _csi_storage_capacity,
    "PersistentVolume": _persistent_volume,
    "PersistentVolumeClaim": _persistent_volume_claim,
    "VolumeAttachment": _volume_attachment,
    "Pod": _pod,
}
"""What makes an object of each kind, in the order in which they are created: what others refer to
first."""
