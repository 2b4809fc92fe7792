"""Choose the node for `make e2e`: `python -m lab.clusters.node.chosen [node|kind]` prints it, or why there is
none."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from lab.clusters.binaries import Missing
from lab.clusters.node import kind

NODE, KIND = "node", "kind"


def choose(asked: str, *, root: bool, no_kind: str) -> str:
    """Return `node` as root, else `kind` where that can be, unless one is asked for. Raises Missing.

    `no_kind` says why there can be no cluster of kind; "" where there can.
    """
    if asked not in ("", NODE, KIND):
        raise Missing(f"there is no node of {asked}: ON is {NODE} or {KIND}")
    if asked == KIND and no_kind:
        raise Missing(no_kind)
    if asked != KIND and root:
        return NODE
    if asked != NODE and not no_kind:
        return KIND
    needs = "hack/node needs root, for network links, mounts and cgroups; with your Go and your caches:"
    raise Missing(f'{needs} sudo env PATH="$PATH" HOME="$HOME" make e2e. Without root, use kind: {no_kind}')


def main(words: Sequence[str]) -> int:
    try:
        print(choose("".join(words), root=os.geteuid() == 0, no_kind=kind.absent()))
    except Missing as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
