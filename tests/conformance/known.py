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
        "The size of a custom resource is checked by its schema, not once more by its scale path.",
        {
            "customs/a whole fraction": ("4",),
            "subresources/a scale path that is no path": ("1.body.details.causes",),
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
