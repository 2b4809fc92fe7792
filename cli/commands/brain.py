"""`elasticjob brain`: the service that sizes jobs by the history of jobs like them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from elasticjob.api import logs
from elasticjob.cli.errors import Failure
from elasticjob.cli.options import Context, Kubeconfig, ListenPort, LogFormat, settings_of


def brain(
    database: Annotated[
        str | None, typer.Option(help="sqlite:///FILE, or postgresql://USER:PASSWORD@HOST/NAME.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Watch this namespace only.")
    ] = None,
    cluster: Annotated[
        bool | None,
        typer.Option("--cluster/--no-cluster", help="Watch the cluster, and write ScalePlans for its jobs."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: ListenPort = None,
    key_file: Annotated[
        Path | None, typer.Option(help="File with the key that signs the tokens of masters.")
    ] = None,
    reading_token_file: Annotated[
        Path | None, typer.Option(help="File with the token that readers must send.")
    ] = None,
    probes: Annotated[
        str | None, typer.Option(help="HOST:PORT of /healthz, /readyz and /metrics; port 0 for any.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Where measurements come from: masters, prometheus or none.")
    ] = None,
    prometheus: Annotated[str | None, typer.Option(help="The URL of the Prometheus server.")] = None,
    leader_election: Annotated[
        bool | None,
        typer.Option(
            "--leader-election/--no-leader-election",
            help="Run as one of several replicas: the leader watches and plans, the others stand by.",
        ),
    ] = None,
    log_format: LogFormat = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Keep the history of jobs, and scale jobs with optimizeMode: cluster by it.

    Every flag can also be set in the environment, as ELASTICJOB_BRAIN_DATABASE and so on; flags win.

    Example, on a laptop: [bold]elasticjob brain --kubeconfig dev.kubeconfig[/], then open http://127.0.0.1:8090
    """
    from elasticjob.brain.main import run
    from elasticjob.brain.settings import Settings
    from elasticjob.brain.store import NoDatabase
    from elasticjob.cli.brain_page import page
    from elasticjob.kube.errors import ConfigError

    given: dict[str, Any] = {
        "database": database,
        "kubeconfig": kubeconfig,
        "context": context,
        "namespace": namespace,
        "cluster": cluster,
        "host": host,
        "port": port,
        "key_file": key_file,
        "reading_token_file": reading_token_file,
        "probes": probes,
        "source": source,
        "prometheus": prometheus,
        "leader_election": leader_election,
    }
    logs.configure(os.environ, format=log_format, verbose=verbose)
    settings = settings_of(Settings, given)
    _require(settings.key_file, "--key-file", "the key of the tokens of masters")
    _require(settings.reading_token_file, "--reading-token-file", "the token of readers")
    try:
        asyncio.run(run(settings, page))
    except NoDatabase as error:
        raise Failure(f"the database cannot be had: {error}", next_step="correct --database") from error
    except ConfigError as error:
        raise Failure(str(error), next_step="give --kubeconfig, or --no-cluster") from error


def _require(file: Path | None, flag: str, what: str) -> None:
    """Refuse a file that is not there or is empty: each request would be refused later."""
    if file is None:
        return
    try:
        empty = not file.read_bytes().strip()
    except OSError as error:
        raise Failure(f"{what} cannot be read: {error}", next_step=f"correct {flag}") from error
    if empty:
        raise Failure(f"{what} is missing: {file} is empty", next_step=f"write it, or leave out {flag}")
