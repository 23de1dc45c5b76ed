"""A container's root file system, and processes in it as a kubelet starts them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Container:
    """The root file system in a folder, and what the image sets for its processes."""

    root: Path
    env: Mapping[str, str]
    user: str
    working_directory: str
    entry_point: Sequence[str]
    command: Sequence[str]

    def arguments(
        self,
        command: Sequence[str],
        *,
        read_only: bool = True,
        empty: Sequence[str] = (),
        mounts: Mapping[str, Path] = {},
    ) -> list[str]:
        """Return the command line that runs a command in namespaces of its own; it needs root.

        ``empty``: where to mount empty folders that can be written to. ``mounts``: folders to mount
        read-only, by their place in the container.
        """
        root = shlex.quote(str(self.root))
        lines = [f"mount --bind {root} {root}"]
        lines.append(f"mount --rbind /dev {root}/dev")
        lines.append(f"mount -t proc proc {root}/proc")
        for place in empty:
            target = self._mount_point(place)
            lines.append(f"mount -t tmpfs -o mode=1777 tmpfs {target}")
        for place, folder in mounts.items():
            target = self._mount_point(place)
            lines.append(f"mount --bind {shlex.quote(str(folder))} {target}")
            lines.append(f"mount -o remount,ro,bind {target}")
        if read_only:
            lines.append(f"mount -o remount,ro,bind {root}")
        pairs = [f"{name}={value}" for name, value in self.env.items()]
        inside = f'cd {shlex.quote(self.working_directory)} && exec "$@"'
        run = ["env", "-i", *pairs, "sh", "-c", inside, "sh", *command]
        lines.append(f"exec chroot --userspec={self.user} --groups= {root} {shlex.join(run)}")
        return [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child=SIGTERM"),
            *("sh", "-ec", "\n".join(lines)),
        ]

    def _mount_point(self, place: str) -> str:
        """Return a folder of the root file system, which a kubelet creates too."""
        folder = self.root / place.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return shlex.quote(str(folder))
