"""The feature gates that kube-scheduler knows, by Kubernetes version.

A gate that a version changed has a row for each version. Gates of other components are accepted,
since one list of gates often serves all components of a cluster, and are without effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from proreus.base.kubernetes_version import V1_36, V1_37, KubernetesVersion

Stage = Literal["ALPHA", "BETA", "GA"]


class FeatureSpec(NamedTuple):
    """A gate, its default and stage, whether it may be changed, and its dependencies.

    ``on_since``: the gate is on by default where the minimum compatibility version is at least
    this one.
    """

    default: bool
    stage: Stage
    lock_to_default: bool = False
    dependencies: tuple[str, ...] = ()
    on_since: KubernetesVersion | None = None


_ALPHA = FeatureSpec(default=False, stage="ALPHA")
_BETA = FeatureSpec(default=True, stage="BETA")
_BETA_OFF = FeatureSpec(default=False, stage="BETA")
_LOCKED = FeatureSpec(default=True, stage="GA", lock_to_default=True)


def _needing(spec: FeatureSpec, *names: str) -> FeatureSpec:
    return FeatureSpec(spec.default, spec.stage, spec.lock_to_default, names)


_GA = FeatureSpec(default=True, stage="GA")
_DRA = "DynamicResourceAllocation"
_DRA_ALPHA = _needing(_ALPHA, _DRA)
_DRA_BETA = _needing(_BETA, _DRA)
_DRA_LOCKED = _needing(_LOCKED, _DRA)
_WORKLOAD_ALPHA = _needing(_ALPHA, "GenericWorkload")

_SAME: Mapping[str, FeatureSpec] = {
    "ClearingNominatedNodeNameAfterBinding": _BETA,
    "ComponentFlagz": _BETA,
    "ComponentStatusz": _BETA,
    "CoordinatedLeaderElection": _BETA_OFF,
    "DRAAdminAccess": _DRA_LOCKED,
    "DRAConsumableCapacity": _DRA_BETA,
    "DRADeviceBindingConditions": _needing(_BETA, _DRA, "DRAResourceClaimDeviceStatus"),
    "DRAListTypeAttributes": _DRA_ALPHA,
    "DRANodeAllocatableResources": _DRA_ALPHA,
    "DRAPartitionableDevices": _DRA_BETA,
    "DRAResourceClaimGranularStatusAuthorization": _needing(
        _BETA, _DRA, "DRAResourceClaimDeviceStatus"
    ),
    "DRAResourcePoolStatus": _DRA_ALPHA,
    "DRASchedulerFilterTimeout": _DRA_BETA,
    "DynamicResourceAllocation": _LOCKED,
    "InPlacePodLevelResourcesVerticalScaling": _needing(
        _BETA, "PodLevelResources", "NodeDeclaredFeatures"
    ),
    "InPlacePodVerticalScaling": _LOCKED,
    "MatchLabelKeysInPodAffinity": _LOCKED,
    "MatchLabelKeysInPodTopologySpread": _BETA,
    "MatchLabelKeysInPodTopologySpreadSelectorMerge": _needing(
        _BETA, "MatchLabelKeysInPodTopologySpread"
    ),
    "MutableCSINodeAllocatableCount": _LOCKED,
    "MutablePVNodeAffinity": _ALPHA,
    "NodeInclusionPolicyInPodTopologySpread": _LOCKED,
    "NominatedNodeNameForExpectation": _BETA,
    "OpportunisticBatching": _BETA,
    "PodLevelResources": _BETA,
    "PodObservedGenerationTracking": _LOCKED,
    "PodSchedulingReadiness": _LOCKED,
    "SchedulerAsyncAPICalls": _BETA_OFF,
    "SchedulerAsyncPreemption": _BETA,
    "SchedulerPopFromBackoffQ": _BETA,
    "TaintTolerationComparisonOperators": _ALPHA,
    "TopologyAwareWorkloadScheduling": _WORKLOAD_ALPHA,
    "VolumeAttributesClass": _LOCKED,
}

_CHANGED: Mapping[str, tuple[FeatureSpec | None, FeatureSpec | None]] = {
    "CompositePodGroup": (
        None,
        _needing(_ALPHA, "GenericWorkload", "TopologyAwareWorkloadScheduling"),
    ),
    "DRADerivedAttributes": (None, _DRA_ALPHA),
    "DRADeviceCompatibilityGroups": (None, _needing(_ALPHA, _DRA, "DRAPartitionableDevices")),
    "DRADeviceTaintRules": (
        _needing(_BETA_OFF, _DRA, "DRADeviceTaints"),
        _needing(_GA, _DRA, "DRADeviceTaints"),
    ),
    "DRADeviceTaints": (_DRA_BETA, _needing(_GA, _DRA)),
    "DRAExtendedResource": (_DRA_BETA, _DRA_LOCKED),
    "DRAFractionalCapacityRange": (
        None,
        FeatureSpec(False, "BETA", dependencies=("DRAConsumableCapacity",), on_since=V1_37),
    ),
    "DRAOptionalNodeOperations": (None, _needing(_ALPHA, _DRA, "NodeDeclaredFeatures")),
    "DRAPartitionableDevicesType": (
        None,
        _needing(_ALPHA, _DRA, "DRAPartitionableDevices", "DRAResourcePoolStatus"),
    ),
    "DRAPrioritizedList": (_needing(_GA, _DRA), _DRA_LOCKED),
    "DRAResourceClaimDeviceStatus": (_DRA_BETA, _DRA_LOCKED),
    "DRAWorkloadResourceClaims": (
        _needing(_ALPHA, _DRA, "GenericWorkload"),
        _needing(_BETA_OFF, _DRA, "GenericWorkload"),
    ),
    "GangScheduling": (_WORKLOAD_ALPHA, None),
    "GenericWorkload": (_ALPHA, _BETA_OFF),
    "InPlacePodVerticalScalingInitContainers": (
        _needing(_BETA, "NodeDeclaredFeatures"),
        _needing(_LOCKED, "NodeDeclaredFeatures"),
    ),
    "InPlacePodVerticalScalingSchedulerPreemption": (
        None,
        _needing(_ALPHA, "InPlacePodVerticalScaling"),
    ),
    "InterPodAffinityHostnameFastPath": (None, _ALPHA),
    "NativeHistograms": (_ALPHA, _BETA),
    "NodeDeclaredFeatures": (_BETA, _LOCKED),
    "PodGroupPreemptionPolicy": (None, _WORKLOAD_ALPHA),
    "SchedulerPreQueueingHints": (None, _ALPHA),
    "SchedulerQueueingHints": (_LOCKED, None),
    "SidecarContainers": (_LOCKED, None),
    "StorageCapacityScoring": (_ALPHA, _BETA),
    "VolumeLimitScaling": (_ALPHA, _BETA),
    "WorkloadAwarePreemption": (_needing(_ALPHA, "GangScheduling"), None),
}
"""The gate in 1.36 and in 1.37; None where the version does not know it."""

MERGED_GATES: Mapping[str, str] = {
    "GangScheduling": "GenericWorkload",
    "WorkloadAwarePreemption": "GenericWorkload",
}
"""Gates that 1.37 removed, each with the gate that decides since."""

_IN_BOTH = """
    APIResponseCompression APIServerIdentity APIServingWithRoutine
    AggregatedDiscoveryRemoveBetaType AllowDNSOnlyNodeCSR
    AllowInsecureKubeletCertificateSigningRequests AllowOverwriteTerminationGracePeriodSeconds
    AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs AllowUnsafeMalformedObjectDeletion
    AtomicFIFO AuthorizePodWebsocketUpgradeCreatePermission CBORServingAndStorage
    CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions CPUManagerPolicyOptions
    CRDObservedGenerationTracking CRDValidationRatcheting CRIListStreaming
    CSIServiceAccountTokenSecrets CSIVolumeHealth ChangeContainerStatusOnKubeletRestart
    ClientsAllowCARotation ClientsAllowCBOR ClientsAllowTLSCacheGC ClientsPreferCBOR
    CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    ClusterTrustBundle ClusterTrustBundleProjection ConcurrentWatchObjectDecode
    ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContainerStopSignals
    ContextualLogging ControllerManagerReleaseLeaderElectionLockOnExit
    CrossNamespaceVolumeDataSource CustomCPUCFSQuotaPeriod CustomResourceFieldSelectors
    DeclarativeValidation DeclarativeValidationBeta DeclarativeValidationTakeover
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableAllocatorDualWrite
    DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion EnvFiles EventedPLEG
    ExecProbeTimeout ExtendWebSocketsToKubelet ExternalServiceAccountTokenSigner
    GitRepoVolumeDriver GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority
    HPAConfigurableTolerance HPAScaleToZero HostnameOverride ImageMaximumGCAge ImageVolume
    ImageVolumeWithDigest InOrderInformers InOrderInformersBatchProcess
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
    InformerResourceVersion JobManagedBy KMSv1 KubeletCgroupDriverFromCRI
    KubeletCrashLoopBackOffMax KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz
    KubeletInUserNamespace KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet
    KubeletPodResourcesListUseActivePods KubeletRegistrationGetOnExistsOnly
    KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders KubeletTracing
    ListFromCacheSnapshot LocalStorageCapacityIsolationFSQuotaMonitoring LoggingAlphaOptions
    LoggingBetaOptions LoggingStableOptions ManifestBasedAdmissionControlConfig
    MaxUnavailableStatefulSet MemoryQoS MultiCIDRServiceAllocator
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs
    MutatingAdmissionPolicy NFTablesProxyMode NodeLogQuery NodeSwap OpenAPIEnums
    PLEGOnDemandRelist PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI
    PodCertificateRequest PodDeletionCost PodLevelResourceManagers PodLogsQuerySplitStreams
    PodReadyToStartContainersCondition PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets
    PreferSameTrafficDistribution ProcMountType QOSReserved RecoverVolumeExpansionFailure
    RecursiveReadOnlyMounts ReduceDefaultCrashLoopBackOffDecay
    RelaxedEnvironmentVariableValidation RelaxedServiceNameValidation ReloadKubeletClientCAFile
    ReloadKubeletServerCertificateFile RemoteRequestHeaderUID ResourceHealthStatus
    ResourceHealthStatusMessage RestartAllContainersOnContainerExits
    RotateKubeletServerCertificate RuntimeClassInImageCriApi SELinuxChangePolicy SELinuxMount
    SELinuxMountReadWriteOncePod SeparateCacheWatchRPC SeparateTaintEvictionController
    ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI ServiceAccountTokenNodeBinding
    ServiceAccountTokenNodeBindingValidation ServiceAccountTokenPodNodeInfo
    ServiceCIDRStatusFieldWiping ShardedListAndWatch SizeBasedListCostEstimate
    StaleControllerConsistencyDaemonSet StaleControllerConsistencyJob
    StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageNamespaceIndex StorageVersionAPI
    StorageVersionHash StorageVersionMigrator StrictIPCIDRValidation
    StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy
    TokenRequestServiceAccountUIDValidation TopologyManagerPolicyAlphaOptions
    TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions
    TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation
    UnknownVersionInteroperabilityProxy UnlockWhileProcessingFIFO
    UserNamespacesHostNetworkSupport UserNamespacesSupport WatchCacheInitializationPostStartHook
    WatchList WatchListClient WinDSR WinOverlay WindowsCPUAndMemoryAffinity
    WindowsGracefulNodeShutdown WindowsHostNetwork WorkloadWithJob
"""
_UNTIL_1_36 = """
    APIServerTracing AnonymousAuthConfigurableEndpoints AnyVolumeDataSource
    AuthorizeNodeWithSelectors AuthorizeWithSelectors BtreeWatchCache ConsistentListFromCache
    JobBackoffLimitPerIndex JobPodReplacementPolicy JobSuccessPolicy LogarithmicScaleDown
    OrderedNamespaceDeletion PodLifecycleSleepAction PodLifecycleSleepActionAllowZero
    PreventStaticPodAPIReferences RelaxedDNSSearchValidation ResilientWatchCacheInitialization
    RetryGenerateName StreamingCollectionEncodingToJSON StreamingCollectionEncodingToProtobuf
    StructuredAuthenticationConfiguration
"""
_SINCE_1_37 = """
    APIServerWebhookAuthenticationToken AtomicWriteVolumeUserFields
    ConsistentListFromCacheSkipTimeoutFallback DefaultPodSysctls EmptyDirVolumeMode
    EtcdRangeStream EvictionRequestAPI ExcludeAdmissionWebhookVirtualResources
    GRPCContainerProbeTLS H2CContainerProbe HPAGeneration HPAOptimizedSelectorStore
    HugepageAwareEviction InPlacePodVerticalScalingMemoryBackedVolumes KubeProxyIPVS
    KubeProxyNFTablesLocalhostNodePorts KubeletAllocatedPodsEndpoint NFTablesNetlink
    NodeControllerLeaseCircuitBreaker NodeLifecycleConditions PodLevelResourcesFixDefaulting
    PodLevelResourcesFixKubeletQOSClass StaleControllerConsistencyHPA
    StatefulSetRecreateStrategy VolumeBindMountOptions WatchListCompression
    WebhookRoundTripLoadBalancing
"""


@cache
def gates_of(version: KubernetesVersion) -> Mapping[str, FeatureSpec]:
    """Return the gates of a version, sorted by name."""
    column = 0 if version <= V1_36 else 1
    changed = {name: specs[column] for name, specs in _CHANGED.items()}
    rows = {**_SAME, **{name: spec for name, spec in changed.items() if spec is not None}}
    return MappingProxyType(dict(sorted(rows.items())))


@cache
def gates_of_other_components(version: KubernetesVersion) -> frozenset[str]:
    """Return the names of a version's gates that mean nothing to a scheduler."""
    return frozenset((_IN_BOTH + (_UNTIL_1_36 if version <= V1_36 else _SINCE_1_37)).split())


def is_newer_gate(name: str, version: KubernetesVersion) -> bool:
    """Return whether a gate exists in a version after this one only."""
    return (
        version < V1_37
        and (name in gates_of(V1_37) or name in gates_of_other_components(V1_37))
        and not (name in gates_of(version) or name in gates_of_other_components(version))
    )
