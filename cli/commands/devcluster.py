"""`elasticjob devcluster`: a Kubernetes in this process, until Ctrl-C or for the duration of one command."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from elasticjob.api.logs import configure
from elasticjob.api.sentences import amount
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import kept_running, operator_of
from elasticjob.cli.output import say
from elasticjob.devcluster import DevCluster, StateInUse, VirtualNode
from elasticjob.devcluster.node.container.processes import SUPERVISOR
from elasticjob.devcluster.node.heartbeat import machine_capacity
from elasticjob.devcluster.quantity import parse

OURS = '"name": "devcluster"'
"""Present in every kubeconfig that this command wrote, so that it overwrites no other."""


def devcluster(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="A program to run with KUBECONFIG set; its exit code is returned.", show_default=False
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig.", show_default="STATE/kubeconfig")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Directory for logs, volumes and claims.",
            show_default="a temporary directory, deleted at the end",
        ),
    ] = None,
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="Also run the operator, with its CRDs applied; it is restarted if it exits.",
        ),
    ] = False,
    keep: Annotated[bool, typer.Option(help="Keep running after COMMAND, until Ctrl-C.")] = False,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes; all of them are this machine.")] = 1,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            help="Capacity of each node: cpu=8, memory=16Gi, nvidia.com/gpu=2 (GPUs are simulated)."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API server.", show_default="any free port")
    ] = 0,
    rbac: Annotated[
        bool,
        typer.Option("--rbac", help="Enforce RBAC, as on a real cluster."),
    ] = False,
) -> int:
    """Run Kubernetes in one process, for kubectl and tests: no containers, no root, nothing to install.

    Pods run as processes of this machine. Images [bold]python:*[/], [bold]busybox*[/], [bold]debian*[/] and
    [bold]elasticjob/*[/] all mean the programs of this machine, those of this Python environment first.
    Memory limits are enforced; cpu limits, securityContext and read-only mounts have no effect.

    Example: [bold]elasticjob devcluster -- kubectl run hello --image=busybox --restart=Never -- echo hello[/]
    """
    settings = Settings(
        tuple(command or ()), kubeconfig, keep, node_list(nodes, capacity or []), port, operator, rbac
    )
    configure(quiet=True)
    with folder(state) as place:
        try:
            return asyncio.run(serve(settings, place))
        except StateInUse as error:
            raise Failure(str(error)) from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise Failure(f"port {port} is in use", next_step="choose another --port") from error


@dataclass(frozen=True)
class Settings:
    """The command's flags."""

    command: Sequence[str]
    kubeconfig: Path | None
    keep: bool
    nodes: Sequence[VirtualNode]
    port: int
    operator: bool = False
    rbac: bool = False


def node_list(count: int, capacity: Sequence[str]) -> list[VirtualNode]:
    """The nodes, with this machine's resources unless `capacity` overrides them. Raises Failure."""
    given = dict(_amount(text) for text in capacity)
    names = ["devcluster"] if count == 1 else [f"devcluster-{number}" for number in range(count)]
    return [VirtualNode(name, {**machine_capacity(), **given}) for name in names]


def _amount(text: str) -> tuple[str, str]:
    name, equals, amount = text.partition("=")
    try:
        parse(amount)
    except ValueError as error:
        raise Failure(f"--capacity {text}: {error}", code=Exit.USAGE) from error
    if not (name and equals):
        raise Failure(f"--capacity {text} has no name", next_step="write cpu=8", code=Exit.USAGE)
    return name, amount


@contextmanager
def folder(state: Path | None) -> Iterator[Path]:
    """The state folder; a temporary one is deleted at the end."""
    if state is not None:
        yield state
        return
    place = Path(tempfile.mkdtemp(prefix="elasticjob-devcluster-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def serve(settings: Settings, state: Path) -> int:
    """Run the cluster until it is stopped; the exit code."""
    target = settings.kubeconfig
    if target is not None and target.exists() and OURS not in target.read_text():
        raise Failure(
            f"{target} is the kubeconfig of another cluster and is not overwritten",
            next_step="name a new file",
            code=Exit.USAGE,
        )
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            DevCluster(
                state,
                nodes=settings.nodes,
                port=settings.port,
                kubeconfig=settings.kubeconfig,
                rbac=settings.rbac,
                supervisor=preloaded.COMMAND if settings.operator else SUPERVISOR,
            )
        )
        if settings.operator:
            process = await stack.enter_async_context(operator_of(cluster.kubeconfig, cluster.state))
            await stack.enter_async_context(kept_running(process, partial(say, err=True)))
        code = int(Exit.DONE)
        if settings.command:
            code = await run(settings.command, cluster.kubeconfig)
        if settings.keep or not settings.command:
            say(directions(cluster, len(settings.nodes)))
            await until_stop(cluster)
    return code


def directions(cluster: DevCluster, nodes: int) -> str:
    """Instructions for using the cluster from another terminal."""
    return (
        f"Kubernetes is up at {cluster.url}, {amount(nodes, 'node')}. In another terminal:\n\n"
        f"    export KUBECONFIG={cluster.kubeconfig}\n"
        f"    kubectl get pods --watch\n\n"
        f"Files of pods are in {cluster.state}. Ctrl-C ends the cluster and everything that runs in it."
    )


async def until_stop(cluster: DevCluster) -> None:
    """Wait for Ctrl-C or SIGTERM, or until a part of the cluster fails."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    waiting = {asyncio.create_task(stopped.wait()), asyncio.create_task(cluster.wait())}
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    for task in done:
        task.result()


async def run(command: Sequence[str], kubeconfig: Path) -> int:
    """Run a program on the cluster; return its exit code, 128 + n after signal n. Signals are passed on."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        raise Failure(f"cannot run {command[0]!r}: {error.strerror}", code=Exit.USAGE) from error
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _pass_on, process, number)
    code = await process.wait()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(number)
    return code if code >= 0 else 128 - code


def _pass_on(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Pass a signal on, except a terminal's SIGINT, which the program gets by itself."""
    by_terminal = number == signal.SIGINT and sys.stdin.isatty()
    if process.returncode is None and not by_terminal:
        process.send_signal(number)
