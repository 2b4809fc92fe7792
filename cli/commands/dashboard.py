"""`elasticjob dashboard`: the page of the cluster on this machine, from the API server and the masters."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path
from typing import Annotated

import typer

from elasticjob.cli.options import Context, Kubeconfig


def dashboard(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="Show this namespace only. Default: all that you may read."),
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port on this machine; 0 for any.")] = 0,
    masters: Annotated[
        str,
        typer.Option(
            help="How masters are asked: proxy (through the API server), direct (at their pods' addresses), "
            "none, or auto: by proxy, on a dev cluster directly."
        ),
    ] = "auto",
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser, too.")
    ] = False,
) -> None:
    """Show jobs, speeds, goodput, plans, pods and logs in a browser, live, until Ctrl-C. Reads only.

    The printed URL has a token: without it nobody on this machine sees the page. No Brain is needed.

    Example: [bold]elasticjob dashboard -n team --open[/]
    """
    from elasticjob.brain.page.masters import Way
    from elasticjob.cli.errors import Exit, Failure

    if masters not in {*Way}:
        ways = ", ".join(Way)
        raise Failure(f"--masters {masters} is unknown", next_step=f"give one of {ways}", code=Exit.USAGE)
    try:
        asyncio.run(_run(kubeconfig, context, namespace, port, masters, browser))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        step = "give another --port, or none for any"
        raise Failure(error.strerror or str(error), next_step=step) from error


async def _run(
    kubeconfig: Path | None, context: str | None, namespace: str, port: int, way: str, browser: bool
) -> None:
    import aiohttp

    from elasticjob.brain.page.local import served
    from elasticjob.brain.page.masters import Masters, Way
    from elasticjob.brain.page.pages import Pages
    from elasticjob.brain.page.watch import scope_of, watching
    from elasticjob.controllers.logs import configure
    from elasticjob.kube.client import config
    from elasticjob.kube.client.client import Client
    from elasticjob.kube.clock import SystemClock

    configure(quiet=True)
    logging.getLogger("elasticjob.kube").setLevel(logging.ERROR)  # the page says what is away
    found = await config.load(kubeconfig, context)
    async with Client(found, user_agent="elasticjob-dashboard") as client, aiohttp.ClientSession() as session:
        chosen = namespace or await scope_of(client)
        masters = Masters(client, session, Way(way))
        async with (
            watching(client, masters, SystemClock(), chosen) as watch,
            served(Pages(watch), port) as url,
        ):
            where = f"namespace {chosen}" if chosen else "all namespaces"
            typer.echo(f"{found.server}, {where}: open this page, and end with Ctrl-C\n\n  {url}\n")
            if browser:
                await asyncio.to_thread(typer.launch, url)
            await asyncio.Event().wait()
