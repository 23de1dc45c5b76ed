"""SeccompProfiles, and what of a pod says which of them it uses.

The scheduler's own pods lack these fields, which no other plugin reads: this one watches pods with
a type of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from proreus.objects import ApiStruct, ObjectMeta, Resource

_ANNOTATION = "seccomp.security.alpha.kubernetes.io"
_COUNTED_ACTIONS = ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG")


class SyscallRule(ApiStruct, frozen=True):
    """What happens at some system calls."""

    action: str = ""
    names: tuple[str, ...] = ()


class SeccompProfileSpec(ApiStruct, frozen=True):
    """The rules of a profile."""

    syscalls: tuple[SyscallRule, ...] = ()


class SeccompProfile(ApiStruct, frozen=True):
    """A profile of the security-profiles-operator."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SeccompProfileSpec = SeccompProfileSpec()

    def syscalls(self) -> frozenset[str]:
        """Return the names of the calls that are allowed or logged."""
        rules = (rule for rule in self.spec.syscalls if rule.action in _COUNTED_ACTIONS)
        return frozenset(name for rule in rules for name in rule.names)


class SeccompReference(ApiStruct, frozen=True):
    """A profile on the node, by its path."""

    type: str = ""
    localhost_profile: str | None = None


class SecurityContext(ApiStruct, frozen=True):
    """The security context of a pod or a container."""

    seccomp_profile: SeccompReference | None = None


class SecuredContainer(ApiStruct, frozen=True):
    """A container."""

    security_context: SecurityContext | None = None


class SecuredPodSpec(ApiStruct, frozen=True):
    """The spec of a pod."""

    node_name: str = ""
    containers: tuple[SecuredContainer, ...] = ()
    security_context: SecurityContext | None = None


class SecuredPodStatus(ApiStruct, frozen=True):
    """The status of a pod."""

    phase: str = ""


class SecuredPod(ApiStruct, frozen=True):
    """A pod, as far as the plugin reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SecuredPodSpec = SecuredPodSpec()
    status: SecuredPodStatus = SecuredPodStatus()

    def profiles(self) -> Iterator[str]:
        """Yield ``namespace/name`` of the profiles that the pod and its containers use."""
        spec = self.spec
        for context in (spec.security_context, *(one.security_context for one in spec.containers)):
            reference = None if context is None else context.seccomp_profile
            if reference is not None and reference.type == "Localhost":
                yield from _profile_of(reference.localhost_profile or "")
        for key, path in self.metadata.annotations.items():
            if _ANNOTATION in key:
                yield from _profile_of(path)
                return


def _profile_of(path: str) -> Iterator[str]:
    parts = path.split("/")
    if len(parts) >= 2:
        yield f"{parts[-2]}/{parts[-1].removesuffix('.json')}"


SECCOMP_PROFILES = Resource(
    "security-profiles-operator.x-k8s.io",
    "v1beta1",
    "seccompprofiles",
    "SeccompProfile",
    True,
    SeccompProfile,
    custom=True,
)
SECURED_PODS = Resource("", "v1", "pods", "Pod", True, SecuredPod, custom=True)
