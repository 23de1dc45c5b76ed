"""Runs the scheduler's engine on the objects of a cluster, without touching the cluster.

    snapshot, object_files ─► ClusterObjects ─► Scenario ─► SimulatedCluster, in virtual time
                                  scenario_run ─► ScenarioResult ─► comparison, picture

``ClusterObjects`` is a cluster at one instant. Nothing below here knows of files, tables or
terminals: a command, an endpoint and a test make the same ``Scenario`` of it and read the same
Structs. The engine is ``offline.OfflineCluster``; no decision is computed anywhere else.
"""
