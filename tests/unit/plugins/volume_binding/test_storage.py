"""What is kept of volumes and capacities."""

from __future__ import annotations

from proreus.objects.codec import decoder_for
from proreus.objects.storage import (
    CSI_STORAGE_CAPACITIES,
    PERSISTENT_VOLUMES,
    CSIStorageCapacity,
    PersistentVolume,
)
from proreus.plugins.volume_binding.storage import Storage
from proreus.testing import FakeHandle, make_node


def volume(number: int, *, bound: bool) -> PersistentVolume:
    spec = {"storageClassName": f"class-{number}"}
    if bound:
        spec["claimRef"] = {"namespace": "default", "name": f"claim-{number}"}
    return decoder_for(PersistentVolume).convert({"metadata": {"name": f"v{number}"}, "spec": spec})


def test_nothing_is_kept_of_volumes_that_are_gone() -> None:
    handle = FakeHandle((make_node("a"),))
    storage = Storage.of(handle)
    for number in range(10):
        handle.api.put(PERSISTENT_VOLUMES, volume(number, bound=False))
        assert list(storage.free_volumes(f"class-{number}"))
        handle.api.put(PERSISTENT_VOLUMES, volume(number, bound=True))
        assert not list(storage.free_volumes(f"class-{number}"))
        handle.api.remove("PersistentVolume", f"v{number}")
    assert not storage._free
    assert not storage._prebound


def test_nothing_is_kept_of_capacities_that_are_gone() -> None:
    handle = FakeHandle((make_node("a"),))
    capacities = Storage.of(handle).storage_capacities
    for number in range(10):
        name = f"class-{number}"
        capacity = decoder_for(CSIStorageCapacity).convert(
            {
                "metadata": {"name": f"c{number}", "namespace": "default"},
                "storageClassName": name,
                "capacity": "1Gi",
                "nodeTopology": {},
            }
        )
        handle.api.put(CSI_STORAGE_CAPACITIES, capacity)
        assert len(list(capacities.of(name))) == 1
        handle.api.remove("CSIStorageCapacity", f"default/c{number}")
        assert not list(capacities.of(name))
    assert not capacities._by_class
