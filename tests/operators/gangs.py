"""A cluster on which operators make gangs: their processes, nodes of a test, and its checks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import yaml
from envtest import assertions, controllers, objects
from envtest.kube_client import KubeClient
from envtest.kwok import KwokCluster
from envtest.schedulers import RunScheduler, configuration
from envtest.waiting import eventually

from operators.programs import OperatorPrograms
from operators.webhooks import by_url, write_certificate
from proreus.workbench.bench.processes import Child, free_ports

Json = dict[str, Any]

SECONDS = 90
"""How long a test waits for something; it takes about a second on an idle machine."""


class GangCluster:
    """What one test has of the cluster: a namespace, nodes with a label, and processes."""

    def __init__(
        self,
        cluster: KwokCluster,
        run_scheduler: RunScheduler,
        find_or_build: Callable[[str], OperatorPrograms],
        folder: Path,
        name: str,
    ) -> None:
        self.client = KubeClient.from_kubeconfig(cluster.kubeconfig)
        self.namespace = name
        self.processes: list[Child] = []
        self._kubeconfig = cluster.kubeconfig
        self._run_scheduler = run_scheduler
        self._find_or_build = find_or_build
        self._folder = folder
        self._certificates = folder / "certificates"
        self._nodes: list[str] = []
        self._webhooks: list[str] = []
        folder.mkdir()
        self.client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        eventually(SECONDS, account, lambda: self.client.request("GET", account).status == 200)

    def end(self) -> None:
        """Stop the processes, and delete what would concern other tests."""
        for path in self._webhooks:
            self.client.delete(path)
        for process in self.processes:
            process.kill()
        for name in self._nodes:
            self.client.delete(f"{objects.NODES}/{name}")
        self.client.delete(f"/api/v1/namespaces/{self.namespace}")
        self.client.close()

    def schedule(self, scheduler_name: str) -> None:
        """Start proreus, with Coscheduling in mode plan, for pods of a ``schedulerName``."""
        enabled = [{"name": "Coscheduling"}]
        profile = {
            "schedulerName": scheduler_name,
            "plugins": {
                "queueSort": {"enabled": enabled, "disabled": [{"name": "*"}]},
                "multiPoint": {"enabled": enabled},
            },
            "pluginConfig": [{"name": "Coscheduling", "args": {"mode": "plan"}}],
        }
        self._run_scheduler(configuration([profile], self._kubeconfig))

    def write_volcano_phases(self) -> None:
        """Start the controller that writes the phases of Volcano's PodGroups."""
        flags = ["--status=volcano-podgroups", "--leader-elect-resource-namespace=default"]
        process = controllers.ControllerProcess(
            self._kubeconfig, self._folder, "proreus-controller", flags
        )
        self._start(process)

    def install_pod_groups(self) -> None:
        """Install the PodGroups of scheduler-plugins and of Volcano."""
        controllers.install(self.client, "podgroup")
        controllers.install(self.client, "volcano-podgroup")

    def start_operator(
        self, name: str, flags: Sequence[str] = (), config: Json | None = None
    ) -> None:
        """Start an operator, with its definitions, and wait until it is ready.

        ``{probes}`` in a flag becomes the address of /readyz. ``config``: the head of its
        configuration file, if it reads one; where it listens is added, and its webhooks are used.
        """
        operator = self._find_or_build(name)
        for definition in operator.definitions():
            self._install(definition)
        probes, webhooks = free_ports(2)
        address = f"127.0.0.1:{probes}"
        if config is not None:
            file = self._folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump(config | self._listening(address, webhooks)))
            flags = [f"--config={file}", *flags]
        has_probes = config is not None or any("{probes}" in flag for flag in flags)
        command = [str(operator.program), *(flag.format(probes=address) for flag in flags)]
        environment = {"KUBECONFIG": str(self._kubeconfig)}
        process = Child(name, command, self._folder / f"{name}.log", environment)
        self._start(process)
        if has_probes:
            process.wait_for(SECONDS, "readyz", lambda: _is_ready(probes))
        if config is not None:
            process.wait_for(SECONDS, "webhooks", lambda: _listens(webhooks))
            self._register_webhooks(operator, webhooks)

    def _listening(self, probes: str, webhooks: int) -> Json:
        write_certificate(self._certificates)
        return {
            "health": {"healthProbeBindAddress": probes},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
        }

    def _register_webhooks(self, operator: OperatorPrograms, port: int) -> None:
        certificate = (self._certificates / "tls.crt").read_bytes()
        configurations = operator.webhook_configurations()
        for collection, document in by_url(configurations, operator.name, port, certificate):
            self.client.create(collection, document)
            self._webhooks.append(f"{collection}/{operator.name}")

    def _start(self, process: Child) -> None:
        process.start()
        self.processes.append(process)

    def _install(self, definition: Json) -> None:
        name = definition["metadata"]["name"]
        if self.client.request("GET", f"{controllers.DEFINITIONS}/{name}").status == 404:
            # the conversion webhooks of other versions are not there
            definition["spec"].pop("conversion", None)
            self.client.create(controllers.DEFINITIONS, definition)
        spec = definition["spec"]
        for version in spec["versions"]:
            if version["served"]:
                self._wait_for_resource(
                    f"/apis/{spec['group']}/{version['name']}", spec["names"]["plural"]
                )

    def _wait_for_resource(self, version_path: str, plural: str) -> None:
        """Wait until discovery, by which operators find resources, lists one."""

        def is_listed() -> bool:
            answer = self.client.request("GET", version_path)
            return answer.status == 200 and any(
                resource["name"] == plural for resource in answer.json()["resources"]
            )

        eventually(SECONDS, f"{version_path}/{plural}", is_listed)

    def create(self, document: Json, plural: str) -> None:
        """Create an object in the namespace."""
        document.setdefault("metadata", {})["namespace"] = self.namespace
        path = f"/apis/{document['apiVersion']}/namespaces/{self.namespace}/{plural}"
        self.client.create(path, document)

    def template(self, cpu: str = "1", **spec: Any) -> Json:
        """Return metadata and spec of a pod for the nodes of the test."""
        container = {
            "name": "main",
            "image": "pause:3.10",
            "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
        }
        return {
            "metadata": {},
            "spec": {"containers": [container], "nodeSelector": {"pool": self.namespace}, **spec},
        }

    def add_node(self, cpu: int, labels: Mapping[str, str] | None = None) -> str:
        """Add a node of the test, and wait until it has no taint."""
        labels = {"pool": self.namespace, **(labels or {})}
        node = objects.node(len(self._nodes), cpu=str(cpu), labels=labels)
        name = f"{self.namespace}-{len(self._nodes)}"
        node["metadata"]["name"] = node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        self.client.create(objects.NODES, node)
        self._nodes.append(name)
        path = f"{objects.NODES}/{name}"
        eventually(
            SECONDS, f"{name} ready", lambda: not self.client.get(path)["spec"].get("taints")
        )
        return name

    def pods(self, **labels: str) -> list[Json]:
        """Return the pods of the namespace, or those with labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        return self.client.list(objects.PODS.format(self.namespace), labelSelector=selector)

    def waits_as_a_whole(self, members: int) -> None:
        """Check that ``members`` pods exist, that none is bound, and that each says why."""

        def all_say_why() -> bool:
            pods = self.pods()
            conditions = [assertions.condition(pod) for pod in pods]
            # the pod that fits nowhere says why it does not, and the others that they need it
            return [each.get("reason") for each in conditions] == ["Unschedulable"] * members and (
                sum("are needed together" in each["message"] for each in conditions) >= members - 1
            )

        self.eventually(f"{members} pods that wait for each other", all_say_why)
        assert not any(assertions.node_of(pod) for pod in self.pods()), self.summary()

    def runs_as_a_whole(self, members: int) -> None:
        """Check that ``members`` pods exist, and that the kubelets have started all of them."""

        def all_run() -> bool:
            # kwok lets the pods of Jobs succeed at once
            phases = [pod["status"].get("phase") for pod in self.pods()]
            return len(phases) == members and {*phases} <= {"Running", "Succeeded"}

        self.eventually(f"{members} pods that run", all_run)

    def starts_as_a_whole(self, document: Json, plural: str, members: int) -> None:
        """Create an object; check that its pods wait while one has no room, and run afterwards.

        Its ``members`` pods request a CPU each. The test has no nodes before.
        """
        # where ``minResources`` of a PodGroup are free, but which no pod may use
        self.add_node(members, {"pool": "elsewhere"})
        self.add_node(members - 1)
        self.create(document, plural)
        self.waits_as_a_whole(members)
        self.add_node(1)
        self.runs_as_a_whole(members)

    def eventually(self, what: str, probe: Callable[[], bool]) -> None:
        """Wait until ``probe`` returns True; a failure shows the pods."""
        deadline = time.monotonic() + SECONDS
        while not probe():
            assert time.monotonic() < deadline, f"not in {SECONDS} s: {what}\n{self.summary()}"
            time.sleep(0.2)

    def summary(self) -> str:
        """Return a line for each pod: node, phase, and why it is not scheduled."""
        return "\n".join(
            f"{pod['metadata']['name']} of {pod['spec']['schedulerName']}: "
            f"{assertions.node_of(pod)} {pod['status'].get('phase')} "
            f"{assertions.condition(pod).get('message', '')}"
            for pod in self.pods()
        )


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    finally:
        connection.close()


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
