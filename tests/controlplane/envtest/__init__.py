"""A real control plane on loopback, in seconds: etcd, kube-apiserver, kube-scheduler, kwok.

This package starts the processes and talks to them; it contains no tests. Of proreus it imports
only ``bench``, which can start processes too: the scheduler under test is one more process.

``binaries`` finds or builds the programs, ``waiting`` polls for conditions, ``control_plane`` is
etcd and kube-apiserver, ``kwok`` a whole cluster with fake kubelets, ``schedulers`` the process
under test, ``kube_client`` a fast client, ``objects`` builds objects, ``assertions`` checks the
content of a cluster. ``scenario_cluster`` is the cluster on which a scheduler plays a scenario,
with ``fake_storage`` and ``fake_extender``.
"""
