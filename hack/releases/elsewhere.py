"""The wheel as its users meet it: installed into an empty environment, run in an empty folder.

    python -m hack.releases.elsewhere [--python 3.12] [--demo]

Nothing of the checkout is on the path. uv links what its cache has, so that torch is neither fetched nor
copied a second time where the cache is on the same disk.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from hack.releases.distributions import build

MB: Final = 1_000_000
DEMO: Final = ("demo", "--plain", "--epochs", "30")
"""A shorter training than the demo's own."""
LONGEST: Final = 600.0


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the empty folder in which commands run."""

    python: Path
    folder: Path

    def run(self, *arguments: str) -> str:
        """Return what `elasticjob` prints; nothing but PATH and HOME is in its environment."""
        began = time.monotonic()
        done = subprocess.run(
            [str(self.python.with_name("elasticjob")), *arguments],
            cwd=self.folder,
            env={"PATH": os.defpath, "HOME": str(self.folder), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"elasticjob {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        last = (done.stdout.strip() or done.stderr.strip()).rsplit("\n", 1)[-1]
        print(
            f"{time.monotonic() - began:5.1f} s  elasticjob {' '.join(arguments)}: {last[:200]}", flush=True
        )
        return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, install, run; return the exit code."""
    asked = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="elasticjob-elsewhere-") as folder:
        wheel = build(Path(folder, "dist")).wheel
        extra = "demo" if asked.demo else "devcluster"
        environment = install(wheel, extra, Path(folder), asked.python)
        check(environment)
        if asked.demo:
            printed = environment.run(*DEMO)
            if "Succeeded" not in printed.rstrip().rsplit("\n", 1)[-1]:
                raise SystemExit(f"the demo did not succeed:\n{printed}")
    return 0


def install(wheel: Path, extra: str, folder: Path, python: str = sys.executable) -> Environment:
    """Install a wheel with an extra into a new environment by uv; tell seconds and size."""
    if not (uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))):
        raise SystemExit("uv is not on PATH: it installs without fetching torch again (pip install uv)")
    venv, empty = folder / "venv", folder / "empty"
    empty.mkdir()
    began = time.monotonic()
    subprocess.run([uv, "venv", "--quiet", "--python", python, str(venv)], check=True)
    environment = Environment(venv / "bin" / "python", empty)
    wanted = f"elasticjob[{extra}] @ {wheel.as_uri()}"
    subprocess.run([uv, "pip", "install", "--quiet", "--python", str(environment.python), wanted], check=True)
    size = sum(file.stat().st_size for file in venv.rglob("*") if file.is_file()) / MB
    print(f"{time.monotonic() - began:5.1f} s  installed elasticjob[{extra}]: {size:,.0f} MB", flush=True)
    return environment


def check(environment: Environment) -> None:
    """Run what needs no cluster; SystemExit where the answer is not that of the package."""
    if str(environment.folder.parent) not in environment.run("version", "--output", "json"):
        raise SystemExit("another elasticjob than the installed one has answered")
    definitions = [one["metadata"]["name"] for one in yaml.safe_load_all(environment.run("crds"))]
    if "elasticjobs.elastic.iml.github.io" not in definitions:
        raise SystemExit(f"elasticjob crds prints other definitions: {definitions}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.releases.elsewhere", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter, a path or a version")
    parser.add_argument("--demo", action="store_true", help="with torch, and run the demo")
    return parser


if __name__ == "__main__":
    sys.exit(main())
