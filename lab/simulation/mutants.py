"""Known bugs, put into the control plane one at a time, and whether the histories find them.

    python -m lab.simulation.mutants NAME simulate --histories 2000    # `python -m lab simulate …` with one

The rows are in mutants.toml. Nothing of the product is imported here: a mutant is there before its module is.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Final

from rich.console import Console
from rich.table import Table

from lab.paths import ROOT

CLASSES: Final = ("intermediate", "stale", "unobserved", "indirect", "acto", "ours")
"""Sieve's four, Acto's, and what strangers found in us."""
SHARE: Final = 0.95
"""Of the mutants, how many are to be found."""
FOUND, NOT_FOUND = 1, 0
"""Exit codes of histories."""


class NotPut(Exception):
    """A mutant that cannot be put into the product: the row is out of date, or its module is imported."""


@dataclass(frozen=True)
class Mutant:
    """One bug: in `file`, `new` stands where `old` stood. `after`: where it was found before."""

    name: str
    kind: str
    after: str
    file: str
    old: str
    new: str

    @property
    def module(self) -> str:
        """The module that is changed."""
        return f"elasticjob.{self.file.removesuffix('.py').replace('/', '.')}"

    @property
    def path(self) -> Path:
        """The file, as the module names it."""
        return ROOT / "elasticjob" / self.file

    def text(self) -> str:
        """Return the changed source. Raises NotPut unless `old` is there once."""
        text = self.path.read_text()
        if (times := text.count(self.old)) != 1:
            raise NotPut(f"{self.name}: its old text is {times} times in {self.file}: correct the row")
        return text.replace(self.old, self.new)


@cache
def mutants() -> Mapping[str, Mutant]:
    """Return all mutants, by their names."""
    rows = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["mutant"]
    found = [Mutant(r["name"], r["class"], r["after"], r["file"], r["old"], r.get("new", "")) for r in rows]
    return {each.name: each for each in found}


def put(name: str) -> None:
    """Have the import of one module take its changed source. Raises NotPut."""
    if (mutant := mutants().get(name)) is None:
        raise NotPut(f"there is no mutant {name}: mutants.toml has their names")
    if mutant.module in sys.modules:
        raise NotPut(f"{mutant.module} is imported already: python -m lab.simulation.mutants {name} simulate")
    sys.meta_path.insert(0, _Finder(mutant, mutant.text()))


class _Finder(MetaPathFinder):
    """Finds the module of a mutant."""

    def __init__(self, mutant: Mutant, text: str) -> None:
        self._mutant, self._text = mutant, text

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name != self._mutant.module:
            return None
        loader = _Loader(name, str(self._mutant.path), self._text)
        return spec_from_file_location(name, self._mutant.path, loader=loader)


class _Loader(SourceFileLoader):
    """Loads a module from a text; neither its file nor what was compiled of that is read."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


@dataclass(frozen=True)
class Finding:
    """The first wrong history: the truth that it broke, its name, and how many histories were played."""

    truth: str
    history: str
    histories: int

    def __str__(self) -> str:
        """The line that `simulate` prints last, and `of` reads."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, output: str) -> Finding | None:
        """Return what the last line of an output says; None where it is no such line."""
        with suppress(IndexError, TypeError, ValueError):
            return cls(**json.loads(output.splitlines()[-1]))
        return None


@dataclass(frozen=True)
class Trial:
    """The outcome of one mutant; `broke`: the output of a run that did not end as histories do."""

    seconds: float
    finding: Finding | None = None
    broke: str = ""


Try = Callable[[Mutant, float], Trial | None]
"""Tries a mutant for so many seconds at most; None where they were too few."""


def by_command(histories: int, seed: int) -> Try:
    """Return the trial of a mutant by so many histories in a process of its own."""

    def trial(mutant: Mutant, seconds: float) -> Trial | None:
        numbers = ["--histories", str(histories), "--seed", str(seed)]
        command = [sys.executable, "-m", __spec__.name, mutant.name, "simulate", "--first", *numbers]
        began = time.monotonic()
        try:
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        took, finding = time.monotonic() - began, Finding.of(ended.stdout)
        if ended.returncode == NOT_FOUND or (ended.returncode == FOUND and finding is not None):
            return Trial(took, finding if ended.returncode else None)
        last = (ended.stderr or ended.stdout).strip().rpartition("\n")[2]
        return Trial(took, broke=f"exit code {ended.returncode}: {last}")

    return trial


def run_mutants(
    trial: Try, to: Console, *, names: Iterable[str] = (), minutes: float = 120.0, results: Path | None = None
) -> int:
    """Try mutants, all unless named, print their table, and return 1 if too few of them were found.

    What `results` has already is not tried again, and the file is written after each trial: a run that was
    interrupted, or out of time, goes on where it ended.
    """
    until, known = time.monotonic() + 60 * minutes, _read(results)
    chosen = [mutants()[name] for name in names] or [*mutants().values()]
    for mutant in chosen:
        if mutant.name in known:
            continue
        left = until - time.monotonic()
        if left <= 0 or (found := trial(mutant, left)) is None:
            break
        known[mutant.name] = found
        to.print(f"{mutant.name}: {_outcome(found)}", markup=False, highlight=False)
        if results:
            kept = {name: asdict(each) for name, each in known.items() if not each.broke}
            results.write_text(json.dumps(kept, indent=1))
    to.print(table(chosen, known))
    tried = [known[each.name] for each in chosen if each.name in known]
    caught = sum(each.finding is not None for each in tried)
    to.print(f"{caught} of {len(tried)} found; {len(chosen) - len(tried)} not tried")
    return int(caught < SHARE * len(tried) or len(tried) < len(chosen))


def table(chosen: Iterable[Mutant], trials: Mapping[str, Trial]) -> Table:
    """Return a row for each mutant that was tried, and one for each class."""
    whole = Table(
        "mutant", "class", "found by", "history", "histories", "seconds", box=None, header_style="dim"
    )
    counts, caught = Counter[str](), Counter[str]()
    for mutant in (each for each in chosen if each.name in trials):
        tried = trials[mutant.name]
        counts[mutant.kind] += 1
        caught[mutant.kind] += tried.finding is not None
        found = tried.finding
        numbers = (found.history, str(found.histories)) if found else ("–", "–")
        said = found.truth if found else f"[red]{_outcome(tried)}[/]"
        whole.add_row(mutant.name, mutant.kind, said, *numbers, f"{tried.seconds:.1f}")
    whole.add_section()
    for kind in (each for each in CLASSES if counts[each]):
        whole.add_row("", kind, f"{caught[kind]} of {counts[kind]}", "", "", "")
    return whole


def _outcome(tried: Trial) -> str:
    if tried.finding is None:
        return tried.broke or "not found"
    return f"{tried.finding.truth}, history {tried.finding.histories}"


def _read(results: Path | None) -> dict[str, Trial]:
    if results is None or not results.exists():
        return {}
    found = json.loads(results.read_text())
    return {
        name: Trial(each["seconds"], Finding(**each["finding"]) if each["finding"] else None)
        for name, each in found.items()
        if name in mutants()
    }


if __name__ == "__main__":
    _, named, *sys.argv[1:] = sys.argv
    put(named)
    runpy.run_module("lab", run_name="__main__", alter_sys=True)
