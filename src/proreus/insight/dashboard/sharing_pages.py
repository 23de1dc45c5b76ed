"""The pages about pods that share: groups, quotas and queues, and preemption."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from proreus.framework.pod_info import PodInfo
from proreus.insight.dashboard import group_list, quota_list
from proreus.insight.dashboard.group_list import GroupRow, Groups
from proreus.insight.dashboard.held_pods import held_pods
from proreus.insight.dashboard.help_cache import HelpCache
from proreus.insight.dashboard.listing import SHOWN, Listing
from proreus.insight.dashboard.pod_list import short_reasons
from proreus.insight.dashboard.rendering import Renderer
from proreus.insight.explain.explanation import WhatWouldHelp
from proreus.insight.explain.preemptions import Preemption
from proreus.insight.explain.summaries import group_summary
from proreus.insight.page_sources import PageSources

if TYPE_CHECKING:
    from proreus.insight.dashboard.pages import PageFunction

_RECENT = 1_000


class GroupMember(msgspec.Struct):
    """A pod of a group. ``place``: its node, or its queue. ``reasons``: of its last attempt."""

    pod: str
    place: str
    placed: bool
    attempts: int
    reasons: str


class SharingPages:
    """Groups, quotas and preemption of a scheduler, by the first segment of the path."""

    def __init__(self, sources: PageSources, renderer: Renderer, helps: HelpCache) -> None:
        self._sources = sources
        self._render = renderer.page
        self._help = helps
        self._groups = Groups(sources.scheduler, sources.clock, sources.explainer.why_waiting)
        self.by_name: dict[str, PageFunction] = {
            "groups": partial(self._group_list, "groups.html"),
            "group-table": partial(self._group_list, "group_table.html"),
            "group": partial(self._group, "group.html"),
            "group-state": partial(self._group, "group_state.html"),
            "quotas": partial(self._quotas, "quotas.html"),
            "quota-table": partial(self._quotas, "quota_table.html"),
            "preemption": partial(self._preemption, "preemption.html"),
            "preemption-table": partial(self._preemption, "preemption_table.html"),
        }

    # ---- groups --------------------------------------------------------------------------------

    def _group_list(self, template: str, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the groups of pods that are scheduled together."""
        listing = Listing(request, "groups", group_list.COLUMNS, group_list.FILTERS)
        every = list(self._groups.rows())
        matching = [
            row
            for row in every
            if listing["q"] in row.name
            and listing["namespace"] in ("", row.namespace)
            and listing["state"] in ("", row.state)
        ]
        return self._render(
            template,
            here="groups",
            listing=listing,
            rows=listing.sorted(matching)[:SHOWN],
            count=len(matching),
            namespaces=sorted({row.namespace for row in every}),
            states=sorted({row.state for row in every}),
            held=held_pods(self._sources.scheduler, self._sources.clock)[:SHOWN],
        )

    def waiting_groups(self, limit: int) -> list[tuple[GroupRow, WhatWouldHelp | None]]:
        """Return the groups that wait longest, with what would help the pod that blocks each."""
        waiting = [row for row in self._groups.rows() if row.waits]
        waiting.sort(key=lambda row: row.since or 0.0)
        return [(row, self._help_for(row)) for row in waiting[:limit]]

    def _help_for(self, row: GroupRow) -> WhatWouldHelp | None:
        """Return changes that would help a group; its row gets the engine's reason."""
        if row.state != "waiting" or not row.blocking:
            return None
        explained = self._help.explanation(*row.blocking.split("/", 1))
        if explained.group is not None and explained.group.fits is not None:
            row.why = group_summary(explained.group)
        return explained.help

    def _group(self, template: str, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return one group: its pods, and why it waits."""
        row = self._groups.find(*rest) if len(rest) == 2 else None
        if row is None:
            return self._render("not_found.html", status=404, what="such group")
        members = self._groups.members(row)
        return self._render(
            template,
            here="groups",
            help=self._help_for(row),
            group=row,
            members=[self._member(*one) for one in members[:SHOWN]],
        )

    def _member(self, pod: PodInfo, node: str) -> GroupMember:
        queue = self._sources.scheduler.queue
        queued = queue.get(pod.key)
        if queued is None or node:
            return GroupMember(pod.key, node or "being scheduled", bool(node), 0, "")
        group = queue.pod_groups and queue.pod_groups.group_of(queued.pod)
        place = queue.queue_name_of(group.key if group else queued.key) or "incomplete"
        reasons = short_reasons(self._sources.explainer.why_waiting(pod.key))
        return GroupMember(pod.key, place, False, queued.attempts, reasons)

    # ---- quotas --------------------------------------------------------------------------------

    def _quotas(self, template: str, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return quotas and queues, their holders, and the pods that wait for them."""
        listing = Listing(request, "quotas", quota_list.COLUMNS, quota_list.FILTERS)
        every = quota_list.quota_rows(self._sources.scheduler)
        matching = [
            row
            for row in every
            if listing["q"] in row.use.quota and listing["profile"] in ("", row.profile)
        ]
        return self._render(
            template,
            here="quotas",
            listing=listing,
            rows=listing.sorted(matching)[:SHOWN],
            count=len(matching),
            claims=quota_list.claims_of(matching)[:SHOWN],
            any=bool(every),
            with_profiles=sorted({row.profile for row in every}),
        )

    # ---- preemption ----------------------------------------------------------------------------

    def _preemption(self, template: str, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the preemptors that wait for their victims to go, and earlier preemptions."""
        found = self._sources.explainer.preemptions(_RECENT)
        waiting = [one for one in found if one.waits]
        ended = [one for one in found if not one.waits]
        return self._render(
            template, here="preemption", waiting=waiting[:SHOWN], ended=ended[:SHOWN]
        )

    def evicting(self) -> list[Preemption]:
        """Return the preemptions whose pod has no node yet."""
        if not self._sources.scheduler.queue.nominator.nominated_nodes():
            return []
        return [one for one in self._sources.explainer.preemptions(_RECENT) if one.waits]
