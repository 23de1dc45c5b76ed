"""Checks the messages that the sandbox decodes against Kubernetes' own, or writes them anew.

    python tests/lint/sandbox_protobuf.py            # is protobuf.txt what k8s.io/api says?
    python tests/lint/sandbox_protobuf.py --update

It reads generated.proto, and types.go for the names in JSON, of the modules that the control plane
of the tests pins. They are in Go's module cache once that is built.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SANDBOX = ROOT / "src" / "proreus" / "workbench" / "sandbox"
TABLE = SANDBOX / "protobuf.txt"
GO_MOD = ROOT / "tests" / "controlplane" / "binaries" / "kubernetes-1.37" / "go.mod"
MORE_ROOTS = ("policy.v1.Eviction", "meta.DeleteOptions")

_SCALARS = {"string": "", "bool": ":bool", "int32": ":int", "int64": ":int", "bytes": ":base64"}
_SPECIAL = {
    "meta.Time": "time",
    "meta.MicroTime": "microtime",
    "meta.FieldsV1": "json",
    "runtime.RawExtension": "json",
    "api.resource.Quantity": "quantity",
    "util.intstr.IntOrString": "int_or_string",
}
_HEADER = """\
# The messages of the served kinds, as `python tests/lint/sandbox_protobuf.py --update` reads them
# from k8s.io/api: the name in JSON, [] for a list, {} for a map, ! for a value that is kept though
# it is zero, = the number, : how it is read. A field called . is inlined.
"""

Fields = list[tuple[str, str, str, int]]
"""Label, type, name and number of each field of a message."""


def modules() -> dict[str, Path] | None:
    """Return the folders of the modules, or None if Go's module cache does not have them."""
    cache = Path(os.environ.get("GOMODCACHE") or Path.home() / "go" / "pkg" / "mod")
    found = {}
    for name in ("api", "apimachinery"):
        pinned = re.search(rf"k8s\.io/{name} (v\S+)", GO_MOD.read_text())
        if pinned is None or not (folder := cache / f"k8s.io/{name}@{pinned[1]}").is_dir():
            return None
        found[name] = folder
    return found


def table(folders: dict[str, Path]) -> str:
    """Return the content of protobuf.txt."""
    messages: dict[str, Fields] = {}
    names: dict[tuple[str, str], tuple[str, bool]] = {}
    for folder in folders.values():
        for file in folder.rglob("generated.proto"):
            package, found = _messages(file.read_text())
            messages |= found
            for source in file.parent.glob("*.go"):
                names |= _json_names(package, source.read_text())
    done: dict[str, str] = {}
    waiting = [*_roots(), *MORE_ROOTS]
    while waiting:
        name = waiting.pop()
        if name in messages and name not in done:
            parts = [_field(name, field, messages, names) for field in messages[name]]
            done[name] = f"{name}: {' '.join(parts)}"
            waiting += [part.partition(":")[2] for part in parts]
    return _HEADER + "".join(f"{done[name]}\n" for name in sorted(done))


def _roots() -> Iterator[str]:
    for line in (SANDBOX / "kinds.txt").read_text().splitlines():
        if not line.startswith("#"):
            api_version, _, kind, *_ = line.split()
            group, _, version = api_version.rpartition("/")
            yield ".".join(part for part in (group.partition(".")[0], version, kind) if part)


def _short(package: str) -> str:
    for prefix, short in (
        ("k8s.io.apimachinery.pkg.apis.meta.v1", "meta"),
        ("k8s.io.apimachinery.pkg.", ""),
        ("k8s.io.api.core.", ""),
        ("k8s.io.api.", ""),
    ):
        if package.startswith(prefix):
            return short + package.removeprefix(prefix)
    return package


def _messages(text: str) -> tuple[str, dict[str, Fields]]:
    text = re.sub(r"//.*", "", text)
    declared = re.search(r"^package ([\w.]+);", text, re.M)
    assert declared is not None
    package = _short(declared[1])
    return package, {
        f"{package}.{name}": [
            (label, type_, field, int(number))
            for label, type_, field, number in re.findall(
                r"^\s*(optional|repeated)?\s*(map<string, [\w.]+>|[\w.]+) (\w+) = (\d+);",
                body,
                re.M,
            )
        ]
        for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.M | re.S)
    }


def _json_names(package: str, source: str) -> dict[tuple[str, str], tuple[str, bool]]:
    """Return by message and field the name in JSON, "" for an embedded struct, and whether zero is
    written.
    """
    found = {}
    struct = ""
    for line in source.splitlines():
        if declared := re.match(r"type (\w+) struct", line):
            struct = f"{package}.{declared[1]}"
        elif tag := re.match(r'\s+(\w+) *(\*?).*`json:"([^",]*)([^"]*)" protobuf:"([^"]*)"', line):
            field, pointer, in_json, options, in_protobuf = tag.groups()
            named = re.search(r"name=(\w+)", in_protobuf)
            name = named[1] if named else field[0].lower() + field[1:]
            found[struct, name] = in_json, bool(pointer) or "omitempty" not in options
    return found


def _field(
    message: str,
    field: tuple[str, str, str, int],
    messages: dict[str, Fields],
    names: dict[tuple[str, str], tuple[str, bool]],
) -> str:
    label, type_, name, number = field
    is_map = re.fullmatch(r"map<string, ([\w.]+)>", type_)
    in_json, kept = names.get((message, name), (name, True))
    many = "{}" if is_map else "[]" if label == "repeated" else "!" if kept else ""
    type_ = is_map[1] if is_map else type_
    kind = _SCALARS.get(type_)
    if kind is None:
        many = many.removesuffix("!")
        package = message.rpartition(".")[0]
        full = _short(type_.removeprefix(".")) if "." in type_ else f"{package}.{type_}"
        # A list that is a type of its own, such as ExtraValue.
        texts = [one[:3] for one in messages[full]] == [("repeated", "string", "items")]
        kind = f":{'texts' if texts else _SPECIAL.get(full, full)}"
    return f"{in_json or '.'}{many}={number}{kind}"


def main(arguments: list[str]) -> int:
    """Run; return 1 if the table differs, or cannot be compared."""
    folders = modules()
    if folders is None:
        print(
            "Go's module cache does not have k8s.io/api: build the control plane", file=sys.stderr
        )
        return 1
    if arguments == ["--update"]:
        TABLE.write_text(table(folders))
    if TABLE.read_text() != table(folders):
        print(f"{TABLE} is stale", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
