"""``proreus snapshot`` writes the objects that a scheduler reads to a file for ``proreus
simulate``.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from proreus.base.errors import ConfigError
from proreus.process.cli.documented_options import documented_options
from proreus.process.cli.kubeconfig import load_credentials

if TYPE_CHECKING:
    from proreus.insight.snapshots.cluster_objects import ClusterObjects
    from proreus.insight.snapshots.object_files import SnapshotInfo


@click.command("snapshot", short_help="Write a cluster's objects to a file, for simulate.")
@documented_options
def command(
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    server: str = "",
    redact: bool = False,
    keep_label: tuple[str, ...] = (),
    keep_annotation: tuple[str, ...] = (),
    from_: tuple[Path, ...] = (),
    recording: Path | None = None,
    output: Annotated[Path, click.Path(path_type=Path, dir_okay=False)] = Path("-"),
) -> None:
    """Write all objects that a scheduler reads to a gzipped List.

    Only reading rights are needed, those of a scheduler. Env, commands, Secrets and annotations
    with manifests in them are never in the file.

    --kubeconfig
        Default: KUBECONFIG, ~/.kube/config, or the service account of the pod it runs in.
    --context
        Context of the kubeconfig. Default: its current context.
    --server
        URL of the apiserver, instead of the kubeconfig's.
    --redact
        Replace all texts, in a way that keeps all decisions.
    --keep-label KEY
        With --redact, keep this label and its values, since a configuration or a plugin names it;
        the name of a scheduler too; may be repeated.
    --keep-annotation KEY
        Keep this annotation too, for plugins of your own; may be repeated. Default: those that
        in-tree plugins read.
    --from FILE
        Read files instead of an apiserver, such as one from kubectl get -o json; may be repeated.
    --recording FILE
        With --redact, convert what proreus run --record-arrivals has recorded, instead of a
        cluster.
    -o, --output
        File to write. Default: standard output.
    """
    from rich.console import Console

    progress = Console(stderr=True)
    if recording is not None:
        _redact_recording(recording, redact, from_, keep_label, output, progress)
        return
    if str(output) == "-" and sys.stdout.isatty():
        raise ConfigError("the snapshot is binary: redirect it, or name a file with --output")
    with progress.status("reading") as status:
        if from_:
            objects, info = _read(from_, frozenset(keep_annotation))
        else:
            work = _take(kubeconfig, context, server, frozenset(keep_annotation), status)
            objects, info = asyncio.run(work)
        if redact:
            status.update("redacting")
            objects, info = _redacted(objects, info, keep_label)
        status.update("writing")
        _write(objects, info, output)
    _report(objects, info, progress)


def _redact_recording(
    recording: Path,
    redact: bool,
    files: tuple[Path, ...],
    labels: tuple[str, ...],
    output: Path,
    progress: Any,
) -> None:
    from proreus.workbench.simulation.recording_redaction import redact_recording

    if not redact or files or str(output) == "-":
        raise click.UsageError("--recording needs --redact and --output, and goes without --from")
    if output.exists() and output.samefile(recording):
        raise click.UsageError("--output is the recording itself")
    with progress.status("redacting"):
        events = redact_recording(recording, output, labels)
    progress.print(f"{events:,} events", highlight=False)


async def _take(
    kubeconfig: Path | None,
    context: str | None,
    server: str,
    annotations: frozenset[str],
    status: Any,
) -> tuple[ClusterObjects, SnapshotInfo]:
    from proreus.client.http.session import ApiClient
    from proreus.insight.snapshots.snapshot import take_snapshot

    credentials = await load_credentials(str(kubeconfig or ""), context, server)
    async with ApiClient(credentials) as client:
        return await take_snapshot(
            client, annotations, lambda kind: status.update(f"listing {kind}")
        )


def _read(
    files: tuple[Path, ...], annotations: frozenset[str]
) -> tuple[ClusterObjects, SnapshotInfo]:
    from proreus.insight.snapshots.cluster_objects import ClusterObjects
    from proreus.insight.snapshots.object_files import SnapshotInfo, read_cluster
    from proreus.insight.snapshots.snapshot import KEPT_ANNOTATIONS, without_secrets

    read = read_cluster(files)
    objects = ClusterObjects(read.version)
    for resource, obj in read:
        objects.put(resource, without_secrets(obj, KEPT_ANNOTATIONS | annotations))
    return objects, SnapshotInfo(kubernetes_version=str(read.version or ""))


def _redacted(
    objects: ClusterObjects, info: SnapshotInfo, labels: tuple[str, ...]
) -> tuple[ClusterObjects, SnapshotInfo]:
    import msgspec

    from proreus.workbench.simulation.redaction import redact, replacements_for

    redacted = redact(objects, replacements_for(objects, labels))
    return redacted, msgspec.structs.replace(info, redacted=True, taken_at="")


def _write(objects: ClusterObjects, info: SnapshotInfo, output: Path) -> None:
    from proreus.insight.snapshots.snapshot import write_snapshot

    if str(output) == "-":
        write_snapshot(objects, info, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with output.open("wb") as file:
            write_snapshot(objects, info, file)
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror or error}") from error


def _report(objects: ClusterObjects, info: SnapshotInfo, console: Any) -> None:
    from proreus.objects.kinds import NODES, PODS

    nodes, pods = len(objects.of(NODES)), len(objects.of(PODS))
    console.print(f"{nodes:,} nodes, {pods:,} pods, {len(objects):,} objects", highlight=False)
    if info.unavailable:
        kinds = ", ".join(info.unavailable)
        console.print(f"skipped (not served, or no right to list): {kinds}", highlight=False)
