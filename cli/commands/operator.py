"""`elasticjob operator`: the controllers and admission webhooks, as a process on any machine or in a pod."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Annotated, Any

import typer

from elasticjob.api import logs
from elasticjob.cli.errors import Failure
from elasticjob.cli.options import Context, Kubeconfig, LogFormat, settings_of


def operator(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Watch this namespace only.")
    ] = None,
    trainer_image: Annotated[
        str | None, typer.Option(help="The image of masters, unless the job names one.")
    ] = None,
    probes: Annotated[
        str | None, typer.Option(help="HOST:PORT of /healthz, /readyz and /metrics; port 0 for any.")
    ] = None,
    webhooks: Annotated[bool | None, typer.Option(help="Serve admission webhooks.")] = None,
    webhook_host: Annotated[str | None, typer.Option(help="The address on which webhooks listen.")] = None,
    webhook_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port on which webhooks listen.")
    ] = None,
    install: Annotated[
        bool | None,
        typer.Option("--install/--no-install", help="Apply the CRDs before the controllers start."),
    ] = None,
    leader_election: Annotated[
        bool | None,
        typer.Option(
            "--leader-election/--no-leader-election",
            help="Run as one of several replicas: the leader runs the controllers, the others stand by.",
        ),
    ] = None,
    lease: Annotated[
        str | None, typer.Option(help="The Lease of the leader election: NAME or NAMESPACE/NAME.")
    ] = None,
    log_format: LogFormat = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run the operator: the controllers of ElasticJobs, and their admission webhooks.

    Every flag can also be set in the environment, as ELASTICJOB_OPERATOR_NAMESPACE and so on; flags win.

    Example, on a laptop: [bold]elasticjob operator --kubeconfig dev.kubeconfig --install[/]
    """
    from elasticjob.controllers.main import run
    from elasticjob.controllers.settings import Settings

    given: dict[str, Any] = {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": namespace,
        "trainer_image": trainer_image,
        "probes": probes,
        "webhooks": webhooks,
        "webhook_host": webhook_host,
        "webhook_port": webhook_port,
        "install": install,
        "leader_election": leader_election,
        **lease_of(lease),
    }
    logs.configure(os.environ, format=log_format, verbose=verbose)
    settings = settings_of(Settings, given)
    try:
        asyncio.run(run(settings))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
            raise
        raise Failure(str(error), next_step="choose others with --probes and --webhook-port") from error


def lease_of(flag: str | None) -> dict[str, str | None]:
    """Return the leader election settings for `--lease`."""
    namespace, _, name = (flag or "").rpartition("/")
    return {"lease": name or None, "lease_namespace": namespace or None}
