"""`elasticjob dashboard`: the page of the cluster on this machine, from the API server and the masters."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Annotated

import typer

from elasticjob.cli.jobs import options
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import say

if TYPE_CHECKING:
    from elasticjob.client import Client
    from elasticjob.kube.errors import KubeError


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
    from elasticjob.cli.errors import Exit, Failure
    from elasticjob.page.masters import Way

    if masters not in {*Way}:
        ways = ", ".join(Way)
        raise Failure(f"--masters {masters} is unknown", next_step=f"give one of {ways}", code=Exit.USAGE)
    try:
        connection = options.client(namespace, kubeconfig, context)
        options.run(_run(connection, namespace, port, masters, browser))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        step = "give another --port, or none for any"
        raise Failure(error.strerror or str(error), next_step=step) from error


async def _run(connection: Client, namespace: str, port: int, way: str, browser: bool) -> None:
    import aiohttp

    from elasticjob.api.logs import configure
    from elasticjob.client.errors import about
    from elasticjob.kube.clock import SystemClock
    from elasticjob.page.local import serving
    from elasticjob.page.masters import Masters, Way
    from elasticjob.page.pages import Pages
    from elasticjob.page.watch import scope_of, watching

    configure(quiet=True)
    async with connection as client, aiohttp.ClientSession() as session:
        with about("the cluster"):
            chosen = namespace or await scope_of(client.kube)
        where = f"namespace {chosen}" if chosen else "all namespaces"
        server = client.kube.config.server
        masters, refused = Masters(client.kube, session, Way(way)), Refusals(server)
        async with (
            watching(client.kube, masters, SystemClock(), chosen, heed=refused) as watch,
            serving(Pages(watch), port) as url,
        ):
            say(f"{server}, {where}: open this page, and end with Ctrl-C\n\n  {url}\n")
            if browser:
                await asyncio.to_thread(typer.launch, url)
            with about(f"jobs of {where}"):
                await refused.wait()


class Refusals:
    """Waits for a refusal: nobody may look at the page, which says what is away, for hours."""

    def __init__(self, server: str) -> None:
        from elasticjob.client.trouble import Trouble

        self._trouble = Trouble(server, lambda _: None)
        self._error: KubeError | None = None
        self._happened = asyncio.Event()

    def __call__(self, error: KubeError | None) -> None:
        """Heed an error of a watch."""
        from elasticjob.kube.client.patience import is_refusal
        from elasticjob.kube.errors import KubeError

        try:
            self._trouble(error)
        except KubeError as lasting:
            if is_refusal(lasting):
                self._error = lasting
                self._happened.set()

    async def wait(self) -> None:
        """Raise the refusal."""
        await self._happened.wait()
        if self._error:
            raise self._error
