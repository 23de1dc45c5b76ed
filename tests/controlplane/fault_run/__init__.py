"""A fault run: two schedulers at work while everything around them fails, judged by the apiserver.

``run`` puts it together. Schedulers reach the apiserver through ``proxy``, which breaks requests
(``request_faults``) and watches (``watch_relay``) and records what it passed on (``record``).
``process_faults`` kills, suspends and disturbs processes. ``load`` creates pods, ``controllers``
does what kubelets and controllers would do with them. ``observer`` watches the apiserver directly
and tells ``judge`` what it sees. Every random choice comes from one seed; which request a choice
meets depends on timing as well.
"""
