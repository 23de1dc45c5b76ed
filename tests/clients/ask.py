"""Asks for two pods, by the package that openapi-python-client has generated."""

import sys

from proreus_dry_runs_client import AuthenticatedClient
from proreus_dry_runs_client.api.dryrunreviews import create_dry_run_review
from proreus_dry_runs_client.models import (
    DryRunReview,
    DryRunReviewApiVersion,
    DryRunReviewKind,
    DryRunSpec,
    PodItem,
    PodItemPod,
)

base_url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=base_url, token=token, verify_ssl=False)
container = {"name": "c", "resources": {"requests": {"cpu": "100m"}}}
pod = PodItemPod.from_dict({"metadata": {"name": "web"}, "spec": {"containers": [container]}})
answer = create_dry_run_review.sync(
    client=client,
    body=DryRunReview(
        api_version=DryRunReviewApiVersion.SCHEDULING_PROREUS_DEVV1ALPHA1,
        kind=DryRunReviewKind.DRYRUNREVIEW,
        spec=DryRunSpec(pods=[PodItem(pod=pod, count=2)], best_nodes=1),
    ),
)
assert isinstance(answer, DryRunReview), answer
assert answer.status
for outcome in answer.status.pods:
    print(outcome.pod, outcome.node)
