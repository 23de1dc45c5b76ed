"""The pages and parts of pages, by name: each a function of a request and the rest of its path.

They read the scheduler's own state. ``node_pages`` and ``sharing_pages`` have further ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import web

from proreus.base.clock import RealClock
from proreus.insight.dashboard.help_cache import HelpCache
from proreus.insight.dashboard.listing import Listing
from proreus.insight.dashboard.node_pages import NodePages
from proreus.insight.dashboard.pod_list import COLUMNS, FILTERS, list_pods, short_reasons
from proreus.insight.dashboard.rendering import Renderer
from proreus.insight.dashboard.score_bars import score_bars
from proreus.insight.dashboard.sharing_pages import SharingPages
from proreus.insight.dashboard.what_if import WhatIf
from proreus.insight.explain.explanation import QueueReason, WhatWouldHelp
from proreus.insight.page_sources import PageSources

PageFunction = Callable[[web.BaseRequest, list[str]], web.Response | Awaitable[web.Response]]

_REASONS_WITH_HELP = 5
_GROUPS_SHOWN = 5


class Pages:
    """All pages of a scheduler. ``by_name`` has them by the first segment of the path after
    /dashboard/.

    ``with_forms``: those that take a POST.
    """

    with_forms = frozenset({"what-if"})

    def __init__(self, sources: PageSources, renderer: Renderer) -> None:
        self._sources = sources
        self._render = renderer.page
        self._help = HelpCache(sources.explainer, RealClock())
        self._sharing = SharingPages(sources, renderer, self._help)
        # A page, and the part of it that is fetched again every few seconds, have the same values.
        self.by_name: dict[str, PageFunction] = {
            "": partial(self._overview, "overview.html"),
            "state": partial(self._overview, "state.html"),
            "pods": partial(self._pods, "pods.html"),
            "pod-table": partial(self._pods, "pod_table.html"),
            "pod": partial(self._pod, "pod.html"),
            "pod-state": partial(self._pod, "pod_state.html"),
            **NodePages(sources, renderer).by_name,
            **self._sharing.by_name,
            "what-if": WhatIf(sources, renderer).respond,
        }

    # ---- overview ------------------------------------------------------------------------------

    def _overview(self, template: str, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return why pods wait, the charts, and the state of the scheduler."""
        sources = self._sources
        queue = sources.explainer.queue()
        return self._render(
            template,
            here="overview",
            queue=queue,
            reasons=[self._reason(n, one) for n, one in enumerate(queue.reasons)],
            waiting_groups=self._sharing.waiting_groups(_GROUPS_SHOWN),
            evicting=self._sharing.evicting(),
            synced=sources.synced(),
            reload=sources.last_reload(),
            plugins=sources.plugin_health().get("plugins", []),
            profiles=list(sources.scheduler.profiles),
            nodes=len(sources.scheduler.cache.table),
            pods=len(sources.pods),
        )

    def _reason(
        self, number: int, reason: QueueReason
    ) -> tuple[QueueReason, str, WhatWouldHelp | None]:
        """Return a reason with the text for its longest waiting pod, and what would help that."""
        namespace, _, name = reason.oldest.partition("/")
        text = short_reasons(self._sources.explainer.why_waiting(reason.oldest))
        if number >= _REASONS_WITH_HELP:
            return reason, text, None
        explained = self._help.explanation(namespace, name)
        if not text and explained.waiting is not None:
            text = explained.waiting.gated_because or explained.summary
        return reason, text, explained.help

    # ---- pods ----------------------------------------------------------------------------------

    def _pods(self, template: str, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the pods that wait, with filters and a search."""
        sources = self._sources
        listing = Listing(request, "pods", COLUMNS, FILTERS)
        found = list_pods(
            sources.scheduler.queue,
            sources.pods,
            sources.clock,
            sources.explainer.why_waiting,
            listing,
        )
        return self._render(template, here="pods", found=found, listing=listing)

    def _pod(self, template: str, _: web.BaseRequest, rest: list[str]) -> web.Response:
        """Return the explanation of a pod."""
        if len(rest) != 2:
            return self._render("not_found.html", status=404, what="such pod")
        namespace, name = rest
        explanation = self._help.explanation(namespace, name)
        attempt = explanation.attempt
        placement = None if attempt is None else attempt.placement
        return self._render(
            template,
            status=404 if explanation.state == "unknown" and attempt is None else 200,
            here="pods",
            pod=explanation,
            namespace=namespace,
            name=name,
            attempt=attempt,
            bars=None if placement is None else score_bars(placement),
            history=self._sources.explainer.history(namespace, name),
        )
