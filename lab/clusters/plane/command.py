"""The command `hack/control-plane`: a control plane that runs until stopped, or for one command."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.clusters.binaries import Missing
from lab.clusters.plane.controlplane import ControlPlane
from lab.processes import Process, ProgramFailed

DONE, FAILED, WRONG_USE = 0, 1, 2
LAST_FIRST = ("kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")


def main(arguments: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """The exit code: that of COMMAND for `run`."""
    options = _parser(environ).parse_args(arguments)
    try:
        return int(options.act(options))
    except (Missing, ProgramFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED


def up(options: argparse.Namespace) -> int:
    """Start the programs that do not run; they go on when this ends."""
    began = time.monotonic()
    plane = _plane(options, options.folder, outlive=True)
    plane.start()
    print(
        f"# ready after {time.monotonic() - began:.1f} s; end it with: hack/control-plane down",
        file=sys.stderr,
    )
    print(f"export KUBECONFIG={plane.kubeconfig}")
    return DONE


def down(options: argparse.Namespace) -> int:
    """Stop it; what it stored is kept unless it is to be purged."""
    for each in _programs(options.folder):
        each.stop()
    if options.purge:
        shutil.rmtree(options.folder)
    return DONE


def status(options: argparse.Namespace) -> int:
    """Print the running programs with memory and log. Fails if there are none."""
    running = [each for each in reversed(_programs(options.folder)) if each.identity]
    for each in running:
        print(f"{each.name:<24} pid {each.pid:<8} {each.rss >> 20:>4} MiB  {each.log}")
    if not running:
        print(f"nothing runs in {options.folder}; start it with: hack/control-plane up", file=sys.stderr)
    return DONE if running else FAILED


def run(options: argparse.Namespace) -> int:
    """Run one command with a new control plane in KUBECONFIG; everything is removed afterwards."""
    if not options.command:
        print("error: name the command: hack/control-plane run -- kubectl get namespaces", file=sys.stderr)
        return WRONG_USE
    folder = Path(tempfile.mkdtemp(prefix="control-plane-"))
    try:
        with _plane(options, folder, outlive=False) as plane:
            environ = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
            return subprocess.run(options.command, env=environ, check=False).returncode
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> list[Process]:
    return [Process(name, (), folder / "programs") for name in LAST_FIRST]


def _plane(options: argparse.Namespace, folder: Path, *, outlive: bool) -> ControlPlane:
    return ControlPlane(folder, scheduler=options.scheduler, kwok=options.kwok, outlive=outlive)


def _parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
    parser = argparse.ArgumentParser("hack/control-plane", description=__doc__)
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(cache, "elasticjob", "control-plane"),
        help="where it keeps its data, certificates and logs (default: %(default)s)",
    )
    acts = parser.add_subparsers(required=True, metavar="up|down|status|run")
    more = {"scheduler": "start kube-scheduler too", "kwok": "start kwok too, which plays nodes and pods"}
    for act in (up, run, down, status):
        described = (act.__doc__ or "").partition("\n")[0]
        sub = acts.add_parser(act.__name__, help=described, description=described)
        sub.set_defaults(act=act)
        if act in (up, run):
            for name, text in more.items():
                sub.add_argument(f"--{name}", action="store_true", help=text)
        if act is run:
            sub.add_argument("command", nargs="*", metavar="COMMAND", help="after `--`")
        if act is down:
            sub.add_argument("--purge", action="store_true", help="delete the folder as well")
    return parser


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
