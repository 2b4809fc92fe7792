"""A registry of images and charts on this machine, go-containerregistry's (hack/kube-binaries chart)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lab.clusters.binaries import Places, catalog
from lab.waiting import PATIENCE


def crane() -> Path | None:
    """Return the program that serves one; None where it is not built."""
    return Places.of().find(catalog().programs["crane"])


@asynccontextmanager
async def registry() -> AsyncIterator[str]:
    """Serve an empty registry without TLS; yields host:port."""
    process = await asyncio.create_subprocess_exec(
        str(crane()), "registry", "serve", "--address", "127.0.0.1:0", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr
    try:
        said = await asyncio.wait_for(process.stderr.readline(), PATIENCE)
        found = re.search(r"serving on port (\d+)", said.decode())
        assert found, said
        yield f"127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        await process.communicate()
