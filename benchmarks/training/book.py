"""The samples of a run, kept in a file: what was interrupted goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Sample = dict[str, float | None]
"""Figures by name; None is what did not happen in time."""


@dataclass
class Entry:
    """What one system showed in one measurement: samples, or the reason why there are none."""

    samples: list[Sample] = field(default_factory=list)
    reason: str = ""
    load: list[float] = field(default_factory=list)

    def values(self, figure: str) -> list[float | None]:
        """Return the samples of one figure."""
        return [sample[figure] for sample in self.samples if figure in sample]


class Book:
    """Entries by measurement and system, written to a file with every change."""

    def __init__(self, file: Path, *, fresh: bool = False) -> None:
        self._file = file
        read: dict[str, Any] = {} if fresh or not file.exists() else json.loads(file.read_text())
        self.commands: list[str] = read.get("commands", [])
        self.versions: dict[str, str] = read.get("versions", {})
        self._entries = {
            measure: {system: Entry(**entry) for system, entry in systems.items()}
            for measure, systems in read.get("measures", {}).items()
        }

    def began(self, command: str, versions: dict[str, str]) -> None:
        """Note the command of this run. Raises ValueError where the file was made with other versions."""
        if self._entries and self.versions != versions:
            raise ValueError(f"{self._file} was made with {self.versions}: add --fresh, or name another file")
        self.versions = versions
        self.commands += [command] if command not in self.commands else []
        self._write()

    def entry(self, measure: str, system: str) -> Entry:
        """Return what is known so far."""
        return self._entries.get(measure, {}).get(system, Entry())

    def add(self, measure: str, system: str, sample: Sample) -> None:
        """Add a sample."""
        entry = self._open(measure, system)
        entry.samples.append(sample)
        entry.load.append(round(os.getloadavg()[0], 2))
        self._write()

    def refuse(self, measure: str, system: str, reason: str) -> None:
        """Note why there are no samples, or no more."""
        self._open(measure, system).reason = reason
        self._write()

    def clear(self, measure: str, system: str) -> None:
        """Forget what is known."""
        self._entries.get(measure, {}).pop(system, None)

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Yield measurement, system and what is known."""
        for measure, systems in self._entries.items():
            for system, entry in systems.items():
                yield measure, system, entry

    def loads(self) -> list[float]:
        """Return the machine's load at all samples."""
        return [load for _, _, entry in self.entries() for load in entry.load]

    def _open(self, measure: str, system: str) -> Entry:
        return self._entries.setdefault(measure, {}).setdefault(system, Entry())

    def _write(self) -> None:
        measures = {
            measure: {system: vars(entry) for system, entry in systems.items()}
            for measure, systems in self._entries.items()
        }
        whole = {"commands": self.commands, "versions": self.versions, "measures": measures}
        unfinished = self._file.with_name(self._file.name + ".new")
        unfinished.write_text(json.dumps(whole, indent=1))
        unfinished.replace(self._file)
