"""The pod statuses that a kubelet writes: running, succeeded, rejected at admission."""

from typing import Any

from proreus.workbench.sandbox.pods import set_condition

JsonObject = dict[str, Any]

_RUNNING = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
_ENDED = ("Ready", "ContainersReady")


def set_running(pod: JsonObject, pod_ip: str, host_ip: str, now: str) -> None:
    """Set the status of a pod with all containers running and ready, in place."""
    status = pod["status"]
    status["phase"] = "Running"
    status["hostIP"] = host_ip
    status["hostIPs"] = [{"ip": host_ip}]
    status["podIP"] = pod_ip
    status["podIPs"] = [{"ip": pod_ip}]
    status["startTime"] = now
    for type_ in _RUNNING:
        set_condition(status, type_, "True", now)
    uid = pod["metadata"]["uid"]
    status["containerStatuses"] = [
        {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "containerID": f"fake://{uid}-{number}",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for number, container in enumerate(pod["spec"]["containers"])
    ]


def set_succeeded(pod: JsonObject, now: str) -> None:
    """Set the status of a pod after all containers have exited with 0, in place."""
    status = pod["status"]
    started = status.get("startTime", now)
    status["phase"] = "Succeeded"
    for type_ in _ENDED:
        set_condition(status, type_, "False", now, reason="PodCompleted")
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": now}
    for entry in status.get("containerStatuses") or ():
        entry.update(ready=False, started=False, state={"terminated": ended})


def set_rejected(pod: JsonObject, reason: str, message: str, now: str) -> None:
    """Set the status of a pod that admission rejected, in place."""
    status = pod["status"]
    status["phase"] = "Failed"
    status["reason"] = reason
    status["message"] = f"Pod was rejected: {message}"
    status["startTime"] = now
