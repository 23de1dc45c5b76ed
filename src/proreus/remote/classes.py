"""Makes the plugin class of an endpoint, with the extension points of its descriptor."""

from __future__ import annotations

from proreus.framework.plugin import Plugin
from proreus.remote.descriptor import POINTS
from proreus.remote.endpoint import Endpoint
from proreus.remote.node_points import RemoteFilter, RemotePreFilter, RemoteScore
from proreus.remote.plugin import RemotePlugin
from proreus.remote.pod_points import RemotePermit, RemotePostBind, RemotePreBind, RemoteReserve


def plugin_class(endpoint: Endpoint) -> type[Plugin]:
    """Return the class of the plugin at an endpoint, with the descriptor's extension points.

    The class of a slot has all points; at those that the slot's process lacks, it does nothing.
    """
    descriptor = endpoint.descriptor
    classes: dict[str, type[RemotePlugin]] = {
        "preFilter": RemotePreFilter,
        "filter": RemoteFilter,
        "score": RemoteScore,
        "reserve": RemoteReserve,
        "permit": RemotePermit,
        "preBind": RemotePreBind,
        "postBind": RemotePostBind,
    }
    points = POINTS if endpoint.is_slot else descriptor.points
    bases = tuple(classes[point] for point in points)
    place = endpoint.address or "a slot"
    namespace = {
        "name": descriptor.name,
        "endpoint": endpoint,
        "__doc__": f"The plugin at {place}.",
        "__module__": place,
    }
    return type(descriptor.name, bases, namespace)
