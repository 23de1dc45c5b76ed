"""Objects that guarantee CPUs to a tenant, of each kind that CapacityScheduling reads."""

from __future__ import annotations


def elastic_quota(tenant: str, least: int) -> dict:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": tenant, "namespace": tenant},
        "spec": {"min": {"cpu": least}},
    }


def volcano_queue(tenant: str, least: int) -> dict:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": tenant},
        "spec": {"deserved": {"cpu": least}},
    }


def kai_queue(tenant: str, least: int) -> dict:
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": tenant},
        "spec": {"resources": {"cpu": {"quota": 1000 * least, "limit": -1, "overQuotaWeight": 1}}},
    }
