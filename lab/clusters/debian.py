"""Programs that a node needs besides our binaries, from Debian's packages."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.clusters import binaries

PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))
"""The folders of network plugins, which are not on PATH."""


def missing_packages() -> dict[str, str]:
    """Return the missing programs of this machine: command or network plugin → Debian's package."""
    known = binaries.catalog()
    commands = {name: package for name, package in known.debian.items() if not shutil.which(name)}
    return commands | {name: package for name, package in known.plugins.items() if not is_plugin(name)}


def is_plugin(name: str) -> bool:
    """Whether a network plugin of that name is installed: a command of that name is none."""
    return any((folder / name).exists() for folder in PLUGINS)


if __name__ == "__main__":
    print(*sorted({*missing_packages().values()}))
