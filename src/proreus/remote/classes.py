"""From an endpoint to a plugin class: which points it has is known only from its descriptor."""

from __future__ import annotations

from proreus.framework.plugin import Plugin
from proreus.remote.endpoint import Endpoint
from proreus.remote.node_points import (
    RemoteFilter,
    RemoteNormalizedScore,
    RemotePreFilter,
    RemoteScore,
)
from proreus.remote.plugin import RemotePlugin
from proreus.remote.pod_points import RemotePermit, RemotePostBind, RemotePreBind, RemoteReserve


def plugin_class(endpoint: Endpoint) -> type[Plugin]:
    """Return the class of the plugin at an endpoint: its points are the descriptor's."""
    descriptor = endpoint.descriptor
    classes: dict[str, type[RemotePlugin]] = {
        "preFilter": RemotePreFilter,
        "filter": RemoteFilter,
        "score": RemoteScore if descriptor.normalize == "none" else RemoteNormalizedScore,
        "reserve": RemoteReserve,
        "permit": RemotePermit,
        "preBind": RemotePreBind,
        "postBind": RemotePostBind,
    }
    bases = tuple(classes[point] for point in descriptor.points)
    about = {
        "name": descriptor.name,
        "endpoint": endpoint,
        "__doc__": f"The plugin at {endpoint.address}.",
        "__module__": endpoint.address,
    }
    return type(descriptor.name, bases, about)
