"""The texts that redaction keeps: words of the Kubernetes API, which say nothing about a cluster.

Everything else is replaced, wherever it stands. A word that is missing here is replaced too; where
a plugin compares it, decisions about the redacted cluster differ, which the recorded answers show.
"""

from __future__ import annotations

import re

from proreus.base.feature_gate_table import gates_of, gates_of_other_components
from proreus.base.kubernetes_version import SUPPORTED_VERSIONS
from proreus.insight.snapshots.snapshot import KEPT_ANNOTATIONS

_ENUMERATIONS = """
    Always Never OnFailure IfNotPresent Pending Running Succeeded Failed Unknown Active Terminating
    Available Bound Released Lost True False TCP UDP SCTP PreemptLowerPriority Immediate
    WaitForFirstConsumer ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod Filesystem Block
    NoSchedule PreferNoSchedule NoExecute None In NotIn Exists DoesNotExist Equal Gt Lt Honor Ignore
    DoNotSchedule ScheduleAnyway ExactCount All FromClass FromClaim Exit Restart
    RestartAllContainers
    PodGroup Pod NodePrepareResources NodeUnprepareResources Delete Retain Recycle
    LowerOrEqualPriority Enabled Disabled
"""
_CONDITIONS = """
    PodScheduled Ready Initialized ContainersReady DisruptionTarget PodReadyToStartContainers
    PodResizePending PodResizeInProgress MemoryPressure DiskPressure PIDPressure NetworkUnavailable
    PodGroupScheduled PodGroupInitiallyScheduled AllExtensionsRan
    Unschedulable SchedulingGated SchedulerError Deferred Infeasible Scheduled
    PreemptionByScheduler DeletionByTaintManager EvictionByEvictionAPI TerminationByKubelet
    KubeletReady KubeletHasSufficientMemory KubeletHasNoDiskPressure KubeletHasSufficientPID
"""
_OBJECTS = """
    v1 apps/v1 batch/v1 scheduling.k8s.io/v1alpha1 scheduling.k8s.io/v1alpha2
    scheduling.k8s.io/v1alpha3 scheduling.k8s.io resource.k8s.io pods podgroups
    ReplicaSet Deployment StatefulSet DaemonSet Job CronJob ReplicationController Node
    CompositePodGroup ResourceClaim Service PersistentVolumeClaim
    default kube-system kube-public kube-node-lease default-scheduler
    system-cluster-critical system-node-critical metadata.name metadata.namespace
    0.0.0.0 :: amd64 arm64 linux windows true false yes
"""
_LABELS = """
    kubernetes.io/hostname kubernetes.io/os kubernetes.io/arch kubernetes.io/metadata.name
    beta.kubernetes.io/os beta.kubernetes.io/arch beta.kubernetes.io/instance-type
    topology.kubernetes.io/zone topology.kubernetes.io/region
    failure-domain.beta.kubernetes.io/zone failure-domain.beta.kubernetes.io/region
    node.kubernetes.io/instance-type node.kubernetes.io/windows-build
    node-role.kubernetes.io/control-plane node-role.kubernetes.io/master
    node.kubernetes.io/exclude-from-external-load-balancers
    node.kubernetes.io/not-ready node.kubernetes.io/unreachable node.kubernetes.io/unschedulable
    node.kubernetes.io/memory-pressure node.kubernetes.io/disk-pressure
    node.kubernetes.io/pid-pressure node.kubernetes.io/network-unavailable
    node.kubernetes.io/out-of-service node.cloudprovider.kubernetes.io/uninitialized
    app.kubernetes.io/name app.kubernetes.io/instance app.kubernetes.io/version
    app.kubernetes.io/component app.kubernetes.io/part-of app.kubernetes.io/managed-by
    statefulset.kubernetes.io/pod-name apps.kubernetes.io/pod-index pod-template-hash
    controller-revision-hash pod-template-generation
    batch.kubernetes.io/job-name batch.kubernetes.io/controller-uid
    batch.kubernetes.io/job-completion-index job-name controller-uid
    topology.ebs.csi.aws.com/zone topology.gke.io/zone topology.disk.csi.azure.com/zone
    topology.cinder.csi.openstack.org/zone
"""
_STORAGE = """
    kubernetes.io/no-provisioner kubernetes.io/aws-ebs kubernetes.io/gce-pd
    kubernetes.io/azure-disk kubernetes.io/azure-file kubernetes.io/cinder
    kubernetes.io/vsphere-volume kubernetes.io/portworx-volume kubernetes.io/rbd
    ebs.csi.aws.com pd.csi.storage.gke.io disk.csi.azure.com file.csi.azure.com
    cinder.csi.openstack.org csi.vsphere.vmware.com pxd.portworx.com rbd.csi.ceph.com
"""
_RESOURCES = """
    cpu memory pods storage ephemeral-storage
    nvidia.com/gpu nvidia.com/gpu.shared amd.com/gpu gpu.intel.com/i915 gpu.intel.com/xe
    habana.ai/gaudi aws.amazon.com/neuron aws.amazon.com/neuroncore google.com/tpu
    kubernetes.io/batch-cpu kubernetes.io/batch-memory
"""
_CEL = """
    device driver attributes capacity allowMultipleAllocations cel bind has in all exists exists_one
    existsOne map filter transformList transformMap size contains startsWith endsWith matches find
    findAll split join replace lowerAscii upperAscii trim substring indexOf lastIndexOf charAt
    quantity isQuantity isInteger asInteger asApproximateFloat sign add sub isGreaterThan isLessThan
    compareTo semver isSemver major minor patch int uint double string bool bytes type dyn null
    duration timestamp min max sum isSorted includes optional of none ofNonZeroValue orValue or
    value hasValue optMap optFlatMap format url ip cidr isURL isIP isCIDR
"""
WORDS = frozenset(
    " ".join((_ENUMERATIONS, _CONDITIONS, _OBJECTS, _LABELS, _STORAGE, _RESOURCES, _CEL)).split()
)

_PATTERNS = re.compile(
    # Numbers (for Gt and Lt), quantities, and versions as far as they are numbers.
    r"[+-]?\d*(?:\.\d+){0,2}(?:[eE][+-]?\d{1,3}|[numkMGTPE]|[KMGTPE]i)?"
    r"|hugepages-\d+[KMG]i|attachable-volumes-(?:aws-ebs|gce-pd|azure-disk|cinder)"
)


def is_meaningful(text: str) -> bool:
    """Return whether a text has a meaning to a scheduler, and says nothing about a cluster."""
    return text in WORDS or text in KEPT_ANNOTATIONS or _is_pattern(text) or text in _FEATURES


def _is_pattern(text: str) -> bool:
    return len(text) < _LONGEST and _PATTERNS.fullmatch(text) is not None


_LONGEST = 40
_FEATURES = frozenset(
    {"UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits"}.union(
        *(gates_of(version) for version in SUPPORTED_VERSIONS),
        *(gates_of_other_components(version) for version in SUPPORTED_VERSIONS),
    )
)
"""Names that nodes declare, and gates."""
