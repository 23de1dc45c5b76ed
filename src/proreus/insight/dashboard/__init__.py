"""Shows in a browser the work of the scheduler and the reasons for it.

``dashboard`` routes requests below /dashboard/ to ``pages``; ``sign_in`` and
``server.local_server`` say who may see them; ``samples`` and ``live`` are the figures over time,
``node_cells`` and ``pod_list`` the lists. ``rendering`` makes HTML of ``templates``. Nothing comes
from anywhere but this process: ``static`` is our own, ``vendored`` are libraries from their npm
packages (``make vendored``).
"""

from proreus.insight.dashboard.dashboard import Dashboard

__all__ = ["Dashboard"]
