"""`hack/node`: a whole Kubernetes node on this machine, from the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import Final

from lab.clusters.binaries import Missing
from lab.clusters.cluster import Machine
from lab.clusters.images.containers import ImportFailed
from lab.clusters.node import kind
from lab.clusters.node.host import Unfit
from lab.clusters.node.node import Node, Refused
from lab.clusters.node.place import Place, default_folder
from lab.processes import ProgramFailed

MIB: Final = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        return COMMANDS[asked.command](_machine(asked), asked.images)
    except CalledProcessError as error:
        print(f"error: {' '.join(error.cmd)}: {error.stderr.strip()}", file=sys.stderr)
    except (Refused, Unfit, Missing, ImportFailed) as error:
        print(f"error: {error}", file=sys.stderr)
    except ProgramFailed as error:
        print(f"error: {error}\nhack/node down ends what was started", file=sys.stderr)
    return 1


def _machine(asked: argparse.Namespace) -> Machine:
    if asked.kind:
        return kind.KindNode(kind.default_kind_folder())
    return Node(Place(asked.folder.absolute()), say=lambda line: print(line, flush=True))


def up(node: Machine, images: Sequence[Path]) -> int:
    """Start everything, and print how to use kubectl."""
    node.up()
    load(node, images)
    print(f"export KUBECONFIG={node.kubeconfig}")
    return 0


def down(node: Machine, images: Sequence[Path]) -> int:
    """End everything; exit code 1 if something is left."""
    return _say_left(node.down())


def purge(node: Machine, images: Sequence[Path]) -> int:
    """`down`, and remove objects and images."""
    return _say_left(node.purge())


def status(node: Machine, images: Sequence[Path]) -> int:
    """Print the running programs; exit code 1 if there are none."""
    for name, (pid, resident) in sorted(node.status().items()):
        print(f"{name:24} pid {pid:<8} {resident // MIB:5} MiB")
    print(f"export KUBECONFIG={node.kubeconfig}" if (there := node.is_up()) else "down")
    return 0 if there else 1


def load(node: Machine, images: Sequence[Path]) -> int:
    """Load the images of archives."""
    for file in images:
        node.load_archive(file)
        print(f"loaded {file}")
    return 0


COMMANDS: Final[Mapping[str, Callable[[Machine, Sequence[Path]], int]]] = {
    "up": up,
    "down": down,
    "purge": purge,
    "status": status,
    "load": load,
}


def _say_left(left: Sequence[str]) -> int:
    print("\n".join(("down; left on this machine:", *left)) if left else "down; nothing is left")
    return 1 if left else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/node",
        description="A whole Kubernetes node with containers on this machine: Linux, as root, one at a time.",
        epilog="; ".join(
            f"{name}: {(command.__doc__ or '').rstrip('.')}" for name, command in COMMANDS.items()
        ),
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("images", nargs="*", type=Path, help="archives of images, for load and up")
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="where it is kept (%(default)s)"
    )
    parser.add_argument("--kind", action="store_true", help="use kind, where there is Docker, instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())
