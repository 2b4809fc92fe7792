"""`elasticjob master`: coordinate one job's workers, in its pod or on any machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elasticjob.api import logs
from elasticjob.api.rpc.environment import LOG_FORMAT
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.options import ListenPort, settings_of

if TYPE_CHECKING:
    from elasticjob.master.scalers.pods import Rules


def master(
    job: Annotated[str | None, typer.Option(help="The name of the job.")] = None,
    nnodes: Annotated[
        str, typer.Option(help="Outside of a cluster: the number of nodes, as N or MIN:MAX.")
    ] = "",
    node_unit: Annotated[
        int | None, typer.Option(help="Outside of a cluster: the number of nodes is a multiple of this.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: ListenPort = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the job's token. Default: a new token, which is printed.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Outside of a cluster: the file that a restarted master continues from."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig. Default: KUBECONFIG, or the pod's ServiceAccount.")
    ] = None,
) -> int:
    """Run the master of one job: rendezvous, health, scaling, and the end of the job.

    The operator starts it in a pod of its own and configures it by the environment. Elsewhere, for agents on
    several machines (`elasticjob run --rdzv-endpoint` also includes one):

    Example: [bold]elasticjob master --nnodes 2:4 --host 10.0.0.1 --token-file token[/]
    """
    from elasticjob.kube.errors import ConfigError
    from elasticjob.master.cluster.settings import Settings
    from elasticjob.master.main import run

    low, high = _range(nnodes)
    given: dict[str, Any] = {
        "job": job,
        "nodes_min": low,
        "nodes_max": high,
        "node_unit": node_unit,
        "host": host,
        "port": port,
        "token_file": token_file,
        "state": state,
        "kubeconfig": kubeconfig,
    }
    logs.configure(os.environ, node=job or "master")
    settings = settings_of(Settings, given)
    if not settings.namespace and (why := settings.spec.bounds.problem("nodes")):
        raise Failure(why, next_step="give --nnodes and --node-unit that fit", code=Exit.USAGE)
    try:
        return asyncio.run(run(settings, rules=_rules))
    except ConfigError as error:
        raise Failure(
            str(error), next_step="give --kubeconfig, or run without a namespace", code=Exit.UNREACHABLE
        ) from error
    except FileNotFoundError as error:
        raise Failure(f"{error.filename} does not exist", next_step="give --token-file a file") from error


def _rules() -> Rules:
    """Return the operator's rules, for a job that leaves its pods to the master."""
    from elasticjob.cli.podrules import OperatorsRules

    return OperatorsRules(os.environ.get(LOG_FORMAT, ""))


def _range(nnodes: str) -> tuple[int | None, int | None]:
    """Return the bounds in --nnodes, none without the flag."""
    low, _, high = nnodes.partition(":")
    if not nnodes:
        return None, None
    if not (low.isdecimal() and (high or low).isdecimal()):
        raise Failure(f"--nnodes is {nnodes!r}", next_step="give N or MIN:MAX", code=Exit.USAGE)
    return int(low), int(high or low)
