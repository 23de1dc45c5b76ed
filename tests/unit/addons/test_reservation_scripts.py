"""Random scripts: reservations, owners and other pods never over-commit a node, also over restarts.

What is held is exactly what the reservations have left; a scheduler that starts anew in the middle
holds the same.
"""

from __future__ import annotations

import json
import random

import pytest

from proreus.addons.reservation import Reservation
from proreus.addons.reservation.held import HeldReservation
from proreus.addons.reservation.objects import RESERVATION_ALLOCATED, RESERVATIONS
from proreus.objects import PODS
from proreus.testing import Harness, make_node, make_pod
from unit.addons.test_reservation import reservation

NODES = {"a": 8, "b": 4}
APPS = ("x", "y")
STEPS = 40


class Script:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.harness = Harness([Reservation], [make_node(n, str(cpu)) for n, cpu in NODES.items()])
        self.count = 0

    def step(self) -> None:
        self.count += 1
        rng, harness = self.rng, self.harness
        app = rng.choice(APPS)
        match rng.choice("rroooopddeww"):
            case "r":
                owners = [{"labelSelector": {"matchLabels": {"app": app}}}]
                policy = rng.choice(("Aligned", "Restricted"))
                once = rng.random() < 0.3
                cpu = str(rng.randint(1, 5))
                named = f"r{self.count}"
                made = reservation(
                    named, cpu, owners=owners, allocatePolicy=policy, allocateOnce=once
                )
                harness.add(made)
            case "o":
                labels = {"app": app}
                harness.add(make_pod(f"p{self.count}", str(rng.randint(1, 4)), labels=labels))
            case "p":
                harness.add(make_pod(f"p{self.count}", str(rng.randint(1, 3))))
            case "w":
                # Pods that no reservation is for say that they take from one.
                pods, found = harness.api.store(PODS), harness.api.store(RESERVATIONS)
                plain = sorted(name for name, pod in pods.items() if not pod.metadata.labels)
                if plain and found:
                    meta = found[rng.choice(sorted(found))].metadata
                    claim = json.dumps({"name": meta.name, "uid": meta.uid})
                    patch = {"metadata": {"annotations": {RESERVATION_ALLOCATED: claim}}}
                    harness.patch("Pod", rng.choice(plain).partition("/")[2], patch)
            case "d":
                if pods := sorted(harness.api.store(PODS)):
                    harness.api.remove("Pod", rng.choice(pods))
            case "e":
                if names := sorted(harness.api.store(RESERVATIONS)):
                    harness.api.remove("Reservation", rng.choice(names))
        harness.advance(rng.choice((0, 1, 20)))
        harness.schedule_all()

    def check(self) -> None:
        book = self.harness.plugin(Reservation)._book
        for held in book._held.values():
            anew = HeldReservation(held.reservation, held.owners, held.priority)
            anew.node_name = held.node_name
            anew.update()
            assert (held.owners_here, held.left) == (anew.owners_here, anew.left)
        for name, cpu in NODES.items():
            node = self.harness.node(name)
            assert node.requested["cpu"] <= cpu * 1000
            owners = {uid for held in book._held.values() for uid in held.owners_here}
            pods = self.harness.api.store(PODS).values()
            assert all(pod.metadata.labels for pod in pods if pod.metadata.uid in owners)
            left = sum(
                held.left["cpu"]
                for held in book._held.values()
                if held.node_name == name and not held.is_used_up
            )
            assert node.requested["cpu"] == self.used(name) + left
        self.harness.scheduler.cache.validate()

    def used(self, node_name: str) -> int:
        pods = self.harness.node(node_name).pods.values()
        return sum(one.requests.amounts["cpu"] for one in pods if "/" not in one.name)

    def restart(self) -> None:
        before = {name: self.harness.node(name).requested["cpu"] for name in NODES}
        pods = list(self.harness.api.store(PODS).values())
        found = list(self.harness.api.store(RESERVATIONS).values())
        self.rng.shuffle(pods)
        nodes = [make_node(n, str(cpu)) for n, cpu in NODES.items()]
        self.harness = Harness([Reservation], nodes)
        for one in found[: len(found) // 2]:
            self.harness.put(RESERVATIONS, one)
        self.harness.add(*pods)
        for one in found[len(found) // 2 :]:
            self.harness.put(RESERVATIONS, one)
        assert {name: self.harness.node(name).requested["cpu"] for name in NODES} == before


@pytest.mark.parametrize("seed", range(25))
def test_no_node_is_over_committed(seed: int) -> None:
    script = Script(seed)
    for number in range(STEPS):
        script.step()
        script.check()
        if number % 13 == 12:
            script.restart()
            script.check()
