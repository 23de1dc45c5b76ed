"""The Kubernetes versions whose kube-scheduler proreus can be, and their differences.

What a version changed behind a feature gate is in ``feature_gate_table``. What it changed for all
is listed here as ``Change``: each member is asked for in one place of the code, and is deleted,
with what it decides, once the older version is not served any more.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple, Self

from proreus.base.errors import ConfigError


class KubernetesVersion(NamedTuple):
    """A minor version of Kubernetes; versions compare as numbers do."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``1.37``, ``v1.37.1`` or ``1.37+``; raises ``ValueError``."""
        match = re.match(r"v?(\d+)\.(\d+)", text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a version of Kubernetes, such as 1.37")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def includes(self, change: Change) -> bool:
        """Return whether a change is in this version."""
        return self >= change.since

    def previous(self) -> KubernetesVersion:
        """Return the minor version before this one."""
        return KubernetesVersion(self.major, self.minor - 1)


V1_36 = KubernetesVersion(1, 36)
V1_37 = KubernetesVersion(1, 37)
V1_38 = KubernetesVersion(1, 38)
SUPPORTED_VERSIONS = (V1_36, V1_37, V1_38)
DEFAULT_VERSION = V1_37
"""The version that is emulated unless another one is asked for."""


class Change(Enum):
    """A change of kube-scheduler without a feature gate: its version, and the new behaviour."""

    def __init__(self, since: KubernetesVersion, summary: str) -> None:
        self.since = since
        self.summary = summary

    ALLOCATOR_OF_1_37 = (
        V1_37,
        "DynamicResources counts shared counters by driver and pool, and fails on capacities that "
        "cannot be computed",
    )
    ALLOCATOR_OF_1_38 = (
        V1_38,
        "DynamicResources reads names of capacities with and without the driver's domain, compares "
        "versions without their build, refuses negative amounts and values that it does not know, "
        "gives a device with shares to nobody alone, and rejects nodes with unfinished pools",
    )
    BINDING_RETRIED = (
        V1_37,
        "a binding that the apiserver failed to create, or could not be asked for, is tried four "
        "times within a third of a second, as status patches are",
    )
    BIND_MOUNT_OPTIONS_REQUIRE_FEATURE = (
        V1_37,
        "NodeDeclaredFeatures requires VolumeBindMountOptions for volume mounts with such options",
    )
    BUDGETS_SELECT_AS_CONTROLLER = (
        V1_38,
        "preemption selects the pods of PodDisruptionBudgets as the disruption controller does: an "
        "empty selector selects all, and pods without labels may be selected",
    )
    CANDIDATES_WITHOUT_VICTIMS = (
        V1_38,
        "a node on which a preemptor needs no victim is no error, but rejected, or proposed to "
        "extenders, which may add victims",
    )
    CLAIM_POST_FILTER_WITHOUT_REASONS = (
        V1_37,
        "DynamicResources gives no reason in PostFilter when it has nothing to deallocate",
    )
    COMPOSITE_CONDITIONS = (
        V1_38,
        "the condition CompositePodGroupInitiallyScheduled tells of a CompositePodGroup what "
        "PodGroupInitiallyScheduled tells of a PodGroup",
    )
    DEFAULT_PREEMPTION_RESERVES = (
        V1_38,
        "DefaultPreemption has the extension point Reserve, which the default configuration "
        "disables without GenericWorkload",
    )
    EMPTY_SPREAD_SELECTOR_COUNTS = (
        V1_38,
        "PodTopologySpread counts all pods of the namespace for an empty labelSelector",
    )
    EMPTY_TOPOLOGY_VALUE = (
        V1_38,
        "TopologyPlacementGenerator takes a node with an empty topology label to be in no domain",
    )
    EQUAL_VICTIMS_BY_UID = (
        V1_38,
        "a victim without status.startTime counts as started after all others, and of equal "
        "victims the one with the smaller UID is the more important",
    )
    EXACT_PERCENTAGES = (
        V1_38,
        "NodeResourcesFit scores amounts above 9.2e16 without overflows",
    )
    EXACT_VOLUME_SIZES = (
        V1_38,
        "VolumeBinding compares sizes of volumes with storage capacities exactly, instead of "
        "rounded up to bytes",
    )
    FAILED_GROUPS_NAMED = (
        V1_38,
        "the pods of a group that does not fit, and groups below it, name that group; why it does "
        "not fit stands in its own condition alone",
    )
    FIRST_EXHAUSTED_BUDGET = (
        V1_37,
        "of the PodDisruptionBudgets of a victim, those after the first exhausted one keep theirs",
    )
    FIRST_GATED_POD_GATES = (
        V1_38,
        "PreEnqueue of a pod group ends at its first gated pod: the others are not asked, and do "
        "not count as pods that no plugin rejects",
    )
    FIT_SCORES_POD_LEVEL = (
        V1_38,
        "NodeResourcesFit scores a pod by its pod-level requests, and by the resources in its "
        "status while it is resized",
    )
    GANGS_WITHOUT_PERMIT = (
        V1_38,
        "GangScheduling has no Permit: no pod that has a node waits for others of its gang",
    )
    GANG_TEXTS_OF_1_38 = (
        V1_38,
        "GangScheduling says how many pods were tried in vain, and which root has too few",
    )
    GATED_PODS_IN_FLUSH = (
        V1_37,
        "the flush of unschedulable pods tries gated pods too, and each pod every five minutes",
    )
    GROUPS_REPORTED_ONCE = (
        V1_38,
        "a PodGroup that was reported as scheduled gets no other condition as long as pods of it "
        "are known, even if somebody removes that one",
    )
    GROUP_TREES_VALIDATED = (
        V1_38,
        "workload, priority, policies and depth of a whole tree of groups are checked, and the "
        "conditions of an invalid one have the reason PodGroupError",
    )
    GROUP_VICTIMS_OF_1_38 = (
        V1_38,
        "preemption by a group says that there are no victims without hiding other reasons, takes "
        "its pods' policy unless it has one, prefers nodes whose victims cost little, and clears "
        "nominations on all of its nodes",
    )
    IMAGE_VOLUMES_COUNT = (
        V1_37,
        "ImageLocality counts image volumes when it scales its score",
    )
    INFORMERS_NAMED_BY_PLURAL = (
        V1_38,
        "the metrics of informers name resources as the API does (deviceclasses), instead of by "
        "their kind and an s",
    )
    IN_FLIGHT_UNTIL_PRE_BIND_ENDS = (
        V1_37,
        "DynamicResources keeps an allocation in flight until PreBind has succeeded, and tries all "
        "its pods again when one is given up",
    )
    METRICS_OF_1_37 = (
        V1_37,
        "the metrics of 1.37: queued entities, informers, other names and stability levels",
    )
    METRICS_OF_1_38 = (
        V1_38,
        "the metrics of 1.38: label entity in place of type, and of metrics of pod groups; label "
        "preemptor and victim of preemptions by groups; CompositePodGroups count in placements",
    )
    NAMED_PODS_BY_PLUGIN = (
        V1_38,
        "a plugin that names the pods which an event concerns narrows its own hints only, also "
        "where there are CompositePodGroups; all pods are looked at if another one names none",
    )
    NAMESPACE_SELECTOR_MERGED = (
        V1_37,
        "InterPodAffinity evaluates a namespaceSelector once: one that matches a namespace "
        "without labels does not match all others as well",
    )
    NIL_DEVICE_SELECTOR_SELECTS_NOTHING = (
        V1_37,
        "a DeviceTaintRule without deviceSelector applies to no device, instead of all",
    )
    NODE_ALLOCATABLE_OVERHEAD = (
        V1_37,
        "DynamicResources reads nodeAllocatableResources of devices, with mapping and overhead, "
        "instead of nodeAllocatableResourceMappings, and counts claims that are allocated already",
    )
    NODE_CHECKS_IN_PRE_FILTER = (
        V1_37,
        "NodeName, NodeUnschedulable and TaintToleration have the extension point PreFilter, where "
        "NodeName names the pod's node",
    )
    NODE_NAME_BEFORE_UNSCHEDULABLE = (
        V1_37,
        "NodeName comes before NodeUnschedulable, so that its reason is given where both reject",
    )
    NO_IMPLIED_TAINT_EVENT = (
        V1_37,
        "a plugin that registers additions of nodes is not registered for changes of taints too",
    )
    OVERHEAD_BY_CONTAINER = (
        V1_38,
        "what a device takes for each container counts while that container runs, so of an init "
        "container for the peak only; the claim for extended resources is named in the status",
    )
    PARTIAL_LIMITS_OMITTED = (
        V1_38,
        "/metrics/resources has no limit of a pod for cpu or memory unless all its containers have",
    )
    PLACEMENTS_CONFIGURED = (
        V1_38,
        "the configuration has percentageOfPlacementsToScore and plugins.placementFeasible; "
        "plugins that v1 no longer supports are refused at all points of placements",
    )
    PLACEMENTS_INTERSECTED = (
        V1_38,
        "a profile may have several plugins that generate placements, which are intersected",
    )
    PLACEMENT_SEARCH = (
        V1_38,
        "a group is tried in the placement that its pods are nominated to, and if it does not fit "
        "there, until a share of all placements have room for it",
    )
    POD_GROUP_ENTITIES = (
        V1_37,
        "a pod group is queued, tried and backed off as a whole, and preempts as a whole",
    )
    PREEMPTION_EXECUTOR_OF_1_37 = (
        V1_37,
        "a preemption whose victims are all terminating already is counted as well, and a "
        "preemptor whose last victim was kept from being bound is tried again at once",
    )
    PREEMPTION_FOR_FITTING_GROUPS = (
        V1_38,
        "a group of groups preempts for the pods of those groups below it that would fit then, and "
        "not for those of the others too",
    )
    PREEMPTION_MESSAGE = (
        V1_37,
        "a preemption that succeeds adds its text to the message of the failed attempt",
    )
    QUEUE_BOOKKEEPING_OF_1_37 = (
        V1_37,
        "the queue registers the nomination of each added pod, also of a gated one, and none "
        "without a node; a pod of another UID is new; a deleted pod's rejectors no longer count",
    )
    REMOVE_ASSUMED_POD = (
        V1_37,
        "the cache removes an assumed pod that is deleted, instead of forgetting it: other texts "
        "of errors",
    )
    RESIZED_REQUESTS_BY_SUM = (
        V1_37,
        "the request of a resized pod is the largest of the sums of its spec, allocation and "
        "actual resources, instead of the sum of each container's largest",
    )
    SECURITY_REQUIRES_FEATURES = (
        V1_38,
        "NodeDeclaredFeatures requires SecurityProfileOCI for seccomp profiles of type OCI, and "
        "PodCertificateMLDSA for ML-DSA certificates",
    )
    START_TIME_SAMPLED_ONCE = (
        V1_37,
        "a victim without status.startTime counts as started when it was listed",
    )
    TARGET_POD_EVENTS = (
        V1_37,
        "updates of a waiting pod are events of TargetPod, other pods without a node are "
        "UnscheduledPod; UpdatePodScaleUp and UpdateNodePreemptionPolicy are events of their own",
    )
    UNKNOWN_NAMESPACE_MAY_MATCH = (
        V1_38,
        "InterPodAffinity tries a pod again after a change of another pod whose namespace is not "
        "known yet, where a term asks for the namespace's labels",
    )
    VICTIMS_COUNT_AS_PODS = (
        V1_38,
        "among potential victims a pod of a group counts by its own priority, and as a pod unless "
        "its group may only be evicted as a whole",
    )
    WRITTEN_CLAIMS_STAY_ASSUMED = (
        V1_38,
        "DynamicResources does not restore a claim whose allocation PreBind has written when the "
        "pod is not bound: its devices stay in use, and no other pod is tried again for them",
    )


def parse_emulated_version(text: str, field: str) -> KubernetesVersion:
    """Parse the version that is to be emulated; ``field``: where it was given.

    Raises ``ConfigError`` for text that is no version, or a version that is not served.
    """
    try:
        version = KubernetesVersion.parse(text)
    except ValueError as error:
        raise ConfigError(f"{field}: {error}") from error
    first, last = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]
    if not first <= version <= last:
        raise ConfigError(
            f"{field}: emulation version {version} is not between [{first}, {last}.0]"
        )
    return version
