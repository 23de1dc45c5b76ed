from typing import Any

import pytest

from proreus.base.clock import FakeClock
from proreus.workbench.sandbox.cluster import make_node
from proreus.workbench.sandbox.store import Store
from proreus.workbench.sandbox.tables import duration_since, make_table


def rows(store: Store, plural: str) -> list[dict[str, Any]]:
    """Return the table of a resource, a row a dict by column."""
    served = store.resources.find(plural)
    objects = [version.object() for version in store.list(served)]
    table = make_table(served, objects, {}, {}, store.clock)
    titles = [column["name"] for column in table["columnDefinitions"]]
    return [dict(zip(titles, row["cells"], strict=True)) for row in table["rows"]]


def test_pods_and_nodes_read_as_kubectl_prints_them(store: Store, clock: FakeClock) -> None:
    roles = {"node-role.kubernetes.io/control-plane": ""}
    store.create("nodes", make_node("n1", labels=roles, address="10.0.0.1"))
    store.patch("nodes", "n1", {"spec": {"unschedulable": True}})
    store.create("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}})
    gate = {"schedulingGates": [{"name": "g"}], "containers": [{"name": "c"}, {"name": "d"}]}
    store.create("pods", {"metadata": {"name": "q"}, "spec": gate})
    clock.advance(90)
    (node,) = rows(store, "nodes")
    assert (node["Status"], node["Roles"]) == ("Ready,SchedulingDisabled", "control-plane")
    assert (node["Age"], node["Internal-IP"]) == ("90s", "10.0.0.1")
    first, second = rows(store, "pods")
    assert (first["Ready"], first["Status"], first["Node"]) == ("0/1", "Pending", "<none>")
    assert (second["Ready"], second["Status"]) == ("0/2", "SchedulingGated")


def test_custom_resources_have_the_columns_of_their_definition(store: Store) -> None:
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    version = {"name": "v1", "storage": True, "additionalPrinterColumns": columns}
    definition = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }
    store.create("customresourcedefinitions.apiextensions.k8s.io", definition)
    store.create("widgets.example.com", {"metadata": {"name": "w"}, "spec": {"size": 3}})
    assert rows(store, "widgets.example.com") == [{"Name": "w", "Size": 3}]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (301, "5m1s"), (3000, "50m"), (7200, "120m"),
     (3 * 3600 + 60, "3h1m"), (86400, "24h"), (3 * 86400, "3d"), (800 * 86400, "2y")],
)  # fmt: skip
def test_ages(seconds: int, text: str) -> None:
    assert duration_since("1970-01-01T00:00:00Z", seconds) == text
