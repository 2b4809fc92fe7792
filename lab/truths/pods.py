"""Never two live pods of one index of a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from lab.story import Truth


def twins(alive: Iterable[tuple[str, str]]) -> list[str]:
    """Return a sentence for each place that several live pods hold; given are places and names of pods."""
    holders: dict[str, list[str]] = defaultdict(list)
    for place, name in alive:
        holders[place].append(name)
    return [
        f"{place} is held by {len(names)} live pods at once: {', '.join(sorted(names))}"
        for place, names in holders.items()
        if len(names) > 1
    ]


TRUTHS: Final = (Truth("no-twins", moments=lambda scene: twins(scene.places)),)
