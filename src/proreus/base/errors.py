"""The errors that proreus raises.

A rejection of a pod is a value (``framework.status.Status``), not one of these. Each error's text
is one sentence that its reader can act on.
"""


class ProreusError(Exception):
    """The base class of all errors that proreus raises."""


class ConfigError(ProreusError):
    """A configuration that cannot be used; ``problems`` holds every fault, not only the first.

    ``remedy``: what to write instead, where the text is kube-scheduler's and does not say it.
    ``file``: the file with the faults, which that text does not say either.
    """

    def __init__(self, *problems: str, remedy: str = "", file: str = "") -> None:
        self.problems: tuple[str, ...] = tuple(dict.fromkeys(problems))
        self.remedy = remedy
        self.file = file
        one = len(self.problems) == 1
        super().__init__(self.problems[0] if one else "[" + ", ".join(self.problems) + "]")

    @property
    def explained(self) -> str:
        """The text with the file and the remedy."""
        text = f"{self}; {self.remedy}" if self.remedy else str(self)
        return text if self.file in text else f"{self.file}: {text}"


def explained(error: BaseException) -> str:
    """Return the text of an error for a user, with the file and the remedy if it has them."""
    return error.explained if isinstance(error, ConfigError) else str(error)


class UnknownPluginSlot(ProreusError):
    """A plugin registers under a name for which there is no slot."""


class PluginError(ProreusError):
    """A plugin raised, or returned a result that its extension point does not allow."""

    def __init__(self, plugin: str, point: str, message: str) -> None:
        self.plugin = plugin
        self.point = point
        super().__init__(message)


class BudgetExceeded(ProreusError):
    """An attempt to schedule a pod has computed for longer than it may."""

    def __init__(self, plugin: str, point: str, used_seconds: float, most_seconds: float) -> None:
        self.plugin = plugin
        self.point = point
        super().__init__(
            f"scheduling attempt ended after {used_seconds:.3g}s of computation, at most "
            f'{most_seconds:g}s is allowed: plugin "{plugin}" was running at {point}'
        )


class DeadlineExceeded(ProreusError):
    """A plugin's method has waited for longer than it may."""

    def __init__(self, plugin: str, point: str, seconds: float) -> None:
        self.plugin = plugin
        self.point = point
        super().__init__(
            f'plugin "{plugin}" has not returned from {point} within {seconds:g}s and was cancelled'
        )


class TimeBudgetExceeded(ProreusError):
    """A plugin that is called node by node has used up its time for one pod."""

    def __init__(self, plugin: str, point: str, used_seconds: float, most_seconds: float) -> None:
        self.plugin = plugin
        self.point = point
        super().__init__(
            f'plugin "{plugin}" has taken {used_seconds * 1000:.0f}ms at {point}, at most '
            f"{most_seconds * 1000:g}ms is allowed; it was not called for further nodes"
        )


class ExtenderError(ProreusError):
    """An HTTP extender did not respond, or responded with an error or an unreadable body."""


class ApiError(ProreusError):
    """The apiserver responded with an error Status, or not at all (``status`` 0).

    ``status``: the HTTP status; ``reason``, ``message``: those of the Status.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        super().__init__(message)


class NotFound(ApiError):
    """404: the object does not exist."""


class Conflict(ApiError):
    """409: the object exists already, or has changed since it was read."""


class Gone(ApiError):
    """410: the resourceVersion is too old to resume from."""


class Unauthorized(ApiError):
    """401: the credentials are not, or no longer, valid."""


class Forbidden(ApiError):
    """403: RBAC does not allow it."""


class TooManyRequests(ApiError):
    """429: the apiserver limits requests; ``retry_after`` is in seconds."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 1.0) -> None:
        super().__init__(status, reason, message)
        self.retry_after = retry_after


class LeaseLost(ProreusError):
    """Another instance leads now, or the Lease could not be renewed in time."""


class CacheCorrupted(ProreusError):
    """The cache and the apiserver contradict each other; the process must end and start anew."""
