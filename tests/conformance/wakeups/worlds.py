"""All worlds by name."""

from conformance.wakeups import core, devices, storage
from conformance.wakeups.world import World

WORLDS = {
    "core": World(core.CORE),
    "storage": World(storage.STORAGE),
    "devices": World(devices.DEVICES),
}
