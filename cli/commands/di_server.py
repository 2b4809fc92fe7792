"""`elasticjob di-server`: the HTTP server that coordinators of DIJobs ask for collectors and learners."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticjob.api import logs
from elasticjob.cli.errors import Failure
from elasticjob.cli.options import Context, Kubeconfig, ListenPort, LogFormat, settings_of


def di_server(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Watch this namespace only.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: ListenPort = None,
    url: Annotated[str | None, typer.Option(help="The URL at which new pods reach di-server.")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="File with the key that signs the tokens of jobs.")
    ] = None,
    agconfig_namespace: Annotated[
        str | None, typer.Option(help="The namespace of the cluster's AggregatorConfig.")
    ] = None,
    agconfig_name: Annotated[
        str | None, typer.Option(help="The name of the cluster's AggregatorConfig.")
    ] = None,
    local_ports: Annotated[
        bool | None,
        typer.Option(
            "--local-ports/--released-ports",
            help="Number the ports of ddp learners from each pod's first port.",
        ),
    ] = None,
    log_format: LogFormat = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Create and delete collectors and learners, as the coordinators of DIJobs request.

    Every flag can also be set in the environment, as ELASTICJOB_DI_SERVER_PORT and so on; flags win.

    Example, on a laptop: [bold]elasticjob di-server --kubeconfig dev.kubeconfig --url http://127.0.0.1:8080[/],
    then curl http://127.0.0.1:8080/v1alpha1/replicas
    """
    from elasticjob.controllers.diserver.main import run
    from elasticjob.controllers.diserver.settings import Settings
    from elasticjob.kube.errors import ConfigError

    given: dict[str, Any] = {
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": namespace,
        "host": host,
        "port": port,
        "url": url,
        "key_file": key_file,
        "agconfig_namespace": agconfig_namespace,
        "agconfig_name": agconfig_name,
        "local_ports": local_ports,
    }
    logs.configure(os.environ, format=log_format, verbose=verbose)
    try:
        asyncio.run(run(settings_of(Settings, given)))
    except ConfigError as error:
        raise Failure(str(error), next_step="give --kubeconfig") from error
