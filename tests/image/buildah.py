"""Builds an image from its Dockerfile by Debian's buildah: no daemon, no registry.

RUN steps are processes with another root (isolation chroot), and layers are copies of folders
(storage driver vfs), so that it works where no namespaces or overlays may be made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from image.container import Container

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PACKAGES = "python3,python3-venv,ca-certificates"
_SUITE = "bookworm"  # its Python is 3.11


class MissingTool(Exception):
    """A program or a right is missing; the text says which."""


class Buildah:
    """Images and containers in a storage of their own, in a folder."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise MissingTool("buildah's chroot isolation needs root")
        if shutil.which("buildah") is None:
            raise MissingTool("buildah is not installed (on Debian: apt install buildah)")
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, image: str) -> bool:
        """Return whether the storage has an image."""
        return image in self._read("images", "--format", "{{.Name}}:{{.Tag}}").split()

    def make_base(self, image: str) -> None:
        """Make an image of Debian's packages that stands for Docker's image of Python."""
        tree = self._folder / "base"
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(_bootstrap(tree), check=True)
        for name in ("python", "python3"):
            (tree / "usr/local/bin" / name).symlink_to("/usr/bin/python3")
        packed = self._folder / "base.tar"
        # devices are the engine's
        pack = ["tar", "-C", str(tree), "--exclude=./dev/*", "-cf", str(packed), "."]
        subprocess.run(pack, check=True)
        container = self._read("from", "scratch")
        self._run("add", "--quiet", container, str(packed), "/")
        self._run("config", "--env", f"PATH={PATH}", "--cmd", "python3", container)
        self._run("commit", "--quiet", "--rm", container, image)
        packed.unlink()
        shutil.rmtree(tree)

    def build(self, context: Path, image: str) -> None:
        """Build a folder with a Dockerfile; pip and apt get this machine's network settings."""
        settings = self._folder / "pip.conf"
        settings.write_text(_pip_settings())
        mounts = [f"{settings}:/etc/pip.conf:ro", f"{CERTIFICATES}:{CERTIFICATES}:ro"]
        volumes = [f"--volume={mount}" for mount in mounts]
        self._run("build", "--pull-never", "--tag", image, *volumes, str(context))

    @contextmanager
    def container(self, image: str) -> Iterator[Container]:
        """Give a container of an image, its root file system in a folder."""
        name = self._read("from", "--pull-never", image)
        try:
            root = Path(self._read("mount", name))
            config = json.loads(self._read("inspect", "--type", "image", image))["OCIv1"]["config"]
            yield Container(
                root=root,
                env=dict(pair.split("=", 1) for pair in config["Env"]),
                user=config["User"],
                working_directory=config.get("WorkingDir") or "/",
                entry_point=config["Entrypoint"],
                command=config["Cmd"],
            )
        finally:
            self._run("rm", name)

    def _arguments(self, *command: str) -> list[str]:
        folders = [f"--root={self._folder / 'storage'}", f"--runroot={self._folder / 'run'}"]
        return ["buildah", *folders, "--storage-driver=vfs", *command]

    def _run(self, *command: str) -> None:
        print("buildah", *command, flush=True)
        environment = os.environ | {"BUILDAH_ISOLATION": "chroot"}
        subprocess.run(
            self._arguments(*command), check=True, env=environment, stdin=subprocess.DEVNULL
        )

    def _read(self, *command: str) -> str:
        done = subprocess.run(self._arguments(*command), check=True, stdout=subprocess.PIPE)
        return done.stdout.decode().strip()


def _bootstrap(target: Path) -> list[str]:
    if shutil.which("mmdebstrap"):
        options = ["--variant=minbase", "--quiet", f"--include={_PACKAGES}"]
        return ["mmdebstrap", *options, _SUITE, str(target)]
    if shutil.which("debootstrap"):
        return ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(target)]
    raise MissingTool(
        "neither mmdebstrap nor debootstrap is installed (on Debian: apt install mmdebstrap)"
    )


def _pip_settings() -> str:
    """Return this machine's variables of pip as a configuration file.

    Without local wheels, which would have other hashes.
    """
    lines = ["[global]", f"cert = {CERTIFICATES}"]
    for name, value in os.environ.items():
        option = name.removeprefix("PIP_").lower().replace("_", "-")
        if name.startswith("PIP_") and option not in ("cert", "find-links"):
            lines.append(f"{option} = {value}")
    return "\n".join(lines) + "\n"
