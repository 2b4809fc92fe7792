"""The command `hack/kube-binaries`: list the binaries, and build the missing ones.

Standard library only: it runs before there is a virtual environment.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.clusters.binaries import (
    Builder,
    BuildFailed,
    Catalog,
    Missing,
    Places,
    Program,
    catalog,
    refusal,
    toolchain,
    what,
)

DONE, FAILED, WRONG_USE = 0, 1, 2
ASK_VERSION: Mapping[str, tuple[str, ...]] = {
    "coredns": ("-version",),
    "crane": ("version",),
    "helm": ("version", "--short"),
    "kubeconform": ("-v",),
    "kubectl": ("version", "--client"),
}
"""How programs are asked for their version that do not know `--version`."""


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run the command; return its exit code."""
    try:
        known = catalog(environ=environ)
    except Missing as unknown:
        return _fail(str(unknown), WRONG_USE)
    options = _parser(known).parse_args(arguments)
    try:
        programs = known.chosen(options.wanted or ["all"])
    except KeyError as unknown:
        words = ", ".join((*known.sets, *known.programs))
        return _fail(f"there is no set or program {unknown}; write one of: {words}", WRONG_USE)
    places = Places.of(environ)
    if options.list:
        print(table(programs, places))
        return DONE
    return obtain(programs, places, known, environ)


def obtain(
    programs: Sequence[Program], places: Places, known: Catalog, environ: Mapping[str, str] = os.environ
) -> int:
    """Build the missing programs; silent if there are none."""
    missing = places.missing(programs)
    if not missing:
        return DONE
    go = toolchain(environ)
    if why := refusal(missing, go, known):
        return _fail(why)
    assert go is not None
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {text}", flush=True)

    if places.assets:
        say(f"KUBEBUILDER_ASSETS={places.assets} lacks {what(missing)}")
    say(f"{what(missing)} into {places.cache} with Go {go.version} (minutes where its caches are empty)")
    try:
        Builder(go, places.cache, environ, say).build(missing, places)
    except BuildFailed as failure:
        return _fail(str(failure))
    say("done")
    return DONE


def table(programs: Sequence[Program], places: Places) -> str:
    """A line for each: its name, the version wanted, the version found, and where."""
    rows = [("PROGRAM", "WANTED", "FOUND", "WHERE")]
    for program in programs:
        path = places.find(program)
        told = program.version if program.files else version_of(program.name, path) if path else ""
        found = (told, str(path)) if path else ("missing", "-")
        rows.append((program.name, program.version, *found))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def version_of(name: str, path: Path) -> str:
    """Return the version that a program prints; "unknown" if it prints none."""
    command = [str(path), *ASK_VERSION.get(name, ("--version",))]
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    found = re.search(r"\d+\.\d+(\.\d+)?", output)
    return found[0] if found else "unknown"


def _parser(known: Catalog) -> argparse.ArgumentParser:
    sets = "; ".join(f"{name}: {' '.join(programs)}" for name, programs in known.sets.items())
    parser = argparse.ArgumentParser(
        "hack/kube-binaries",
        description=f"Builds the binaries of a real Kubernetes {known.version} that are missing.",
        epilog=f"Sets are {sets}. $KUBEBUILDER_ASSETS is looked in first.",
    )
    parser.add_argument("wanted", nargs="*", help="sets and programs; the set `all` by default")
    parser.add_argument("--list", action="store_true", help="say what is there and what is missing")
    return parser


def _fail(text: str, code: int = FAILED) -> int:
    print("error: " + "\n  ".join(text.splitlines()), file=sys.stderr)
    return code
