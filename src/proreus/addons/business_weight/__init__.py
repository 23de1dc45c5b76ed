"""BusinessWeight: each line of business prefers pools of nodes by weights of its own."""

from proreus.addons.business_weight.plugin import BusinessWeight

__all__ = ["BusinessWeight"]
