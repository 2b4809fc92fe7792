"""Where devcluster differs from the real server, and why it may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.conformance.compare import Difference


@dataclass(frozen=True)
class Known:
    """`places`: `subject/probe` → the paths (or their beginnings) that differ for this reason."""

    reason: str
    places: Mapping[str, tuple[str, ...]]


KNOWN: tuple[Known, ...] = (
    Known(
        "An empty map in an apply of a built-in kind is dropped before its owner is noted, so "
        "nobody owns it.",
        {
            "apply/an apply keeps what another owns too": ("3.body.metadata",),
            "apply/an empty map is owned": ("1.body.metadata", "2."),
        },
    ),
    Known(
        "No admission adds the finalizer that protects claims: nothing would take it off again.",
        {
            "builtins/a claim": ("1.body.metadata",),
        },
    ),
    Known(
        "Both forms of an event share one book of managed fields, kept in the names of core events.",
        {
            "builtins/a new event": ("1.body.metadata",),
            "builtins/a new event through the old door": ("2.body.metadata",),
        },
    ),
    Known(
        "Events of events.k8s.io are held to the rules of core events only.",
        {
            "builtins/a new event without an action": ("1.",),
            "builtins/a new event of a long note": ("1.",),
        },
    ),
    Known(
        "Ingresses are not served.",
        {
            "builtins/an ingress": ("1.",),
        },
    ),
)


def unexplained(probe: str, found: Iterable[Difference]) -> list[Difference]:
    """The differences of a probe that no reason covers."""
    allowed = [path for each in KNOWN for path in each.places.get(probe, ())]
    return [each for each in found if not any(each.path.startswith(path) for path in allowed)]


def outdated(probe: str, found: Iterable[Difference]) -> list[str]:
    """Paths that are said to differ for a reason, and do not."""
    paths = [each.path for each in found]
    allowed = [path for each in KNOWN for path in each.places.get(probe, ())]
    return [path for path in allowed if not any(each.startswith(path) for each in paths)]
