"""The dashboard on the secure port, with a real apiserver that says who may see it.

In a real Chromium; without one the test is skipped, and the summary of pytest -rs says so.
"""

from __future__ import annotations

import os
import re
import shutil

import pytest
from envtest import objects
from envtest.control_plane import STRANGER_TOKEN, ControlPlane
from envtest.schedulers import SHARED_PLUGINS, RunScheduler, configuration, profile
from envtest.waiting import eventually

SCHEDULER = "watched"
PODS = objects.PODS.format("default")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CHROMIUM = os.environ.get("PROREUS_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def allow_dashboard(plane: ControlPlane) -> str:
    """Return the token of a ServiceAccount that may see the dashboard, and nothing else."""
    client = plane.client
    account = {"metadata": {"name": "viewer"}}
    client.create("/api/v1/namespaces/default/serviceaccounts", account)
    rule = {"nonResourceURLs": ["/dashboard/"], "verbs": ["get", "post"]}
    name = {"metadata": {"name": "dashboard"}}
    client.create(f"{RBAC}/clusterroles", name | {"rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "dashboard"}
    subject = {"kind": "ServiceAccount", "name": "viewer", "namespace": "default"}
    client.create(f"{RBAC}/clusterrolebindings", name | {"roleRef": role, "subjects": [subject]})
    return plane.service_account_token("default", "viewer")


@pytest.mark.skipif(CHROMIUM is None, reason="NOT TESTED IN A BROWSER: there is no Chromium")
def test_a_user_signs_in_and_finds_out_why_a_pod_waits(
    new_control_plane: ControlPlane, run_scheduler: RunScheduler
) -> None:
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="NOT TESTED IN A BROWSER: playwright is not installed"
    )
    plane, client = new_control_plane, new_control_plane.client
    for index in range(2):
        client.create(objects.NODES, objects.node(index, cpu="4"))
    config = configuration([profile(SCHEDULER, plugins=SHARED_PLUGINS)], plane.kubeconfig)
    scheduler = run_scheduler(config, kind="proreus", flags=["--dashboard"])
    for name, cpu in (("small", "1"), ("large", "64")):
        client.create(PODS, objects.pod(name, SCHEDULER, cpu=cpu))
    token = allow_dashboard(plane)

    def decided() -> bool:
        found = {pod["metadata"]["name"]: pod for pod in client.list(PODS)}
        return bool(found["small"]["spec"].get("nodeName")) and any(
            one.get("reason") == "Unschedulable"
            for one in found["large"].get("status", {}).get("conditions", ())
        )

    eventually(60, "decisions about both pods", decided)
    assert scheduler.get("/metrics", token)[0] == 403
    with sync_api.sync_playwright() as playwright:
        # Its sandbox needs rights that containers and root do not have.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(ignore_https_errors=True).new_page()
        page.set_default_timeout(20_000)
        base = f"https://127.0.0.1:{scheduler.port}/dashboard"
        page.goto(base)
        assert page.url == f"{base}/"
        page.get_by_label("Token").fill(STRANGER_TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("may not see the dashboard").wait_for()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("Live.", exact=True).wait_for()
        page.get_by_role("link", name="NodeResourcesFit").first.click()
        page.get_by_role("link", name="large").click()
        page.get_by_text("no smaller change helps").first.wait_for()
        page.get_by_role("link", name="Try a change of the pod or of weights").click()
        page.get_by_label("Requested cpu").fill("1")
        page.get_by_role("button", name="Ask the scheduler").click()
        page.get_by_role("heading", name="With the change").wait_for()
        said = page.locator("main").inner_text()
        browser.close()
    assert "0/2 nodes are available: 2 Insufficient cpu" in said
    assert re.search(r"It fits on 2 nodes", said)
    pods = {pod["metadata"]["name"]: pod for pod in client.list(PODS)}
    assert pods.keys() == {"small", "large"}
    assert "nodeName" not in pods["large"]["spec"]
