"""Predicates: which changes start a reconcile.

Predicates here are pure and must not raise. A controller's own predicate may compare with what its last
reconcile found; it must then still pass deletions, because another object may take the name.
"""

from __future__ import annotations

from collections.abc import Callable

from elasticjob.kube.cache.store import Change

Predicate = Callable[[Change], bool]


def any_change(change: Change) -> bool:
    """Everything."""
    return True


def generation_changed(change: Change) -> bool:
    """The spec changed, deletion began, or the object came or went; not status, labels or annotations."""
    if change.old is None or change.new is None:
        return True
    old, new = change.old.meta, change.new.meta
    return (old.generation, old.deletion_timestamp) != (new.generation, new.deletion_timestamp)


def any_of(*predicates: Predicate) -> Predicate:
    """At least one of them passes."""
    return lambda change: any(predicate(change) for predicate in predicates)
