"""The wheel as its users meet it: installed into an empty environment, run in an empty folder.

    python -m hack.releases.elsewhere [--python 3.12] [--demo]

Nothing of the checkout is on the path. uv links what its cache has, so that torch is neither fetched nor
copied a second time where the cache is on the same disk.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import yaml

from hack.releases.distributions import build
from lab.clusters.images.carried import uv

DEMO: Final = ("demo", "--plain", "--epochs", "30")
"""A shorter training than the demo's own."""
LONGEST: Final = 600.0


def run(folder: Path, *command: str) -> str:
    """Return what a command prints in an empty folder with only PATH and HOME. SystemExit on failure."""
    (folder / "empty").mkdir(exist_ok=True)
    environment = {"PATH": os.defpath, "HOME": str(folder / "empty"), "OMP_NUM_THREADS": "1"}
    began = time.monotonic()
    done = subprocess.run(
        [str(folder / "venv" / "bin" / "elasticjob"), *command],
        cwd=folder / "empty",
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"elasticjob {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    last = (done.stdout.strip() or done.stderr.strip()).rsplit("\n", 1)[-1]
    print(f"{time.monotonic() - began:5.1f} s  elasticjob {' '.join(command)}: {last[:200]}", flush=True)
    return done.stdout


def install(wheel: Path, extra: str, folder: Path, python: str) -> None:
    """Install a wheel with an extra into a new environment by uv; print seconds and size."""
    if not (program := uv()):
        raise SystemExit("uv is not on PATH: it installs without fetching torch again (pip install uv)")
    began, venv = time.monotonic(), folder / "venv"
    subprocess.run([program, "venv", "--quiet", "--python", python, str(venv)], check=True)
    wanted = f"elasticjob[{extra}] @ {wheel.as_uri()}"
    installing = [program, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), wanted]
    subprocess.run(installing, check=True)
    size = sum(file.stat().st_size for file in venv.rglob("*") if file.is_file()) / 1_000_000
    print(f"{time.monotonic() - began:5.1f} s  installed elasticjob[{extra}]: {size:,.0f} MB", flush=True)


def main() -> None:
    """Build, install, run. SystemExit where the answer is not that of the package."""
    parser = argparse.ArgumentParser(prog="python -m hack.releases.elsewhere", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="the interpreter, a path or a version")
    parser.add_argument("--demo", action="store_true", help="with torch, and run the demo")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="elasticjob-elsewhere-") as name:
        folder = Path(name)
        install(
            build(folder / "dist").wheel, "demo" if options.demo else "devcluster", folder, options.python
        )
        if name not in run(folder, "version", "--output", "json"):
            raise SystemExit("another elasticjob than the installed one has answered")
        definitions = [one["metadata"]["name"] for one in yaml.safe_load_all(run(folder, "crds"))]
        if "elasticjobs.elastic.iml.github.io" not in definitions:
            raise SystemExit(f"elasticjob crds prints other definitions: {definitions}")
        if options.demo and "Succeeded" not in (printed := run(folder, *DEMO)).rstrip().rsplit("\n", 1)[-1]:
            raise SystemExit(f"the demo did not succeed:\n{printed}")


if __name__ == "__main__":
    main()
