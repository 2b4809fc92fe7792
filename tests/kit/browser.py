"""A real browser that looks at a page: Debian's Chromium, without a window."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from tests.kit.brain.postgres import lacking
from tests.kit.waiting import PATIENCE

QUIET: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


async def dom(url: str, folder: Path, picture: Path | None = None) -> str:
    """Return the page at a URL as HTML, after its scripts have run for some seconds; with its picture."""
    program = shutil.which("chromium") or lacking("chromium")
    wanted = ["--dump-dom", "--virtual-time-budget=3000", f"--user-data-dir={folder / 'browser'}"]
    if picture:
        wanted += [f"--screenshot={picture}", "--window-size=1160,1900"]
    process = await asyncio.create_subprocess_exec(
        program,
        *QUIET,
        *wanted,
        url,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    try:
        async with asyncio.timeout(PATIENCE):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return told.decode()
