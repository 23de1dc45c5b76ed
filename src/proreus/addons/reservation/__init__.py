"""Reservation: room on nodes for pods that may not exist yet.

Source: Koordinator, ``pkg/scheduler/plugins/reservation`` (proposal 20220609-resource-reservation).
"""

from proreus.addons.reservation.plugin import Reservation

__all__ = ["Reservation"]
