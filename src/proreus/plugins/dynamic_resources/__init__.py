"""DynamicResources: gives devices to claims (KEP-4381, structured parameters).

``plugin`` has the extension points, read in the order in which a pod meets them; each other module
holds one matter: which claims a pod has, what drivers publish, what is in use, and the search.
"""

from proreus.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
