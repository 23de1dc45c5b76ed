"""Warns of profiles that are valid, but most likely not as their author wants them.

They are logged when a configuration is loaded, each once a profile, with the remedy.
"""

from __future__ import annotations

from proreus.base.logs import logger
from proreus.engine.cluster_events import NODE_ACTIONS
from proreus.engine.runtime.profile import Profile
from proreus.framework import events
from proreus.framework.events import ADD, DELETE, UPDATE, ClusterEvent
from proreus.framework.plugin import Plugin
from proreus.framework.pod_events import POD_ACTIONS
from proreus.framework.pod_group_plugin import PodGroupPostFilterPlugin, PodGroupSourcePlugin

log = logger(__name__)

_DEFAULT_BINDER = "DefaultBinder"
_IN_TREE = "proreus.plugins."
_WITHOUT_NODE = (events.UNSCHEDULABLE_POD, events.UNSCHEDULED_POD, events.TARGET_POD)
_OCCURRING = {events.POD: events.ASSIGNED_POD, events.UNSCHEDULABLE_POD: events.TARGET_POD}


def warn_of_binders_never_called(profile: Profile) -> None:
    """Warn of Bind plugins after DefaultBinder, which binds every pod."""
    names = [plugin.name for plugin in profile.bind]
    if _DEFAULT_BINDER not in names:
        return
    position = names.index(_DEFAULT_BINDER)
    if after := names[position + 1 :]:
        first = ", ".join(f"{{name: {name}}}" for name in (*after, _DEFAULT_BINDER))
        log.warning(
            "Bind plugins are never called: DefaultBinder comes before them and binds every pod",
            profile=profile.name,
            plugins=after,
            remedy=f'plugins.bind: {{disabled: [{{name: "*"}}], enabled: [{first}]}}',
        )


def warn_of_post_filters_of_pods_alone(profile: Profile) -> None:
    """Warn of PostFilter plugins that are not called for pod groups, which have a point of their
    own."""
    of_groups = {plugin.name for plugin in profile.pod_group_post_filter}
    for plugin in profile.post_filter:
        if plugin.name in of_groups:
            continue
        enable = f"plugins.podGroupPostFilter: {{enabled: [{{name: {plugin.name}}}]}}"
        log.warning(
            "A PostFilter plugin is not called for PodGroups",
            profile=profile.name,
            plugin=plugin.name,
            remedy=enable
            if isinstance(plugin, PodGroupPostFilterPlugin)
            else "inherit PodGroupPostFilterPlugin, if it can help a whole group",
        )


def warn_of_idle_registration(profile: str, plugin: Plugin, registered: ClusterEvent) -> None:
    """Warn of an event that a plugin registered and that cannot move a pod that it rejected.

    Not for in-tree plugins: these register what those of kube-scheduler do.
    """
    if type(plugin).__module__.startswith(_IN_TREE):
        return
    # New pods are events where plugins name groups, which they may complete.
    if isinstance(plugin, PodGroupSourcePlugin) and registered.resource == events.POD:
        return
    remedy = _remedy(registered)
    if remedy:
        log.warning(
            "Event registration has no effect",
            profile=profile,
            plugin=plugin.name,
            event=registered.label,
            remedy=remedy,
        )


def _remedy(registered: ClusterEvent) -> str:
    """Return the remedy for an event that never occurs; "" if it may occur."""
    resource, action = registered.resource, registered.action
    if resource == events.POD and action == ADD:
        return (
            "new pods that are not bound move no other pod; register "
            "ClusterEvent(ASSIGNED_POD, ADD) if pods that get a node help"
        )
    if resource in _WITHOUT_NODE and action & ADD and not action & UPDATE:
        return (
            "new pods that are not bound move no other pod, unless gate GangScheduling is on; "
            "register ClusterEvent(ASSIGNED_POD, ADD), or announce a plugin_event"
        )
    if resource in _WITHOUT_NODE and action == DELETE:
        return (
            "pods that are deleted before they are bound move no other pod; register "
            "ClusterEvent(ASSIGNED_POD, DELETE) if pods that leave a node help"
        )
    if resource == events.ANY or events.is_announced(resource):
        return ""
    known = _actions_of(resource)
    if any(registered.matches(ClusterEvent(_occurring(resource), one)) for one in known):
        return ""
    possible = ", ".join(ClusterEvent(resource, one).label for one in known)
    return f"no such event occurs; {resource} has {possible}"


def _actions_of(resource: str) -> tuple[int, ...]:
    if resource == events.NODE:
        return (ADD, *NODE_ACTIONS, DELETE)
    if resource in (events.POD, events.ASSIGNED_POD, *_WITHOUT_NODE):
        return (ADD, *POD_ACTIONS, DELETE)
    return (ADD, UPDATE, DELETE)


def _occurring(resource: str) -> str:
    return _OCCURRING.get(resource, resource)
