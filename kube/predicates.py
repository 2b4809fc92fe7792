"""Which changes are worth a run. Those below are pure and remember nothing. None may raise.

What is called `…_changed` lets coming and going pass, too. A controller's own predicate may remember what
a run found, where such a one stands beside it: another object may come to a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from elasticjob.kube.store import Change
from elasticjob.kube.wire import Meta

Predicate = Callable[[Change], bool]


def any_change(change: Change) -> bool:
    """Everything."""
    return True


def generation_changed(change: Change) -> bool:
    """The spec changed, or deletion began; not status, labels or annotations."""
    return _differs(change, lambda meta: (meta.generation, meta.deletion_timestamp))


def labels_changed(change: Change) -> bool:
    """The labels changed."""
    return _differs(change, lambda meta: meta.labels)


def annotations_changed(change: Change) -> bool:
    """The annotations changed."""
    return _differs(change, lambda meta: meta.annotations)


def has_labels(wanted: Mapping[str, str]) -> Predicate:
    """The object bears all of `wanted`, or did before."""

    def matches(change: Change) -> bool:
        metas = [item.meta for item in (change.old, change.new) if item]
        return any(wanted.items() <= (meta.labels or {}).items() for meta in metas)

    return matches


def any_of(*predicates: Predicate) -> Predicate:
    """At least one of them passes."""
    return lambda change: any(predicate(change) for predicate in predicates)


def all_of(*predicates: Predicate) -> Predicate:
    """All of them pass."""
    return lambda change: all(predicate(change) for predicate in predicates)


def not_(predicate: Predicate) -> Predicate:
    """It does not pass. Careful: where coming and going passed, they pass no more."""
    return lambda change: not predicate(change)


def _differs(change: Change, part: Callable[[Meta], object]) -> bool:
    if change.old is None or change.new is None:
        return True
    return part(change.old.meta) != part(change.new.meta)
