"""A devcluster for jobs with servers of TensorFlow; their processes are forked from one that imported it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from elasticjob.devcluster import DevCluster
from lab.jobs.job import staged
from lab.jobs.site import Site, lent
from lab.jobs.training.forking import command


@dataclass(frozen=True)
class Stage:
    """A namespace, the folder of its job, and the folder with the process ID of each pod."""

    site: Site
    run: Path
    pids: Path


@asynccontextmanager
async def stage_in(folder: Path, name: str) -> AsyncIterator[Stage]:
    """Run a devcluster with its files in `folder`; the namespace's name begins with `name`."""
    run, pids = folder / "run", folder / "pids"
    run.mkdir()
    async with (
        DevCluster(folder, supervisor=command(pids)) as cluster,
        staged(cluster, folder) as stage,
        lent(stage.client, stage.onlooker, name) as site,
    ):
        yield Stage(site, run, pids)
