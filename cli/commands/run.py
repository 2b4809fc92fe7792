"""`elasticjob run` (and `agent`, the same in a pod): torchrun's flags for our agent.

If the environment or a flag names a master, the agent joins it. Otherwise this process hosts one: standalone
for one node, or on the rendezvous endpoint for the node that can listen there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from elasticjob.api import logs
from elasticjob.api.rpc import environment as names
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.standalone import hosting
from elasticjob.cli.standalone.hosted import BESIDE, HostedJob
from elasticjob.cli.standalone.hosting import is_told_here_alone, own_address, own_name
from elasticjob.cli.standalone.torchrun import (
    KEYS,
    RANKED,
    REFUSED,
    SIGNALS,
    STATIC,
    backend,
    conf,
    endpoint_of,
    node_range,
    port_of,
    ranks,
    refuse,
    signals,
    streams,
)
from elasticjob.trainer.agent import termination
from elasticjob.trainer.agent.group import CLOSING
from elasticjob.trainer.agent.processes.tether import tether
from elasticjob.trainer.agent.script import Script, Unusable, check
from elasticjob.trainer.agent.settings import (
    Recover,
    Settings,
    Start,
    modules_from,
    place_from,
    worker_count,
)

log = logging.getLogger("elasticjob.run")

DAY = 86_400
COLD = ("spawn", "cold")
WARM = ("fork", "forkserver", "warm")


def option(
    *names: str, help: str, panel: str = "Options", variable: str | None = None
) -> typer.models.OptionInfo:
    """Return an option in both of torchrun's spellings, also read from its PET_ variable or `variable`."""
    spelled = [each for name in names for each in dict.fromkeys((name, with_underscores(name)))]
    variables = ["PET_" + names[0].strip("-").replace("-", "_").upper(), *filter(None, [variable])]
    info: typer.models.OptionInfo = typer.Option(
        *spelled, help=help, rich_help_panel=panel, envvar=variables, show_envvar=False
    )
    return info


def refused_flag(name: str) -> typer.models.OptionInfo:
    """Return a flag of torchrun that is refused with a reason."""
    info = option(name, help=REFUSED[name][1])
    info.hidden = True
    return info


def with_underscores(name: str) -> str:
    """Return `--a-b` as `--a_b`."""
    return "--" + name[2:].replace("-", "_") if name.startswith("--") else name


ACCEPTED = "Accepted for torchrun's sake"


def run(
    script: Annotated[str, typer.Argument(help="The training script; with -m, a module.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="Arguments of the script.")] = None,
    nnodes: Annotated[str, option("--nnodes", help="Number of nodes, or MIN:MAX.")] = "1:1",
    nproc_per_node: Annotated[
        str, option("--nproc-per-node", help="Workers per node: a number, auto, cpu or gpu.")
    ] = "1",
    max_restarts: Annotated[
        int | None,
        option(
            "--max-restarts",
            help="Restarts of failed workers. Default: 3, but 1 while no worker has made progress.",
        ),
    ] = None,
    recovery: Annotated[
        Recover,
        option(
            "--recovery",
            help="When the world changes: keep the workers, or restart them; auto decides by the script.",
        ),
    ] = Recover.AUTO,
    allow_unsaved: Annotated[
        bool,
        option(
            "--allow-unsaved",
            help="Succeed even if the last checkpoint could not be written. Default: exit code 74.",
        ),
    ] = False,
    allow_missing: Annotated[
        list[str] | None,
        option(
            "--allow-missing",
            help="Pattern of names that a checkpoint or the script may have alone: model.head.*; repeatable.",
        ),
    ] = None,
    module: Annotated[
        bool, option("--module", "-m", help="The script is a module, as in python -m.")
    ] = False,
    no_python: Annotated[bool, option("--no-python", help="The script is a program, not Python.")] = False,
    run_path: Annotated[
        bool, option("--run-path", help="Ignored: a script is always run by its path.", panel=ACCEPTED)
    ] = False,
    standalone: Annotated[
        bool, option("--standalone", help="Train on this machine only, with a master in this process.")
    ] = False,
    rdzv_endpoint: Annotated[
        str,
        option("--rdzv-endpoint", help="HOST:PORT of the master; the node with that address runs it."),
    ] = "",
    rdzv_id: Annotated[
        str,
        option(
            "--rdzv-id",
            help="Job ID and shared secret: the same on all nodes, unique per job.",
        ),
    ] = "",
    node_rank: Annotated[
        int | None,
        option("--node-rank", help="Rank of this node. Default: in the order of joining."),
    ] = None,
    local_addr: Annotated[
        str, option("--local-addr", help="Address at which other nodes reach this one.")
    ] = "",
    master_addr: Annotated[
        str, option("--master-addr", help="With --master-port, the same as --rdzv-endpoint.")
    ] = "",
    master_port: Annotated[int, option("--master-port", help="Port for --master-addr.")] = 29500,
    role: Annotated[str, option("--role", help="Role name in the prefix of log lines.")] = "default",
    log_line_prefix_template: Annotated[
        str,
        option(
            "--log-line-prefix-template",
            help="Prefix of log lines; knows ${role_name}, ${local_rank}, ${rank} and ${hostname}.",
            variable="TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE",
        ),
    ] = "",
    local_ranks_filter: Annotated[
        str, option("--local-ranks-filter", help="Show the output of these local ranks only: 0,1.")
    ] = "",
    log_dir: Annotated[
        Path | None, option("--log-dir", help="Also write the output of each worker to this directory.")
    ] = None,
    redirects: Annotated[
        str,
        option(
            "--redirects",
            "-r",
            help="Redirect to files: 1 stdout, 2 stderr, 3 both; per local rank: 0:1,1:3.",
        ),
    ] = "0",
    tee: Annotated[
        str, option("--tee", "-t", help="Write to files and show; values as for --redirects.")
    ] = "0",
    signals_to_handle: Annotated[
        str, option("--signals-to-handle", help="Signals that end the run.")
    ] = SIGNALS,
    start_method: Annotated[
        str,
        option(
            "--start-method",
            help="forkserver: fork from a process that has imported torch; spawn: a new interpreter.",
        ),
    ] = "forkserver",
    grace: Annotated[
        float | None,
        option(
            "--grace",
            help="Seconds for workers to exit before they are killed. Default: the pod's, elsewhere 30.",
        ),
    ] = None,
    shutdown_timeout: Annotated[
        float | None,
        option("--shutdown-timeout", help="The same as --grace.", variable="TORCH_ELASTIC_SHUTDOWN_TIMEOUT"),
    ] = None,
    virtual_local_rank: Annotated[
        bool,
        option("--virtual-local-rank", help="Each worker sees its own device only, as device 0."),
    ] = False,
    rdzv_backend: Annotated[str, option("--rdzv-backend", help="c10d or static.", panel=ACCEPTED)] = "",
    rdzv_conf: Annotated[
        str,
        option("--rdzv-conf", help="Timeouts of the rendezvous as KEY=VALUE,…: " + ", ".join(KEYS) + "."),
    ] = "",
    network_check: Annotated[
        bool,
        option(
            "--network-check",
            help="Check each node alone and in pairs before training (DLRover's flag).",
        ),
    ] = False,
    exclude_straggler: Annotated[
        bool,
        option("--exclude-straggler", help="Check nodes, and exclude slow ones from training."),
    ] = False,
    monitor_interval: Annotated[
        float,
        option(
            "--monitor-interval", help="Ignored: the exit of a worker is noticed at once.", panel=ACCEPTED
        ),
    ] = 0.0,
    event_log_handler: Annotated[str, refused_flag("--event-log-handler")] = "",
    logs_specs: Annotated[str, refused_flag("--logs-specs")] = "",
    numa_binding: Annotated[str, refused_flag("--numa-binding")] = "",
    duplicate_stdout_filters: Annotated[str, refused_flag("--duplicate-stdout-filters")] = "",
    duplicate_stderr_filters: Annotated[str, refused_flag("--duplicate-stderr-filters")] = "",
    print_completion: Annotated[str, refused_flag("--print-completion")] = "",
) -> int:
    """Run a training script on one or more nodes: survive lost workers, grow and shrink.

    Takes torchrun's flags. In a pod of an ElasticJob it finds the master by itself, elsewhere it hosts one:

    [bold]elasticjob run --nproc-per-node 2 train.py --epochs 10[/]
    """
    low, high = node_range(nnodes)
    if allow_missing:
        os.environ[names.ALLOW_MISSING] = " ".join(allow_missing)
    if parent := os.environ.pop(BESIDE, ""):
        standalone = False
        tether(int(parent))
    rendezvous = conf(rdzv_conf)
    refuse(
        {
            "--event-log-handler": event_log_handler,
            "--logs-specs": logs_specs,
            "--numa-binding": numa_binding,
            "--duplicate-stdout-filters": duplicate_stdout_filters,
            "--duplicate-stderr-filters": duplicate_stderr_filters,
            "--print-completion": print_completion,
        }
    )
    ranked = node_rank if backend(rdzv_backend) in RANKED else None
    host, port = meeting_point(rdzv_endpoint, master_addr, master_port, low) if not standalone else ("", 0)
    place = place_from(
        os.environ,
        node_rank=ranked,
        address=local_addr or (own_address(host, port) if host and names.POD_IP not in os.environ else ""),
        name=own_name() if host and ranked is None else "",
    )
    if names.JOB not in os.environ and rdzv_id:
        place = replace(place, job=rdzv_id)
    settings = Settings(
        place=place,
        script=script_of(script, arguments or (), module=module, python=not no_python, path=run_path),
        workers=workers(nproc_per_node),
        **restarts(max_restarts),
        forgive=forgiveness(os.environ.get(names.FORGIVE_AFTER, "")),
        may_lose_save=allow_unsaved or bool(os.environ.get(names.ALLOW_UNSAVED)),
        recover=recovery,
        start=start(start_method),
        modules=modules_from(os.environ),
        name=role,
        template=log_line_prefix_template,
        log_dir=log_dir,
        redirects=streams("--redirects", redirects),
        tee=streams("--tee", tee),
        shown=ranks(local_ranks_filter),
        signals=signals(signals_to_handle),
        virtual_rank=virtual_local_rank,
        patience=rendezvous.join,
        grace=grace_of(
            {
                "--grace": grace,
                "--shutdown-timeout": shutdown_timeout,
                names.GRACE: os.environ.get(names.GRACE) or None,
            },
            in_pod=bool(place.pod),
        ),
        check=network_check or exclude_straggler or bool(os.environ.get(names.CHECK)),
        payload=tuple(shlex.split(os.environ.get(names.CHECK_COMMAND, ""))),
    )
    check_script(settings)
    logs.configure(os.environ, node=place.node)
    if parent:  # the master's log is in this terminal
        logging.getLogger("elasticjob.agent").addFilter(is_told_here_alone)
    if log_dir is None and (settings.redirects or settings.tee):
        settings = replace(settings, log_dir=Path(tempfile.mkdtemp(prefix="elasticjob-")))
        log.info("the workers' output is in %s", settings.log_dir)
    if node_rank is not None and ranked is None:
        log.info(
            "--node-rank is ignored with --rdzv-backend %s: ranks follow the order of joining", rdzv_backend
        )
    if place.master and not standalone:
        return asyncio.run(hosting.join(settings))
    beside = standalone and high > 1
    if beside:
        high = fitting(low, high, settings.workers)
    job = HostedJob(
        low, high, host, port, rdzv_id, rendezvous, exclude_stragglers=exclude_straggler, beside=beside
    )
    return asyncio.run(hosting.host_or_join(settings, job))


def fitting(low: int, high: int, workers: int) -> int:
    """Return how many nodes this machine may have."""
    from elasticjob.cli.standalone.peers import machine  # with the master: not for --help

    most = machine(workers, os.environ).most(low, high)
    if most < high:
        log.info("this machine has room for %d of %d nodes", most, high)
    return most


def meeting_point(endpoint: str, address: str, port: int, low: int) -> tuple[str, int]:
    """Return host and port at which the nodes meet, as in torchrun; no host if this node can train alone."""
    if endpoint:
        return endpoint_of(endpoint)
    if address or low > 1:
        return (address or STATIC).strip("[]"), port_of("--master-port", str(port), str(port))
    return "", 0


def script_of(name: str, arguments: Sequence[str], *, module: bool, python: bool, path: bool) -> Script:
    """Return the script; Failure if the flags contradict each other. With `path` they do not count."""
    if path:
        return Script(name, tuple(arguments))
    if module and not python:
        raise Failure("--module and --no-python exclude each other", code=Exit.USAGE)
    return Script(name, tuple(arguments), module=module, python=python)


def restarts(given: int | None) -> dict[str, int]:
    """Return the settings for --max-restarts: a number that is given is kept, with or without progress."""
    if given is None:
        return {}
    if given < 0:
        raise Failure(f"--max-restarts is {given}", next_step="give 0 or more", code=Exit.USAGE)
    return {"max_restarts": given, "tries": 0}


def forgiveness(given: str) -> float:
    """Return the seconds without a failure after which earlier ones do not count; 0 for never."""
    if given and not given.isdecimal():
        problem = f"{names.FORGIVE_AFTER} is {given!r}"
        raise Failure(problem, next_step="give a number of seconds, or 0 for never", code=Exit.USAGE)
    return float(given or 0)


def grace_of(given: Mapping[str, float | str | None], *, in_pod: bool) -> float:
    """Return the seconds that workers have to exit: the first that is given, at most what the pod has."""
    found = {name: seconds(name, value) for name, value in given.items() if value is not None}
    first = next(iter(found.values()), Settings.grace)
    pods = found.get(names.GRACE, Settings.grace)
    return min(first, max(pods - CLOSING, pods / 2)) if in_pod else first


def seconds(name: str, value: float | str) -> float:
    """Return the seconds that a flag or variable gives; Failure unless they are between 0 and a day."""
    with suppress(ValueError):
        if 0 <= float(value) <= DAY:
            return float(value)
    raise Failure(
        f"{name} is {value}", next_step=f"give seconds from 0 to {DAY}, which is a day", code=Exit.USAGE
    )


def check_script(settings: Settings) -> None:
    """Fail, before torch is imported, if the script is missing or has a syntax error."""
    try:
        check(settings.script)
    except Unusable as error:
        code = Exit.USAGE if error.missing else Exit.FAILED
        termination.write(
            settings.place.termination_log, reason=termination.CANNOT_START, message=str(error), code=code
        )
        raise Failure(str(error), code=code) from None


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
