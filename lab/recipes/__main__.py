"""`python -m lab.recipes [NAME…]`: follow recipes of CONTRIBUTING.md, rightly and with a mistake.

A recipe is a folder beside this: `change.diff` does what the page says, and `mistake.diff`, on top of it,
does so wrongly. The tests are those that the page names in the recipe, and `hack.generate --check` where it
asks for `make generate`. A recipe lies if they fail with the change, or pass with the mistake.
`--check` applies the diffs to the index alone: a commit that moves what they change mends them.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.paths import ROOT
from lab.processes import end_on_sigterm

FOLDER: Final = Path(__file__).parent
RECIPE: Final = re.compile(r"^\*\*(?:a|an) ([^*]+)\.\*\* (.*?)\n\n", re.MULTILINE | re.DOTALL)
TEST: Final = re.compile(r"`(tests/[\w/]+\.py)`")
PATIENCE: Final = 600
DIFFS: Final = ("change.diff", "mistake.diff")


@dataclass(frozen=True)
class Recipe:
    """A recipe with the tests that the page names, and whether it asks for what is generated."""

    name: str
    tests: tuple[str, ...]
    generates: bool

    @property
    def folder(self) -> Path:
        return FOLDER / self.name.replace(" ", "-")


@dataclass(frozen=True)
class Outcome:
    """What became of a recipe; `seen_by` is the first test that fails by the mistake."""

    passes: bool
    seen_by: str
    seconds: float
    cpu: float


def recipes() -> Iterator[Recipe]:
    """Yield the recipes of the page that have a folder. Raises SystemExit for a folder without a recipe."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    texts = dict(RECIPE.findall(page))
    for folder in sorted(path.parent for path in FOLDER.glob("*/change.diff")):
        name = folder.name.replace("-", " ")
        tests = tuple(dict.fromkeys(TEST.findall(texts.get(name, ""))))
        if not tests:
            raise SystemExit(f"error: CONTRIBUTING.md has no recipe {name!r} that names its tests")
        yield Recipe(name, tests, "`make generate`" in texts[name])


def check(recipe: Recipe) -> bool:
    """Apply both diffs to a copy of the index; git says of one that does not fit why."""
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        shutil.copy(ROOT / _git("rev-parse", "--git-path", "index"), index)
        for diff in DIFFS:
            command = ["git", "apply", "--cached", str(recipe.folder / diff)]
            if subprocess.run(command, cwd=ROOT, env=os.environ | {"GIT_INDEX_FILE": str(index)}).returncode:
                return False
    return True


@contextmanager
def worktree() -> Iterator[Path]:
    """A checkout of HEAD, which is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "checkout"
        _git("worktree", "add", "--quiet", "--detach", str(place))
        try:
            yield place
        finally:
            _git("worktree", "remove", "--force", str(place))


def play(recipe: Recipe) -> Outcome:
    """Follow a recipe, then with its mistake."""
    begun, before = time.monotonic(), _cpu()
    with worktree() as place:
        _git("apply", str(recipe.folder / DIFFS[0]), at=place)
        wrong = failure(recipe, place)
        if wrong:
            print(f"{recipe.name}: {wrong}", file=sys.stderr)
        _git("apply", str(recipe.folder / DIFFS[1]), at=place)
        seen_by = failure(recipe, place)
    return Outcome(not wrong, seen_by, time.monotonic() - begun, _cpu() - before)


def failure(recipe: Recipe, place: Path) -> str:
    """Return the first test of a recipe that fails in a checkout, "" if all pass."""
    found = os.environ | {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}  # before the editable install
    steps = [["pytest", "-q", "-x", "-n", "0", "--tb=short", *recipe.tests]]
    steps += [["hack.generate", "--check"]] if recipe.generates else []
    for module, *arguments in steps:
        command = [sys.executable, "-m", module, *arguments]
        ran = subprocess.run(command, cwd=place, env=found, capture_output=True, text=True, timeout=PATIENCE)
        if ran.returncode:
            named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", ran.stdout, re.MULTILINE)
            return named[1] if named else (ran.stdout + ran.stderr).strip()[-300:]
    return ""


def _git(*arguments: str, at: Path = ROOT) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=at, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Play recipes, or check their diffs; 1 if one lies or does not fit."""
    reader = argparse.ArgumentParser(description="Follow the recipes of CONTRIBUTING.md.")
    reader.add_argument("names", nargs="*", help="as folders of lab/recipes; all without a name")
    reader.add_argument("--check", action="store_true", help="apply the diffs to the index alone")
    options = reader.parse_args()
    known = {each.folder.name: each for each in recipes()}
    if unknown := [name for name in options.names if name not in known]:
        reader.error(f"{', '.join(unknown)}: give some of {', '.join(known)}")
    chosen = [known[name] for name in options.names or known]
    if options.check:
        return int(False in [check(each) for each in chosen])
    end_on_sigterm()
    print(f"{'recipe':<22} {'passes':<7} {'CPU s':>6} {'s':>5}  the mistake is seen by")
    outcomes = {each.name: play(each) for each in chosen}
    for name, end in outcomes.items():
        passes = "yes" if end.passes else "NO"
        print(
            f"{name:<22} {passes:<7} {end.cpu:>6.0f} {end.seconds:>5.0f}  {end.seen_by or 'NO TEST: it lies'}"
        )
    return int(not all(end.passes and end.seen_by for end in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
