"""The wheel and the sdist: built from a checkout, the same bytes from the same commit."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.paths import ROOT

EPOCH: Final = "SOURCE_DATE_EPOCH"
"""The variable with the time, in seconds since 1970, that files of archives get."""


@dataclass(frozen=True)
class Distributions:
    """Where wheel and sdist lie."""

    wheel: Path
    sdist: Path


def build(out: Path, source: Path = ROOT, epoch: int | None = None) -> Distributions:
    """Build wheel and sdist of a checkout, or of an unpacked sdist, into a folder; without a network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(out)]
    environ = os.environ | ({EPOCH: str(epoch)} if epoch is not None else {})
    done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the wheel of {source} cannot be built:\n{done.stdout}{done.stderr}")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distributions(wheel, sdist)
