"""The saves of `graceful.py`, by what its processes have written: who was asked, who saved for how long."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lab.paths import SCRIPTS
from lab.waiting import until

SCRIPT: Final = SCRIPTS / "e2e" / "graceful.py"


@dataclass(frozen=True)
class Life:
    """One process, by pod and start: what happened to it, the oldest first."""

    name: str
    lines: tuple[dict[str, Any], ...] = field(repr=False)

    def first(self, what: str) -> dict[str, Any]:
        """Return the first line of a kind, empty if there is none."""
        return next((line for line in self.lines if line["what"] == what), {})

    @property
    def pod(self) -> str:
        """Its pod."""
        return self.name.rpartition("-")[0]

    @property
    def begun(self) -> float:
        """When it was among its peers; 0.0 if it was never."""
        return float(self.first("begun").get("at", 0.0))

    @property
    def trains(self) -> bool:
        """Whether it has made a step, and does not save yet."""
        return bool(self.first("step")) and not self.first("saving")

    @property
    def saved(self) -> bool:
        """Whether its save is whole."""
        return bool(self.first("saved"))

    @property
    def seconds(self) -> float:
        """How long it has saved, at least."""
        return max(
            (line["seconds"] for line in self.lines if line["what"] in ("saving", "saved")), default=0.0
        )

    @property
    def told(self) -> str:
        """Its end, in words."""
        asked = "SIGTERM" if self.first("asked") else "no signal"
        if not self.first("saving"):
            return f"{asked}, no save"
        return f"{asked}, {'saved' if self.saved else 'CUT OFF'} after {self.seconds:.1f} s"


def lives(folder: Path) -> list[Life]:
    """Return the processes that have written there, the oldest first."""
    found = [Life(file.stem, tuple(map(json.loads, whole_lines(file)))) for file in folder.glob("*-*.jsonl")]
    return sorted(found, key=lambda life: life.begun)


async def trained(folder: Path, size: int) -> list[Life]:
    """Return the processes of the newest world, once it has so many and they train."""
    found: list[Life] = []

    async def train() -> bool:
        found[:] = world(folder, size)
        return bool(found)

    await until(train, f"a world of {size} trains")
    return found


async def after_saves(folder: Path, those: Iterable[Life], within: float) -> list[Life]:
    """Return what became of some processes, once all have saved, or after as many seconds."""
    names, found = {life.name for life in those}, list[Life]()

    async def saved() -> bool:
        found[:] = [life for life in lives(folder) if life.name in names]
        return all(life.saved for life in found)

    with suppress(AssertionError):  # what was not saved is told by who asks
        await until(saved, "all have saved", within)
    return found


def whole_lines(file: Path) -> list[str]:
    """Return the lines of a file that is being written."""
    text = file.read_text()
    return text[: text.rfind("\n") + 1].splitlines()


def world(folder: Path, size: int) -> list[Life]:
    """Return the processes that train together in the newest world; none while that has another size."""
    those = lives(folder)
    newest = those[-size:]
    whole = len(newest) == size and all(life.first("begun").get("world") == size for life in newest)
    return newest if whole and all(life.trains for life in newest) else []


def last_save(folder: Path) -> int:
    """Return the step of the last whole save."""
    file = folder / "step"
    return int(file.read_text() or 0) if file.exists() else 0
