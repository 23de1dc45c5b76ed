"""The feature gates of kube-scheduler 1.36 that this process knows, and a set of their values.

A ``FeatureGates`` is an immutable value that is passed down; there is no global. A gate is added to
the table only; its stage is for help texts, ``lock_to_default`` for the parser.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from proreus.errors import ConfigError

Stage = Literal["ALPHA", "BETA", "GA"]


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One gate: its default, its stage, whether it may be changed, and the gates it depends on."""

    default: bool
    stage: Stage
    lock_to_default: bool = False
    dependencies: tuple[str, ...] = ()


_ALPHA = FeatureSpec(default=False, stage="ALPHA")
_BETA = FeatureSpec(default=True, stage="BETA")
_BETA_OFF = FeatureSpec(default=False, stage="BETA")
_LOCKED = FeatureSpec(default=True, stage="GA", lock_to_default=True)
_DRA = ("DynamicResourceAllocation",)
_DRA_ALPHA = FeatureSpec(default=False, stage="ALPHA", dependencies=_DRA)
_DRA_BETA = FeatureSpec(default=True, stage="BETA", dependencies=_DRA)
_WORKLOAD_ALPHA = FeatureSpec(default=False, stage="ALPHA", dependencies=("GenericWorkload",))

GATES: Mapping[str, FeatureSpec] = MappingProxyType(
    {
        "ClearingNominatedNodeNameAfterBinding": _BETA,
        "ComponentFlagz": _BETA,
        "ComponentStatusz": _BETA,
        "CoordinatedLeaderElection": _BETA_OFF,
        "DRAAdminAccess": FeatureSpec(
            default=True, stage="GA", lock_to_default=True, dependencies=_DRA
        ),
        "DRAConsumableCapacity": _DRA_BETA,
        "DRADeviceBindingConditions": FeatureSpec(
            default=True, stage="BETA", dependencies=(*_DRA, "DRAResourceClaimDeviceStatus")
        ),
        "DRADeviceTaintRules": FeatureSpec(
            default=False, stage="BETA", dependencies=(*_DRA, "DRADeviceTaints")
        ),
        "DRADeviceTaints": _DRA_BETA,
        "DRAExtendedResource": _DRA_BETA,
        "DRAListTypeAttributes": _DRA_ALPHA,
        "DRANodeAllocatableResources": _DRA_ALPHA,
        "DRAPartitionableDevices": _DRA_BETA,
        "DRAPrioritizedList": FeatureSpec(default=True, stage="GA", dependencies=_DRA),
        "DRAResourceClaimDeviceStatus": _DRA_BETA,
        "DRAResourceClaimGranularStatusAuthorization": FeatureSpec(
            default=True, stage="BETA", dependencies=(*_DRA, "DRAResourceClaimDeviceStatus")
        ),
        "DRAResourcePoolStatus": _DRA_ALPHA,
        "DRASchedulerFilterTimeout": _DRA_BETA,
        "DRAWorkloadResourceClaims": FeatureSpec(
            default=False, stage="ALPHA", dependencies=(*_DRA, "GenericWorkload")
        ),
        "DynamicResourceAllocation": _LOCKED,
        "GangScheduling": _WORKLOAD_ALPHA,
        "GenericWorkload": _ALPHA,
        "InPlacePodLevelResourcesVerticalScaling": FeatureSpec(
            default=True, stage="BETA", dependencies=("PodLevelResources", "NodeDeclaredFeatures")
        ),
        "InPlacePodVerticalScaling": _LOCKED,
        "InPlacePodVerticalScalingInitContainers": FeatureSpec(
            default=True, stage="BETA", dependencies=("NodeDeclaredFeatures",)
        ),
        "MatchLabelKeysInPodAffinity": _LOCKED,
        "MatchLabelKeysInPodTopologySpread": _BETA,
        "MatchLabelKeysInPodTopologySpreadSelectorMerge": FeatureSpec(
            default=True, stage="BETA", dependencies=("MatchLabelKeysInPodTopologySpread",)
        ),
        "MutableCSINodeAllocatableCount": _LOCKED,
        "MutablePVNodeAffinity": _ALPHA,
        "NativeHistograms": _ALPHA,
        "NodeDeclaredFeatures": _BETA,
        "NodeInclusionPolicyInPodTopologySpread": _LOCKED,
        "NominatedNodeNameForExpectation": _BETA,
        "OpportunisticBatching": _BETA,
        "PodLevelResources": _BETA,
        "PodObservedGenerationTracking": _LOCKED,
        "PodSchedulingReadiness": _LOCKED,
        "SchedulerAsyncAPICalls": _BETA_OFF,
        "SchedulerAsyncPreemption": _BETA,
        "SchedulerPopFromBackoffQ": _BETA,
        "SchedulerQueueingHints": _LOCKED,
        "SidecarContainers": _LOCKED,
        "StorageCapacityScoring": _ALPHA,
        "TaintTolerationComparisonOperators": _ALPHA,
        "TopologyAwareWorkloadScheduling": _WORKLOAD_ALPHA,
        "VolumeAttributesClass": _LOCKED,
        "VolumeLimitScaling": _ALPHA,
        "WorkloadAwarePreemption": FeatureSpec(
            default=False, stage="ALPHA", dependencies=("GangScheduling",)
        ),
    }
)

_OTHER_COMPONENTS = """
    APIResponseCompression APIServerIdentity APIServingWithRoutine AtomicFIFO
    AuthorizePodWebsocketUpgradeCreatePermission CBORServingAndStorage
    CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CRDObservedGenerationTracking
    CRIListStreaming CSIVolumeHealth ClientsAllowCARotation ClientsAllowCBOR
    ClientsAllowTLSCacheGC ClientsPreferCBOR
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode
    ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContainerStopSignals
    ContextualLogging CrossNamespaceVolumeDataSource DeclarativeValidationBeta
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency EnvFiles EventedPLEG
    ExtendWebSocketsToKubelet GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
    HPAConfigurableTolerance HPAScaleToZero HostnameOverride ImageVolumeWithDigest
    InOrderInformersBatchProcess InPlacePodVerticalScalingExclusiveCPUs
    InPlacePodVerticalScalingExclusiveMemory KubeletCrashLoopBackOffMax
    KubeletEnsureSecretPulledImages KubeletInUserNamespace KubeletSeparateDiskGC
    KubeletServiceAccountTokenForCredentialProviders ListFromCacheSnapshot
    LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions LoggingBetaOptions
    ManifestBasedAdmissionControlConfig MaxUnavailableStatefulSet MemoryQoS
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs
    OpenAPIEnums PLEGOnDemandRelist PersistentVolumeClaimUnusedSinceTime
    PodAndContainerStatsFromCRI PodCertificateRequest PodDeletionCost
    PodLevelResourceManagers PodLogsQuerySplitStreams PodReadyToStartContainersCondition
    PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets PreventStaticPodAPIReferences
    QOSReserved ReduceDefaultCrashLoopBackOffDecay RelaxedServiceNameValidation
    ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID
    ResourceHealthStatus ResourceHealthStatusMessage RestartAllContainersOnContainerExits
    RotateKubeletServerCertificate RuntimeClassInImageCriApi SELinuxMount
    ServiceAccountNodeAudienceRestriction ShardedListAndWatch SizeBasedListCostEstimate
    StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageVersionAPI StorageVersionHash
    StorageVersionMigrator StrictIPCIDRValidation
    StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics TokenRequestServiceAccountUIDValidation
    TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions
    TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
    UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
    UserNamespacesHostNetworkSupport WatchCacheInitializationPostStartHook WatchList
    WatchListClient WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WorkloadWithJob
"""
OTHER_COMPONENTS = frozenset(_OTHER_COMPONENTS.split())
"""Alpha and beta gates of Kubernetes 1.36 that mean nothing to a scheduler: accepted, since one
list of gates often serves all components of a cluster, and without effect."""

_SPECIAL_GATES: Mapping[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}

_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
"""What Go's ``strconv.ParseBool`` accepts."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The values of all gates; ``changed`` holds what was set, the rest is at its default."""

    changed: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def parse(cls, text: str) -> FeatureGates:
        """Parse the value of ``--feature-gates``: ``A=true,B=false``, each also as ``kube:A=``.

        Raises ``ConfigError`` with kube-scheduler's words, all faults at once.
        """
        return cls.from_list(text.split(","))

    @classmethod
    def from_list(cls, settings: Iterable[str]) -> FeatureGates:
        """Parse settings of the form ``Name=bool``; empty ones are passed over.

        ``AllAlpha`` and ``AllBeta`` set the gates of a stage that are not set by name.
        """
        given: dict[str, bool] = {}
        problems: list[str] = []
        for setting in settings:
            name, equals, text = setting.partition("=")
            name, text = name.strip().removeprefix("kube:"), text.strip()
            if not name and not equals:
                continue
            problem = _problem(name, equals, text)
            if problem is None:
                given[name] = _BOOLS[text]
            else:
                problems.append(problem)
        if problems:
            raise ConfigError(*problems)
        gates = cls(MappingProxyType(_spread(given)))
        problems.extend(gates._unmet_dependencies())
        if problems:
            raise ConfigError(*problems)
        return gates

    def enabled(self, name: str) -> bool:
        """Return whether a gate is on; raises ``KeyError`` for one that is not in the table."""
        value = self.changed.get(name)
        return GATES[name].default if value is None else value

    def __str__(self) -> str:
        return ",".join(f"{name}={str(on).lower()}" for name, on in sorted(self.changed.items()))

    def _unmet_dependencies(self) -> Iterable[str]:
        for name, gate in GATES.items():
            if self.enabled(name):
                missing = [need for need in gate.dependencies if not self.enabled(need)]
                if missing:
                    yield (
                        f"{name} is enabled, but depends on features that are disabled: "
                        f"[{' '.join(missing)}]"
                    )


def _spread(given: Mapping[str, bool]) -> dict[str, bool]:
    """Return the values of gates, those of whole stages included."""
    values = {name: on for name, on in given.items() if name in GATES}
    for whole, stage in _SPECIAL_GATES.items():
        if whole in given:
            for name, gate in GATES.items():
                if gate.stage == stage:
                    values.setdefault(name, given[whole])
    return values


def _problem(name: str, equals: str, text: str) -> str | None:
    if not equals:
        return f"missing bool value for {name}"
    if text not in _BOOLS:
        return (
            f"invalid value of {name}={text}, err: "
            f'strconv.ParseBool: parsing "{text}": invalid syntax'
        )
    component, colon, _ = name.rpartition(":")
    if colon:
        return f"component not registered: {component}"
    if name in OTHER_COMPONENTS or name in _SPECIAL_GATES:
        return None
    gate = GATES.get(name)
    if gate is None:
        return f"unrecognized feature gate: {name}"
    if gate.lock_to_default and _BOOLS[text] != gate.default:
        return (
            f"cannot set feature gate {name} to {str(_BOOLS[text]).lower()}, "
            f"feature is locked to {str(gate.default).lower()}"
        )
    return None
