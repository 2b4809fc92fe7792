"""The samples of a run, kept in a file: what was interrupted goes on where it stopped."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, json

Sample = dict[str, float | None]
"""Figures by name; None is what did not happen in time."""


class Entry(Struct):
    """What one system showed in one measurement: samples, or the reason why there are none."""

    samples: list[Sample] = []
    reason: str = ""
    load: list[float] = []

    def values(self, figure: str) -> list[float | None]:
        """Return the samples of one figure."""
        return [sample[figure] for sample in self.samples if figure in sample]


class Kept(Struct):
    """The contents of the file: entries by measurement and system, their versions and commands."""

    commands: list[str] = []
    versions: dict[str, str] = {}
    measures: dict[str, dict[str, Entry]] = {}


class Book:
    """Entries by measurement and system, written to a file with every change.

    Reasons of an earlier run are forgotten: what it could not measure is tried again.
    """

    def __init__(self, file: Path, *, fresh: bool = False) -> None:
        self._file, self._fresh = file, fresh
        self._read()

    def began(self, command: str, versions: dict[str, str]) -> None:
        """Note the command of this run.

        Raises ValueError where the file was made with other versions, or another run writes it.
        """
        self._lock = os.open(f"{self._file}.lock", os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another run writes {self._file}: wait for it, or name another file") from None
        self._read()
        kept = self.kept
        if kept.measures and kept.versions != versions:
            raise ValueError(f"{self._file} was made with {kept.versions}: add --fresh, or name another file")
        kept.versions = versions
        kept.commands += [command] if command not in kept.commands else []
        self._write()

    def close(self) -> None:
        """Let another run write the file."""
        os.close(self._lock)

    def entry(self, measure: str, system: str) -> Entry:
        """Return what is known so far."""
        return self.kept.measures.get(measure, {}).get(system, Entry())

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
        self.kept.measures.get(measure, {}).pop(system, None)

    def entries(self) -> Iterator[tuple[str, str, Entry]]:
        """Yield measurement, system and what is known."""
        for measure, systems in self.kept.measures.items():
            for system, entry in systems.items():
                yield measure, system, entry

    def loads(self) -> list[float]:
        """Return the machine's load at all samples."""
        return [load for _, _, entry in self.entries() for load in entry.load]

    def _open(self, measure: str, system: str) -> Entry:
        return self.kept.measures.setdefault(measure, {}).setdefault(system, Entry())

    def _read(self) -> None:
        new = self._fresh or not self._file.exists()
        self.kept = Kept() if new else json.decode(self._file.read_bytes(), type=Kept)
        for _, _, entry in self.entries():
            entry.reason = ""

    def _write(self) -> None:
        unfinished = self._file.with_name(self._file.name + ".new")
        unfinished.write_bytes(json.format(json.encode(self.kept), indent=1))
        unfinished.replace(self._file)
