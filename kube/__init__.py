"""A framework for Kubernetes controllers, useful without training: it imports nothing of the rest.

    observe   client (asks the server) ← transport; cache (asks memory) ← informer ← watch (protocol) → store
    run       controller (what to run when) ← queue; operator (a process of them) ← rungroup, probes, metrics
    admit     review (pure) ← admission (TLS server) ← certificates
    write     client.apply and patches; conditions, owner, finalizers, events
    rest      kinds, objects, crd: types; config, kubeconfig: where and who; clock, backoff: time

Import from the modules: the package itself imports none, so that a program pays only for what it uses.
"""
