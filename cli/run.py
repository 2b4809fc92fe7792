"""`elasticjob run` (and `agent`, the same in a pod): torchrun's flags for our agent.

If the environment or a flag names a master, the agent joins it. Otherwise this process hosts one: standalone
for one node, or on the rendezvous endpoint for the node that can listen there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from elasticjob.cli.errors import Exit, Failure
from elasticjob.trainer.agent import words
from elasticjob.trainer.agent.script import Script, Unusable, check
from elasticjob.trainer.agent.settings import Place, Recover, Settings, Start, place_from, worker_count

LINGER = 60.0  # seconds that a master waits until the other nodes know of the end
COLD = ("spawn", "cold")
WARM = ("fork", "forkserver", "warm")


def option(*names: str, help: str, panel: str = "Options", pet: bool = True) -> typer.models.OptionInfo:
    """Return an option in both of torchrun's spellings, also read from its PET_ variable."""
    spelled = [each for name in names for each in dict.fromkeys((name, underscored(name)))]
    variable = "PET_" + names[0].strip("-").replace("-", "_").upper()
    info: typer.models.OptionInfo = typer.Option(
        *spelled, help=help, rich_help_panel=panel, envvar=variable if pet else None, show_envvar=False
    )
    return info


def underscored(name: str) -> str:
    """Return `--a-b` as `--a_b`."""
    return "--" + name[2:].replace("-", "_") if name.startswith("--") else name


ACCEPTED = "Accepted for torchrun's sake"


def run(
    script: Annotated[str, typer.Argument(help="The training script, or with -m a module.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Its arguments.")] = None,
    nnodes: Annotated[str, option("--nnodes", help="Nodes: a number, or MIN:MAX.")] = "1:1",
    nproc_per_node: Annotated[
        str, option("--nproc-per-node", help="Workers per node: a number, auto, cpu or gpu.")
    ] = "1",
    max_restarts: Annotated[
        int | None,
        option(
            "--max-restarts",
            help="How often failed workers are restarted. Default 3; 1 if none makes progress.",
        ),
    ] = None,
    recovery: Annotated[
        Recover,
        option(
            "--recovery", help="Keep workers when the world changes, or restart them; auto reads the script."
        ),
    ] = Recover.AUTO,
    module: Annotated[
        bool, option("--module", "-m", help="The script is a module, as in python -m.")
    ] = False,
    no_python: Annotated[bool, option("--no-python", help="The script is a program, not Python.")] = False,
    standalone: Annotated[bool, option("--standalone", help="One node, with a master of its own.")] = False,
    rdzv_endpoint: Annotated[
        str,
        option("--rdzv-endpoint", help="HOST:PORT of the master; the node that can listen there runs it."),
    ] = "",
    rdzv_id: Annotated[
        str, option("--rdzv-id", help="The job's name, and the secret that its nodes share.")
    ] = "",
    node_rank: Annotated[int, option("--node-rank", help="This node's place among the nodes.")] = 0,
    local_addr: Annotated[
        str, option("--local-addr", help="The address at which others reach this node.")
    ] = "",
    master_addr: Annotated[
        str, option("--master-addr", help="With --master-port: the same as --rdzv-endpoint.")
    ] = "",
    master_port: Annotated[int, option("--master-port", help="Default 29500.")] = 29500,
    role: Annotated[str, option("--role", help="The prefix of log lines.")] = "default",
    log_dir: Annotated[Path | None, option("--log-dir", help="Also write each worker's output here.")] = None,
    redirects: Annotated[str, option("--redirects", "-r", help="3: output goes to --log-dir only.")] = "0",
    start_method: Annotated[
        str,
        option(
            "--start-method",
            help="forkserver: from a process that has imported torch; spawn: a new interpreter.",
        ),
    ] = "forkserver",
    grace: Annotated[float, option("--grace", help="Seconds that workers have to end by themselves.")] = 20.0,
    rdzv_backend: Annotated[str, option("--rdzv-backend", help="There is one.", panel=ACCEPTED)] = "",
    rdzv_conf: Annotated[str, option("--rdzv-conf", help="Ignored.", panel=ACCEPTED)] = "",
    monitor_interval: Annotated[float, option("--monitor-interval", help="Ignored.", panel=ACCEPTED)] = 0.0,
    tee: Annotated[str, option("--tee", "-t", help="Output is always passed on.", panel=ACCEPTED)] = "0",
) -> int:
    """Run a training script on one or more nodes: survive lost workers, grow and shrink.

    Takes torchrun's flags. In a pod of an ElasticJob it finds the master by itself, elsewhere it hosts one:

    [bold]elasticjob run --nproc-per-node 2 train.py --epochs 10[/]
    """
    low, high = node_range(nnodes)
    endpoint = rdzv_endpoint or (f"{master_addr}:{master_port}" if master_addr else "")
    place = place_from(os.environ, node_rank=node_rank, address=local_addr)
    settings = Settings(
        place=place,
        script=Script(script, tuple(arguments or ()), module=module, python=not no_python),
        workers=workers(nproc_per_node),
        **restarts(max_restarts),
        recover=recovery,
        start=start(start_method),
        name=role,
        log_dir=log_dir,
        redirect=redirects != "0" and log_dir is not None,
        grace=grace,
    )
    checked(settings)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=f"elasticjob {place.node}: %(message)s")
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    if place.master and not standalone:
        return asyncio.run(join(settings))
    return asyncio.run(host_or_join(settings, Hosted(low, high, "" if standalone else endpoint, rdzv_id)))


def restarts(given: int | None) -> dict[str, int]:
    """Return the settings for --max-restarts: a number that is given is kept, with or without progress."""
    if given is None:
        return {}
    if given < 0:
        raise Failure(f"--max-restarts is {given}", next_step="give 0 or more", code=Exit.USAGE)
    return {"max_restarts": given, "tries": 0}


def checked(settings: Settings) -> None:
    """Fail, before torch is imported, if the script is missing or has a syntax error."""
    try:
        check(settings.script)
    except Unusable as error:
        code = Exit.USAGE if error.missing else Exit.FAILED
        words.write(settings.place.termination_log, reason="WorkerFailed", message=str(error), code=code)
        raise Failure(str(error), code=code) from None


@dataclass(frozen=True)
class Hosted:
    """The job whose master this process hosts: its size, and address (empty: for this node alone)."""

    low: int
    high: int
    endpoint: str
    name: str


async def join(settings: Settings) -> int:
    """Run the agent with the master in its settings."""
    from elasticjob.trainer.agent import loop  # aiohttp and psutil: not for --help

    return await loop.run(settings, os.environ)


async def host_or_join(settings: Settings, job: Hosted) -> int:
    """Run the agent beside a master of this process, or join the one that already listens on the endpoint."""
    from elasticjob.master.job import Bounds, Job, Spec
    from elasticjob.master.server import Master
    from elasticjob.master.store import Nowhere

    host, port = endpoint_of(job.endpoint) if job.endpoint else ("127.0.0.1", 0)
    token = job.name or (secrets.token_hex(16) if not job.endpoint else "elasticjob")
    spec = Spec(job=job.name or "local", bounds=Bounds(minimum=job.low, maximum=job.high))
    async with AsyncExitStack() as stack:
        master = Master(Job(spec=spec), token, Nowhere(), host=host, port=port)
        try:
            await stack.enter_async_context(master)
        except OSError:  # the address of another host, or in use by another node on this one
            if not job.endpoint:
                raise
            return await join(with_master(settings, f"{host}:{port}", token))
        code = await join(with_master(settings, master.address, token))
        if job.high > 1:
            await master.wait_until_told(LINGER)
        return code


def with_master(settings: Settings, address: str, token: str) -> Settings:
    """Return the settings of an agent whose master is at `address`."""
    place: Place = replace(settings.place, master=address, token=token)
    return replace(settings, place=place)


def endpoint_of(text: str) -> tuple[str, int]:
    """Return host and port of an endpoint; the port is torchrun's 29400 if absent."""
    host, colon, port = text.rpartition(":")
    if not colon:
        return text, 29400
    if not port.isdecimal():
        raise Failure(
            f"--rdzv-endpoint is {text!r}: the port is not a number",
            next_step="give HOST:PORT",
            code=Exit.USAGE,
        )
    return host, int(port)


def node_range(text: str) -> tuple[int, int]:
    """Return the bounds in --nnodes."""
    low, _, high = text.partition(":")
    if not (low.isdecimal() and (high or low).isdecimal()) or not 1 <= int(low) <= int(high or low):
        raise Failure(
            f"--nnodes is {text!r}",
            next_step="give a number of nodes, or MIN:MAX with MIN <= MAX",
            code=Exit.USAGE,
        )
    return int(low), int(high or low)


def workers(text: str) -> int:
    """Return the number of workers per node."""
    try:
        return worker_count(text)
    except ValueError as error:
        raise Failure(str(error), code=Exit.USAGE) from None


def start(method: str) -> Start:
    """Return the start method for torchrun's name of it."""
    if method in COLD:
        return Start.COLD
    if method in WARM:
        return Start.WARM
    raise Failure(f"--start-method is {method!r}", next_step="give forkserver or spawn", code=Exit.USAGE)
