"""The `elasticjob master` process: run until the verdict or a signal, then write the termination message."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob, OptimizeMode
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import Clock, SystemClock
from elasticjob.kube.errors import ConfigError, KubeError
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import POD
from elasticjob.master.cluster.brain import Brain
from elasticjob.master.cluster.cluster import Cluster, after_told, pods_of, spec_of
from elasticjob.master.cluster.settings import Settings
from elasticjob.master.durable.store import MANAGER, ConfigMap, File, Nowhere, Store, StoreError, restore
from elasticjob.master.handlers import nodes
from elasticjob.master.scalers.pods import MANAGED_BY, Rules
from elasticjob.master.serving.core import Core
from elasticjob.master.serving.server import Master
from elasticjob.master.state.job import End, Job

T = TypeVar("T")
M = TypeVar("M", bound=Core)
log = logging.getLogger("elasticjob.master")

LINGER = 5.0  # seconds after the verdict in which agents can still fetch it


async def run(
    settings: Settings, clock: Clock | None = None, rules: Callable[[], Rules] | None = None
) -> int:
    """Run one master to its end. Returns the exit code: 0 Succeeded or stopped, 1 Failed.

    With `rules` it can make the pods of its job itself.
    """
    chosen = clock or SystemClock()
    stopped = asyncio.Event()
    with_signals(stopped)
    collect_rarely()
    place = in_cluster(settings, chosen, rules) if settings.namespace else alone(settings, chosen)
    job = await live(place, stopped)
    say_last_words(job, settings.termination_log)
    return exit_code(job)


async def live(place: AbstractAsyncContextManager[Core], stopped: asyncio.Event) -> Job:
    """Run a master until its verdict, or until it is told to stop. Returns the last state of its job."""
    async with place as master:
        await _either(master.ended, stopped)
        if master.job.verdict:
            await master.wait_until_told(LINGER)
    return master.job


def exit_code(job: Job) -> int:
    """Return the exit code of the master of a job: 0 Succeeded or stopped, 1 Failed."""
    return 1 if job.verdict and job.verdict.end is End.FAILED else 0


def collect_rarely() -> None:
    """Let Python look for reference cycles rarely, and never again among what was imported.

    A master holds tens of thousands of objects that live as long as their connections; to look at all of them
    again and again takes a fifth of its time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def with_signals(stopped: asyncio.Event) -> None:
    """Let SIGTERM and SIGINT set `stopped`."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)


@asynccontextmanager
async def alone(settings: Settings, clock: Clock) -> AsyncIterator[Master]:
    """Run a master outside of a cluster."""
    store: Store = File(settings.state) if settings.state else Nowhere()
    job = restore(await store.load(), settings.spec, clock.now())
    token = read_token(settings.token_file)
    async with Master(job, token, store, host=settings.host, port=settings.port, clock=clock) as master:
        yield master


@asynccontextmanager
async def in_cluster(
    settings: Settings, clock: Clock, rules: Callable[[], Rules] | None = None
) -> AsyncIterator[Master]:
    """Run a master as a pod of its job."""
    async with AsyncExitStack() as stack:
        found = await config.load(settings.kubeconfig)
        client = await stack.enter_async_context(Client(found, clock=clock, user_agent=MANAGER))

        def serve(job: Job, store: Store) -> Master:
            token = read_token(settings.token_file)
            return Master(job, token, store, host=settings.host, port=settings.port, clock=clock)

        yield await stack.enter_async_context(with_client(client, settings, clock, serve, rules))


@asynccontextmanager
async def with_client(
    client: Client,
    settings: Settings,
    clock: Clock,
    make: Callable[[Job, Store], M],
    rules: Callable[[], Rules] | None = None,
) -> AsyncIterator[M]:
    """Run the master that `make` returns for the state of its job, and show it the job's objects."""
    async with AsyncExitStack() as stack:
        declared = await _read_job(client, settings, clock)
        name = f"{settings.job}-master-state"
        reference = owner_reference(declared, ELASTICJOB, controller=False)
        store = ConfigMap(client, settings.namespace, name, reference)
        job = restore(await _load(store, clock), spec_of(declared, settings.limits), clock.now())
        job = after_told(job, declared)
        # before a node can join: the first world waits for all pods that run, not for those that came first
        job = nodes.observe(job, await _pods(client, settings, clock), clock.now())
        master = make(job, store)
        await stack.enter_async_context(master)
        brain = await _brain(stack, declared, settings, clock)
        own = rules() if rules and declared.spec.managed_by == MANAGED_BY else None
        cluster = Cluster(client, declared, master, settings.limits, settings.pod, brain, own)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        feeding = tasks.create_task(cluster.run())
        yield master
        feeding.cancel()
        if not master.retired:
            await cluster.write_last_status()


async def _brain(stack: AsyncExitStack, job: ElasticJob, settings: Settings, clock: Clock) -> Brain | None:
    """Return the connection to the Brain of a job; None in other modes than cluster, and without one."""
    address = job.spec.brain_service or settings.brain
    if job.spec.optimize_mode is not OptimizeMode.CLUSTER or not address:
        return None
    file = settings.brain_token_file
    session = await stack.enter_async_context(aiohttp.ClientSession())
    return Brain(address, lambda: file.read_text().strip() if file else "", session, clock.now)


def read_token(path: Path | None) -> str:
    """Return the job's token; without a file, make one and log it."""
    if path:
        return path.read_text().strip()
    token = secrets.token_urlsafe(32)
    log.info("the token of this job is %s", token)
    return token


def say_last_words(job: Job, path: Path | None) -> None:
    """Write the termination message: the verdict, or that the master was stopped without one."""
    words = last_words(job)
    log.info("master of job %s ends: %s", job.spec.job, words["message"])
    if path:
        path.write_bytes(msgspec.json.encode(words))


def last_words(job: Job) -> dict[str, object]:
    """Return the termination message for the controller: Succeeded, Failed, or Stopped (the job goes on)."""
    verdict, progress = job.verdict, job.training.progress
    if verdict is None:
        words: dict[str, object] = {
            "verdict": "Stopped",
            "reason": "Stopped",
            "message": "the master was told to stop; its successor continues",
        }
    else:
        words = {"verdict": verdict.end.value, "reason": verdict.reason, "message": verdict.message}
    words["account"] = {cause: round(seconds, 3) for cause, seconds in job.account.seconds.items()}
    return words | ({"progress": progress} if progress else {})


async def _either(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _read_job(client: Client, settings: Settings, clock: Clock) -> ElasticJob:
    """Return the ElasticJob; waits for the API server, since the master cannot start without it."""
    what = f"ElasticJob {settings.job}"
    return await _until_answer(lambda: client.get(ELASTICJOB, settings.job, settings.namespace), what, clock)


async def _pods(client: Client, settings: Settings, clock: Clock) -> list[nodes.Pod]:
    """Return the pods of the job's nodes; waits for the API server."""
    labels, what = f"{LABEL_JOB}={settings.job}", f"pods of job {settings.job}"
    found = await _until_answer(lambda: client.list(POD, settings.namespace, labels=labels), what, clock)
    return pods_of(settings.job, found)


async def _until_answer(ask: Callable[[], Awaitable[T]], what: str, clock: Clock) -> T:
    """Return what the API server answers; asks again each second until it does."""
    while True:
        try:
            return await ask()
        except ConfigError:
            raise
        except KubeError as error:
            log.warning("%s cannot be read, again in a second: %s", what, error)
            await clock.sleep(1.0)


async def _load(store: Store, clock: Clock) -> bytes | None:
    """Return the snapshot, with retries: starting without an existing one would reuse round numbers."""
    while True:
        try:
            return await store.load()
        except StoreError as error:
            log.warning("%s; again in a second", error)
            await clock.sleep(1.0)
