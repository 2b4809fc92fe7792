"""Background loops: garbage collection, namespace and CRD cleanup, CRD names, PVC protection."""
