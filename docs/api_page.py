"""Writes docs/api.md, the page of the public API, from ``__all__`` and docstrings.

Usage: ``python docs/api_page.py > docs/api.md`` (``make api-page``). griffe reads the source, and
imports nothing. What is public is decided by ``__all__`` and here: ``PAGE`` orders the names, and
``NOT_PUBLIC`` leaves out members of public classes that are for proreus itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import griffe

SOURCES = Path(__file__).resolve().parents[1] / "src"

PROMISE = """\
# Public API

The names that plugins and their tests may import and use, with their docstrings
(`make api-page`). [writing-plugins.md](writing-plugins.md) and
[testing-plugins.md](testing-plugins.md) are the guides, [recipes.md](recipes.md) has patterns.

## Stability

- **This page is the public API**: these modules, the names in them, and the listed
  members. Everything else may change in any release, with or without an underscore: other
  modules (including those that define public names), unlisted members, reprs, and
  the texts of log lines and errors.
- Versions are semantic. Before 1.0 a minor release (0.2, 0.3) may remove or change public names,
  a patch release does not; from 1.0 on only a major release does.
- **Removals are announced**: a name is deprecated in one minor release before it is removed in
  a later one. Until then it works; its entry here begins with "Deprecated" and names the
  replacement, its use raises a `DeprecationWarning` (pytest shows it; in a process
  `PYTHONWARNINGS=default` does), and [CHANGELOG.md](../CHANGELOG.md) lists it under "Deprecated".
- Additions are no break: new optional parameters, members, extension points and constants. So pass
  optional parameters by name, and do not give your attributes the names of `Plugin`'s.
- The same rule holds for semantics: the time of a method's call, and the effect of its result.
  Behaviour that follows kube-scheduler changes with it, and the changelog says so.
- Features of an alpha gate of Kubernetes (marked as such) may change in any minor release.
- The configuration file and the metrics follow kube-scheduler's ([operating.md](operating.md)).
  The protocol of plugins in other processes has [its own page](out-of-process-plugins.md).
"""


class Section(NamedTuple):
    """A heading of the page, and the public names of a module below it, in this order."""

    title: str
    module: str
    names: str
    text: str = ""


PAGE = (
    Section(
        "Plugins",
        "proreus.framework",
        "Plugin PreEnqueuePlugin QueueSortPlugin PreFilterPlugin FilterPlugin FeasibleFilterPlugin "
        "PostFilterPlugin "
        "PreScorePlugin ScorePlugin ReservePlugin PermitPlugin PreBindPlugin BindPlugin "
        "PostBindPlugin BackgroundPlugin FetchingPlugin PodSourcePlugin QuotaPlugin QuotaUse "
        "MIN_SCORE MAX_SCORE MAX_PERMIT_WAIT_SECONDS is_provided default_normalize",
        "Base classes; a plugin inherits from one or more of them.",
    ),
    Section(
        "Arguments",
        "proreus.framework",
        "PluginArgs ConfigModel Seconds FeatureGates field_errors",
    ),
    Section(
        "Pods and nodes",
        "proreus.framework",
        "PodInfo PodRequests QueuedPodInfo QueueingParams HostPort NodeInfo NodeTable "
        "IntArray BoolArray CodeArray Rows",
        "The inputs of plugins, which must not change them. Amounts are int64: milli-CPU, bytes, "
        "or counts.",
    ),
    Section(
        "State and results",
        "proreus.framework",
        "CycleState Status Code Verdicts PostFilterResult Victims NominatingInfo",
    ),
    Section(
        "Handle",
        "proreus.framework",
        "Handle PluginsRunner PodProvider PodActivator PodsInBinding ApiWriter EventRecorder "
        "WaitingPod Nominator Clock",
    ),
    Section(
        "Events that wake pods",
        "proreus.framework",
        "ClusterEvent plugin_event events",
        "For `events_to_register`.",
    ),
    Section(
        "Metrics and logs",
        "proreus.framework",
        "MetricsRegistry Family Counter Gauge Histogram logger Logger",
        "`handle.metrics` is a `MetricsRegistry`.",
    ),
    Section("Errors", "proreus.framework", "ProreusError ConfigError ApiError NotFound Conflict"),
    Section(
        "PodGroups",
        "proreus.framework",
        "PlacementGeneratePlugin PlacementFeasiblePlugin PlacementScorePlugin "
        "PodGroupSourcePlugin PodGroupPostFilterPlugin PodGroupInfo Placement OrderedPlacements "
        "PlacementProgress PodGroupAssignments PodGroupDescription "
        "PlacedPod ProposedAssignment SchedulePodGroup PodGroupPostFilterResult PodGroupStates "
        "PodGroupState PodGroupSchedulingCycle POD_GROUP_SCHEDULING_CYCLE",
        "Beta: behind kube-scheduler's gate GenericWorkload, and may change with it.",
    ),
    Section(
        "Kinds",
        "proreus.objects",
        "Resource PODS NODES NAMESPACES SERVICES REPLICATION_CONTROLLERS REPLICA_SETS "
        "STATEFUL_SETS POD_DISRUPTION_BUDGETS PERSISTENT_VOLUMES PERSISTENT_VOLUME_CLAIMS "
        "STORAGE_CLASSES CSI_NODES CSI_DRIVERS CSI_STORAGE_CAPACITIES VOLUME_ATTACHMENTS "
        "RESOURCE_CLAIMS RESOURCE_SLICES DEVICE_CLASSES POD_GROUPS PRIORITY_CLASSES",
        "For `handle.store`, `handle.on_change` and `handle.api`. Any other kind is a `Resource` "
        "that a plugin creates, as [low-cpu](../examples/low-cpu/) does. A scheduler always "
        "watches pods, nodes and namespaces, and other kinds if one of its plugins needs them.",
    ),
    Section(
        "Objects",
        "proreus.objects",
        "ApiStruct ApiObject Untyped ObjectMeta UnownedObjectMeta OwnerReference Pod PodSpec "
        "PodStatus PodCondition Container ContainerPort ContainerStatus ResourceRequirements "
        "Volume Affinity NodeAffinity PodAffinity PodAffinityTerm TopologySpreadConstraint "
        "Toleration Node NodeSpec NodeStatus NodeCondition Taint LabelSelector "
        "LabelSelectorRequirement NodeSelector NodeSelectorTerm Namespace Service "
        "ReplicationController ReplicaSet StatefulSet PodDisruptionBudget PersistentVolume "
        "PersistentVolumeClaim StorageClass CSINode CSIDriver CSIStorageCapacity "
        "VolumeAttachment ResourceClaim ResourceSlice DeviceClass PodGroup PriorityClass",
        "Frozen msgspec Structs with the fields that a scheduler reads, in snake_case; `Resource` "
        "in [Kinds](#kinds) says how to read more. If the type of a field has no entry here, its "
        "fields are public, but not its name.",
    ),
    Section(
        "Functions on objects",
        "proreus.objects",
        "key_of controller_of condition_of true_condition_of POD_SCHEDULED parse_amount tolerates "
        "Selector Requirement parse_label_selector selector_of_map "
        "LABEL_HOSTNAME LABEL_ZONE LABEL_REGION",
    ),
    Section(
        "Preemption",
        "proreus.plugins.default_preemption",
        "DefaultPreemption DefaultPreemptionArgs NodeDryRun UnitDryRun Candidate "
        "candidate_of_units DomainVictim DomainVictims DisruptionBudgets sorted_by_importance",
        "For plugins that replace it at PostFilter with another choice of victims, as the add-on "
        "[PreemptionToleration](addons/preemption-toleration.md) does.",
    ),
    Section(
        "Testing kit",
        "proreus.testing",
        "Harness HarnessOptions Outcome Event BlockingCallWarning make_pod make_node make_table "
        "make_plugin FakeHandle",
    ),
    Section(
        "Agreement of both forms",
        "proreus.testing.agreement",
        "agree assert_agreement assert_row_local assert_sharing",
        "Needs hypothesis: `pip install hypothesis`.",
    ),
    Section(
        "Random clusters",
        "proreus.testing.strategies",
        "Cluster Change Vocabulary clusters nodes pods changes tolerations node_affinities "
        "node_selector_terms inter_pod_clusters pods_with_inter_pod_terms pod_affinities "
        "affinity_terms spread_constraints label_selectors label_maps volume_clusters "
        "device_clusters",
        "Strategies for hypothesis.",
    ),
)

NOT_PUBLIC = {
    "Plugin": "fetches evaluations health",
    "FetchingPlugin": "fetches",
    "PreFilterPlugin": "has_pre_filter_extensions",
    "FilterPlugin": "columnar_filter per_node_filter",
    "ScorePlugin": "columnar_score per_node_score normalizes",
    "ConfigModel": "go_type model_config",
    "PluginArgs": "checked_at_construction arguments_without_effect points_without_effect",
    "FeatureGates": "__init__ changed parse from_list",
    "PodInfo": "__init__ node_affinity resources_options selector_key",
    "PodRequests": "__init__ pod",
    "QueueingParams": "__init__ cost_seconds consecutive_overruns costly "
    "was_flushed_from_unschedulable flush_timestamp",
    "QueuedPodInfo": "__init__ queued_pods",
    "NodeInfo": "__init__ order pvc_ref_counts set_node add_pod replace_pod remove_pod clone",
    "NodeTable": "__init__ size capacity infos images image_set image_sets changes node_changes "
    "position changes_since pod_index count_pods count_selected "
    "count_selected_by_all count_terms add_pod remove_pod "
    "fork validate "
    "record_change",
    "CycleState": "skip_filter skip_score timer budget binding_plugins",
    "Verdicts": "ids statuses plugin id_of merge take copy",
    "Selector": "__init__",
    "Requirement": "__init__",
    "DomainVictim": "__init__",
    "PluginsRunner": "dry_run_preemption dry_run_key extender_may_preempt "
    "preempt_through_extenders",
    "Nominator": "changes_since",
    "DefaultPreemption": "__init__ events_to_register pre_enqueue num_candidates "
    "pod_group_post_filter",
    "DefaultPreemptionArgs": "go_type problems",
    "NodeDryRun": "__init__",
    "Candidate": "cost earliest_start_time has_unstarted disruptions",
    "DisruptionBudgets": "__init__ filter_units_with_pdb_violation reprieve_order",
    "ClusterEvent": "wildcard",
    "MetricsRegistry": "__init__ disabled unexpected_categorizations families reset",
    "Family": "__init__ description values histograms reset",
    "Counter": "__init__ reset",
    "Gauge": "__init__ reset",
    "Histogram": "__init__ reset counts bounds",
    "Logger": "__init__ threshold",
    "Harness": "scheduler",
    "FakeHandle": "dry_run_preemption dry_run_key extender_may_preempt preempt_through_extenders",
}
"""Members without an underscore that are nevertheless for proreus itself."""


def main() -> None:
    """Print the page."""
    print(page(), end="")


def page() -> str:
    """Return the whole page."""
    package = griffe.load("proreus", search_paths=[SOURCES], allow_inspection=False)
    lines, module = [PROMISE, *_contents(), ""], ""
    for section in PAGE:
        if section.module != module:
            module = section.module
            about = _paragraphs(package[module.removeprefix("proreus.")])[0]
            lines += [f"# `{module}`", "", about, ""]
        lines += [f"## {section.title}", ""]
        if section.text:
            lines += [section.text, ""]
        for name in section.names.split():
            found = package[f"{module.removeprefix('proreus.')}.{name}"]
            entry = list(_entry(name, _resolved(found)))
            lines += [""] if lines[-1] and entry[0].startswith("#") else []
            lines += entry
        lines += [""] if lines[-1] else []
    return "\n".join(lines).rstrip() + "\n"


def _contents() -> Iterator[str]:
    """Yield a line of links for each module."""
    for module in dict.fromkeys(section.module for section in PAGE):
        titles = [section.title for section in PAGE if section.module == module]
        links = [f"[{title}](#{title.lower().replace(' ', '-')})" for title in titles]
        yield f"- `{module}`: {', '.join(links)}"


def _entry(name: str, found: griffe.Object) -> Iterator[str]:
    """Yield the lines of a public name."""
    if found.is_module:
        yield from (f"### `{name}`", "", _text(found), "")
        exported = [str(one) for one in found.exports or ()]
        own = [found[one] for one in found.members if one in exported and not found[one].is_alias]
        yield from (_item(one.name, one) for one in own)
        yield ""
    elif isinstance(found, griffe.Class):
        public = (base for base in _public_bases(found) if base not in (*_STRUCTS, *_INNER_BASES))
        bases = ", ".join(f"`{base}`" for base in public)
        first = f"`{_constructor(found)}`" + (f", inherits from {bases}" if bases else "")
        yield from (f"### `{name}`", "", first, "", _text(found), "")
        members = list(public_members(found))
        # Fields of API objects are Kubernetes' own: one line for all that need no comment.
        plain = [one for one in members if _is_struct(found) and one.docstring is None]
        if plain:
            fields = ", ".join(f"`{_head(one.name, one)}`" for one in plain)
            yield from (f"Fields: {fields}.", "")
        if len(plain) < len(members):
            yield from (_item(one.name, one) for one in members if one not in plain)
            yield ""
    else:
        yield _item(name, found)


_STRUCTS = ("Struct", "msgspec.Struct")
_INNER_BASES = ("AttributeHints",)
_NOT_TO_BE_MADE = ("ApiStruct", "DomainVictim", "QueueingParams", "Requirement", "Selector")
"""Structs whose constructor is not public."""


def _is_struct(found: griffe.Class) -> bool:
    return any("ApiStruct" in base for base in _public_bases(found))


def _private_bases(owner: griffe.Class) -> list[griffe.Class]:
    """Return the base classes that readers do not know: their members are listed as its own."""
    found = (owner.module[str(base)] for base in owner.bases if str(base).startswith("_"))
    return [one for one in found if isinstance(one, griffe.Class)]


def _public_bases(owner: griffe.Class) -> list[str]:
    """Return the names of a class's bases, with those of private bases in their place."""
    own = [str(base) for base in owner.bases if not str(base).startswith("_")]
    return own + [name for base in _private_bases(owner) for name in _public_bases(base)]


def public_members(owner: griffe.Class) -> Iterator[griffe.Object]:
    """Yield the members of a class that the page lists."""
    hidden = NOT_PUBLIC.get(owner.name, "").split()
    inherited = {name: one for base in _private_bases(owner) for name, one in base.members.items()}
    for name, member in (inherited | owner.members).items():
        if not name.startswith("_") and name not in hidden and not member.is_alias:
            yield _resolved(member)


def _is_field(member: griffe.Object | griffe.Alias) -> bool:
    """Whether a member of a Struct is a field, which its constructor takes."""
    found = _resolved(member)
    if not isinstance(found, griffe.Attribute) or found.annotation is None:
        return False
    return "property" not in found.labels


def _constructor(found: griffe.Class) -> str:
    init = found.members.get("__init__")
    if "__init__" in NOT_PUBLIC.get(found.name, "").split():
        return f"class {found.name}"
    if init is not None:
        return _signature(found.name, _resolved(init), returns=False)
    is_struct = any(str(base) in _STRUCTS for base in found.bases)
    fields = [one for one in found.members.values() if is_struct and _is_field(one)]
    texts = [_head(one.name, _resolved(one)) for one in fields]
    return f"{found.name}({', '.join(texts)})" if fields else f"class {found.name}"


def _signature(name: str, function: griffe.Object, returns: bool = True) -> str:
    assert isinstance(function, griffe.Function)
    text = function.signature(name=name, return_type=returns)
    text = re.sub(r"\((self|cls)(, |\))", lambda m: "(" + m[2].removeprefix(", "), text)
    if any("composite" in str(decorator.value) for decorator in function.decorators):
        # hypothesis passes the first argument, and callers get a strategy.
        text = re.sub(r"\(draw: st.DrawFn(, )?", "(", text)
        text = re.sub(r"-> (.*)$", r"-> st.SearchStrategy[\1]", text)
    text = re.sub(r"= _[A-Z_]+", "= …", text)
    word = "async " if "async" in function.labels else ""
    return f"{word}{text}"


def _item(name: str, member: griffe.Object) -> str:
    """Return the list item of a function, attribute or constant."""
    about = indent(_text(member), "  ")
    return f"- `{_head(name, member)}`" + (f"\\\n{about}" if about else "")


def _head(name: str, member: griffe.Object) -> str:
    if isinstance(member, griffe.Function):
        return _signature(name, member)
    if not isinstance(member, griffe.Attribute):
        return name
    head = name
    if member.annotation is not None:
        head += f": {_unwrapped(str(member.annotation))}"
    # What a constructor assigns says nothing: it is a parameter, or computed.
    constant = "instance-attribute" not in member.labels or "class-attribute" in member.labels
    if member.value is not None and "property" not in member.labels and constant:
        value = _value(member)
        head += "" if re.search(r"\b_[a-z]", value) else f" = {value}"
    return head


def _value(member: griffe.Attribute) -> str:
    """Return a value as text, with constants of its own module replaced by their values."""

    def constant(match: re.Match[str]) -> str:
        found = member.module.members.get(match[0])
        return str(found.value) if isinstance(found, griffe.Attribute) else match[0]

    value = " ".join(str(member.value).split())
    value = re.sub(r"^(?:msgspec\.)?field\(default_factory=(\w+)\)$", r"\1()", value)
    return re.sub(r"\b[A-Z_]*_GROUP\b", constant, value)


def _unwrapped(annotation: str) -> str:
    """Return an annotation without ``ClassVar``, which every attribute of a plugin class is."""
    return re.sub(r"^ClassVar\[(.*)\]$", r"\1", annotation)


def _text(found: griffe.Object) -> str:
    return "\n\n".join(_paragraphs(found))


def _paragraphs(found: griffe.Object | griffe.Alias) -> list[str]:
    """Return a docstring's paragraphs in Markdown; indented examples become fenced blocks."""
    if found.docstring is None:
        return []
    text = found.docstring.value.replace("``", "`")
    # Invariants are about the inside.
    paragraphs = [one for one in text.split("\n\n") if not one.startswith("Invariants:")]
    return [
        "```python\n" + "\n".join(line[4:] for line in one.splitlines()) + "\n```"
        if one.startswith("    ")
        else one
        for one in paragraphs
    ]


def _resolved(found: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return what an import leads to."""
    return found.final_target if isinstance(found, griffe.Alias) else found


if __name__ == "__main__":
    main()
