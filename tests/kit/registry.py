"""A registry of images and charts on this machine, go-containerregistry's (hack/kube-binaries chart)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lab.clusters.binaries import Places, catalog
from lab.processes import Process


def crane() -> Path | None:
    """Return the program that serves one; None where it is not built."""
    return Places.of().find(catalog().programs["crane"])


@asynccontextmanager
async def registry(folder: Path) -> AsyncIterator[str]:
    """Serve an empty registry without TLS; yields host:port."""
    command = (str(crane()), "registry", "serve", "--address", "127.0.0.1:0")
    async with Process("registry", command, folder, ready="serving on port") as program:
        (port,) = re.findall(r"serving on port (\d+)", program.output)
        yield f"127.0.0.1:{port}"
