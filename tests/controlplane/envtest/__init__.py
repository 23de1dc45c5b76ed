"""The real thing, on loopback and in seconds: etcd, kube-apiserver, kube-scheduler, kwok.

What lives here starts real processes for the tests of this folder, and speaks to them. No test
lives here, and of proreus only ``bench`` is imported, which can start them: the scheduler itself is
one more process.

``binaries`` builds or finds the programs, ``waiting`` waits for what they do, ``control_plane``
is etcd and kube-apiserver, ``kwok`` a whole cluster with fake kubelets, ``schedulers`` the process
under test, ``kube_client`` a fast client, ``objects`` what tests put into a cluster, ``assertions``
what they read out of it. ``stage`` lets two schedulers play the same scenario, with
``fake_storage`` and ``fake_extender`` beside it.
"""
