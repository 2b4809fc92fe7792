"""`elasticjob doctor JOB --bundle FILE`: collects, takes secrets out, and writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.output import say
from elasticjob.cli.versions import versions

if TYPE_CHECKING:
    from elasticjob.api.troubles.trouble import Trouble
    from elasticjob.cli.doctor.bundle import Bundle
    from elasticjob.client import Client

    Examine = Callable[[Client, str], Awaitable[tuple[Trouble, ...]]]

EXAMINING = 12.0
"""The longest time of an examination."""


def bundle(job: str | None, path: Path, force: bool, connect: Callable[[], Client], examine: Examine) -> int:
    """Write the bundle of a job, and say what is missing. Raises Failure."""
    from elasticjob.cli.doctor.bundle import CLEANING, clean, write

    if job is None:
        step = "write elasticjob doctor JOB --bundle FILE"
        raise Failure("--bundle is of one job, and none is named", next_step=step, code=Exit.USAGE)
    if path.is_symlink() or (path.exists() and not path.is_file()):
        step = "give a file that is not there yet"
        raise Failure(f"--bundle: {path} is no regular file", next_step=step, code=Exit.USAGE)
    taken = Failure(f"--bundle: {path} exists", next_step="give another file, or --force", code=Exit.USAGE)
    if path.exists() and not force:
        raise taken
    found = options.run(_collect(job, connect, examine))
    files = clean(found, time.monotonic() + CLEANING)
    try:
        size = write(path, job, files, force=force)
    except FileExistsError:
        raise taken from None
    except OSError as error:
        step = "give a file in a folder of yours"
        raise Failure(f"--bundle: {path}: {error.strerror}", next_step=step, code=Exit.USAGE) from error
    lacking = f"; missing.txt in it says why {len(found.missing)} are missing" if found.missing else ""
    say(f"{path}: {len(files)} files, {size / 1e6:.1f} MB{lacking}; look at it before you send it")
    return Exit.DONE


async def _collect(job: str, connect: Callable[[], Client], examine: Examine) -> Bundle:
    import aiohttp

    from elasticjob.cli.doctor.bundle import Collector
    from elasticjob.client.client import key_of
    from elasticjob.client.errors import about
    from elasticjob.page.masters import Masters

    now = datetime.now(UTC)
    async with connect() as client, aiohttp.ClientSession() as session:
        key = key_of(client.namespace(), job)
        with about("the cluster"):
            await client.kube.raw("GET", "/version")
        collector = Collector(client.kube, Masters(client.kube, session), key)
        examined = collector.bundle.keep("doctor.json", examine(connect(), job), EXAMINING)
        _, found = await asyncio.gather(collector.collect(), examined)
    if found is not None:
        said = ((f"{each.grade}: {each.line(now)}", each.act, *each.commands) for each in found)
        collector.bundle.files["doctor.txt"] = "".join(f"{line}\n" for each in said for line in each if line)
        collector.bundle.files["doctor.json"] = [asdict(each) for each in found]
    collector.bundle.files["versions/elasticjob.json"] = versions()
    return collector.bundle
