"""Kills at random places of a TensorFlow job over servers.

Servers, workers, the first of them (the chief) and the master are killed in steady training, beside a change
of the number of servers and beside a save; two servers at once; a worker or a server is stopped for seconds
and goes on. As root, with nft, a server is also cut off for seconds: packets to its address are dropped, or
its connections reset, while the master still hears from it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

from lab.jobs.servers import Servers, opened
from lab.story import Job, Length, Trouble

HOOK: Final = "type filter hook input priority 0"


async def server(scene: Servers) -> None:
    for pod in scene.some("ps"):
        scene.signal(pod)


async def two_servers(scene: Servers) -> None:
    for pod in scene.some("ps", 2):
        scene.signal(pod)


async def worker(scene: Servers) -> None:
    scene.spoilt += 1
    for pod in scene.some("worker"):
        scene.signal(pod)


async def chief(scene: Servers) -> None:
    scene.spoilt += 1
    scene.signal(scene.chief())


async def master(scene: Servers) -> None:
    for process in scene.job.processes("master-0"):
        os.kill(process.pid, signal.SIGKILL)


async def stopped_worker(scene: Servers) -> None:
    scene.spoilt += 1
    for pod in scene.some("worker"):
        scene.signal(pod, signal.SIGSTOP)
        changing = await scene.change()
        await asyncio.sleep(scene.chance.choice((1.0, 20.0)))
        scene.signal(pod, signal.SIGCONT)
        await changing


async def stopped_server(scene: Servers) -> None:
    for pod in scene.some("ps"):
        scene.signal(pod, signal.SIGSTOP)
        await asyncio.sleep(scene.chance.choice((1.0, 10.0)))
        scene.signal(pod, signal.SIGCONT)


async def cut_off_server(scene: Servers) -> None:
    workers = scene.some("worker", 9)
    for pod in scene.some("ps"):
        with cut_off(
            scene.job.pods()[pod].status.pod_ip, scene.chance.choice(("drop", "reject with tcp reset"))
        ):
            await asyncio.sleep(scene.chance.choice((1.0, 5.0)))
    scene.spoilt += len(workers)


@contextmanager
def cut_off(address: str, verdict: str) -> Iterator[None]:
    """Let no packet to or from an address of this machine come in."""
    table = f"kills_{secrets.token_hex(4)}"
    rules = [f"ip {way} {address} tcp flags & rst == 0 {verdict}" for way in ("saddr", "daddr")]
    _nft("\n".join((f"table inet {table} {{ chain in {{", HOOK, *rules, "}", "}", "")))
    try:
        yield
    finally:
        _nft(f"delete table inet {table}\n")


def _nft(text: str) -> None:
    subprocess.run(("nft", "-f", "-"), input=text, text=True, check=True)


Kill = Callable[[Servers], Awaitable[None]]


async def in_training(scene: Servers, kill: Kill) -> None:
    await kill(scene)


async def beside_a_change(scene: Servers, kill: Kill) -> None:
    changing = await scene.change()
    await scene.soon()
    await kill(scene)
    await changing


async def beside_a_save(scene: Servers, kill: Kill) -> None:
    (scene.folder / "save").touch()
    await scene.soon()
    await kill(scene)


def _row(kill: Kill, moment: Callable[[Servers, Kill], Awaitable[None]] = in_training) -> Trouble:
    name = f"ps-{kill.__name__}" + (f"-{moment.__name__}" if moment is not in_training else "")
    name = name.replace("_", "-")

    async def act(scene: Servers) -> str:
        async with scene.steps.standstill(name):
            await moment(scene, kill)
        return f"{name}, stood still {scene.steps.stood[name]:.2f} s"

    return Trouble(name, Servers, act)


CUTS: Final = (
    (_row(cut_off_server), _row(cut_off_server, beside_a_change), _row(cut_off_server, beside_a_save))
    if os.geteuid() == 0 and shutil.which("nft")
    else ()
)
ALONE: Final = (server, worker, chief, two_servers, master, stopped_worker, stopped_server)
TROUBLES: Final = (
    *CUTS,
    *map(_row, ALONE),
    *(_row(kill, beside_a_change) for kill in (server, worker, chief, master)),
    *(_row(kill, beside_a_save) for kill in (server, worker, chief, master)),
)
JOBS: Final = (
    Job(
        "servers",
        "a TensorFlow job over servers that are killed, stopped and cut off: each record counts once",
        ("forked",),
        opened,
        Servers,
        {row.name: 1 for row in TROUBLES},
        ("spoilt-alone",),
        Length(troubles=30),
    ),
)
