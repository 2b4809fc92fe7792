"""The agent's I/O shell: turns messages, orders and signals into events, and performs decided steps.

All events go through one queue and are handled one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from string import Template
from typing import Any, assert_never

import msgspec

from elasticjob.api.rpc.address import host_port, parts
from elasticjob.api.rpc.check import Part
from elasticjob.api.rpc.message import Request
from elasticjob.api.rpc.nodes import Hang, Kept, Order, Report, Succession, Usage, Watch
from elasticjob.api.rpc.rendezvous import Join, Recovery
from elasticjob.trainer.agent import actions, succession, words
from elasticjob.trainer.agent.actions import Action, Exit, Step
from elasticjob.trainer.agent.check import FAILED, PAYLOAD, Bench, check
from elasticjob.trainer.agent.checkpoints.commits import Keeper, shared_memory, spill
from elasticjob.trainer.agent.decide import LEFT, again_at, decide, still_saving
from elasticjob.trainer.agent.group import (
    AskedToLeave,
    Dismissed,
    Ended,
    Event,
    Formed,
    Group,
    Ordered,
    Said,
    Saved,
    Terms,
    Vetted,
    observe,
)
from elasticjob.trainer.agent.processes.environ import with_defaults, worker_environment
from elasticjob.trainer.agent.processes.folder import own_folder
from elasticjob.trainer.agent.processes.workers import Workers
from elasticjob.trainer.agent.script import imports, is_elastic, preloads
from elasticjob.trainer.agent.seeing import health, memory, stacks
from elasticjob.trainer.agent.seeing.footprint import Footprint
from elasticjob.trainer.agent.seeing.gpus import VISIBLE, Devices
from elasticjob.trainer.agent.seeing.notices import Master, Notices, rank_of, stalls, waits
from elasticjob.trainer.agent.seeing.usage import Meter, look_at
from elasticjob.trainer.agent.settings import Recover, Settings, Start, count_devices, hostname
from elasticjob.trainer.link import address
from elasticjob.trainer.link.channel import Advance, Copied, Hampered
from elasticjob.trainer.link.master import (
    MasterClient,
    MasterError,
    Refused,
    Rejected,
    Stale,
    Stopping,
    Unreachable,
)
from elasticjob.trainer.link.sockets import bound

log = logging.getLogger("elasticjob.agent")

AGAIN = 75  # exit code: restart this pod
REPORT_EVERY = 1.0  # seconds
NOTICE_EVERY = 0.5
SUCCEED_EVERY = 0.2
LAST_SAVE = 600.0  # seconds that the last checkpoint may take to get from memory to storage
SAVING_NOTICE = (
    5.0  # seconds after which it is said, again and again, that the last checkpoint is not written
)
HURRIED_SAVE = 20.0  # the same when the node was told to leave, or failed
LAST_CALLS = 3.0  # seconds that the last requests to the master may take; it may be gone already
FAREWELL = 1.0  # the same for a planned leave
WAY = "master.json"
PREFIX = "[${role_name}${local_rank}]: "


TakeOver = Callable[[Succession | None], Awaitable[None]]
"""Holds the next master in this process, at this node's address; OSError if that is not possible."""


async def run(settings: Settings, environment: Mapping[str, str], take_over: TakeOver | None = None) -> int:
    """Run the workers of one node to their end; return the exit code. The only entry point of the agent."""
    place = settings.place
    async with MasterClient(place.master, token=place.token, patience=settings.patience) as master:
        with own_folder() as folder, own_folder(shared_memory(environment)) as blocks:
            spill(blocks, folder)
            keeper = Keeper(blocks, place.node, place.token, place.address)
            return await Agent(
                settings, environment, master, folder, keeper, take_over, memory.cgroup()
            ).run()


class Agent:
    """The agent of one node."""

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        master: MasterClient,
        folder: Path,
        keeper: Keeper,
        take_over: TakeOver | None = None,
        cgroup: memory.Cgroup | None = None,
    ) -> None:
        self._settings = settings
        self._environment = with_defaults(environment, settings.workers)
        self._master = master
        self._folder = folder
        self._keeper = keeper
        self._take_over = take_over
        self._left: Succession | None = None
        self._way: address.Way | None = None
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[None]] = set()
        self._joining: asyncio.Task[None] | None = None
        self._reserved: socket.socket | None = None
        self._news = asyncio.Event()
        self._reported_round = 0
        self._meter = Meter()
        self._footprint = Footprint(cgroup, environment)
        self._gpus = Devices(environment.get(VISIBLE))
        self._kills = memory.Kills(cgroup)
        self._used = 0
        self._warned = False
        self._watcher = health.Watcher()
        self._stacks = self._written = 0
        self._joined: float | None = None
        self._told = ""
        imported = imports(settings.script)
        self._group = Group(
            terms=terms(settings), recovery=recovery(settings.recover, imported), vetted=not settings.check
        )
        self._workers = Workers(
            settings.script,
            emit=self._events.put_nowait,
            preloads=preloads(imported) if settings.start is Start.WARM and settings.script.python else None,
            prefix=self._prefix if settings.workers > 1 or settings.template else None,
            log_file=self._log_file,
            shown=self._shown,
            folder=folder,
            echo=self._lost_peers,
        )

    async def run(self) -> int:
        """Act on events until the group has ended."""
        loop = asyncio.get_running_loop()
        signals = [each for each in self._settings.signals if not survives(each)]
        for number in signals:
            asked = AskedToLeave(f"received {number.name}", 128 + number)
            loop.add_signal_handler(number, self._events.put_nowait, asked)
        self._kills.look(time.monotonic())
        self._environment |= await self._keeper.open(lambda: self._group.world)
        self._say_where_the_master_is()
        if self._settings.check:
            self._start(self._vet())
        else:
            self._workers.prepare(self._environment)
        loop.add_signal_handler(signal.SIGCHLD, self._workers.reap_orphans)
        self._gpus.start()
        self._start(self._watch())
        self._start(self._report())
        self._start(self._look())
        self._start(self._notice())
        if self._take_over is not None:
            self._start(self._succeed(self._take_over))
        try:
            end = await self._act()
            if self._group.unsaved is None:
                await self._keeper.finish(last_save(end, self._group))
            await self._finish_calls(end)
        finally:
            await self._close()
            if self._warned:
                words.clear(self._settings.place.termination_log)
            for number in signals:
                loop.remove_signal_handler(number)
        self._last_words(end)
        return end.code

    async def _act(self) -> Exit:
        """Perform steps until one says Exit."""
        loop = asyncio.get_running_loop()
        while True:
            while (step := decide(self._group, loop.time())) is not None:
                if (end := self._perform(step)) is not None:
                    return end
            event = await self._next_event(again_at(self._group))
            if event is not None:
                self._group = observe(self._group, self._explained(event), loop.time())
                if isinstance(event, Said) and isinstance(event.message, Advance):
                    self._noticed(event.message)
                if isinstance(event, Said) and isinstance(event.message, Copied):
                    self._keeper.copied(event.message)
                if isinstance(event, Said) and isinstance(event.message, Hampered):
                    self._keeper.hampered(event.message)
                if isinstance(event, Ordered) and (hang := event.orders.hang) and hang.number > self._stacks:
                    self._stacks = hang.number
                    self._start(self._write_stacks(hang))

    def _explained(self, event: Event) -> Event:
        """Return the end of a worker with what the kernel says about it."""
        if not isinstance(event, Ended) or not memory.is_by_kill(event.code, event.message):
            return event
        if not self._kills.recent(time.monotonic()):
            return event
        return replace(event, out_of_memory=self._told_use())

    def _told_use(self) -> str:
        """Return what the node used at last, in words."""
        limit = self._kills.cgroup.limit() if self._kills.cgroup else None
        return f"its pod used {memory.told(self._used, limit)} up to a second before"

    async def _next_event(self, until: float | None) -> Event | None:
        """Return the next event, None at the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._events.get()
        return None

    def _perform(self, step: Step) -> Exit | None:
        """Perform all actions of a step; return its Exit if there is one."""
        self._group = step.group
        if step.why:
            self._told = step.why
            log.info(step.why)
        for action in step.actions:
            if isinstance(action, Exit):
                return action
            self._do(action)
        return None

    def _do(self, action: Action) -> None:
        match action:
            case actions.Spawn(slot=slot):
                file = self._folder / f"error-{slot}.json"
                environment = worker_environment(
                    self._environment, self._settings, self._group, action, file, self._folder / WAY
                )
                self._workers.spawn(slot, environment, file)
            case actions.Signal(slot=slot, number=number):
                self._workers.signal(slot, number)
            case actions.Tell(slot=slot, message=message):
                self._workers.tell(slot, message)
            case actions.Report(request=request):
                self._call(request)
            case actions.Ask(join=join):
                self._ask(join)
            case actions.Save():
                self._start(self._save())
            case actions.Exit():
                pass
            case _:
                assert_never(action)

    def _ask(self, join: Join | None) -> None:
        """Replace the pending Join."""
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        if join is not None:
            asked = join if join.port else replace_port(join, self._reserve_port())
            asked = msgspec.structs.replace(asked, files=self._keeper.port)
            self._joining = self._start(self._join(asked))

    async def _join(self, join: Join) -> None:
        try:
            world = await self._master.call(join)
        except Stale as error:
            self._events.put_nowait(Dismissed(AGAIN, "Replaced", str(error)))
        except Refused as error:
            self._events.put_nowait(Dismissed(0, "Refused", str(error)))
        except Stopping:
            pass  # the next orders say STOP
        except (Rejected, Unreachable) as error:
            self._events.put_nowait(Dismissed(AGAIN, type(error).__name__, str(error)))
        else:
            self._events.put_nowait(Formed(world))

    async def _save(self) -> None:
        """Write the last checkpoint; say so if that takes long."""
        saving = asyncio.ensure_future(self._keeper.finish(LAST_SAVE))
        try:
            while not (await asyncio.wait({saving}, timeout=SAVING_NOTICE))[0]:
                log.warning("%s", still_saving(self._group.terms, self._keeper.kept.error, LAST_SAVE))
            self._events.put_nowait(Saved(saving.result()))
        finally:
            saving.cancel()

    async def _vet(self) -> None:
        """Have this node checked; prepare its workers if it has passed."""
        bench = Bench(self._settings.payload or PAYLOAD, payloads(self._settings), self._environment)
        try:
            verdict = await check(self._master, self._group.terms, bench)
        except Stopping:
            return  # the next orders say STOP
        except Refused as error:
            self._events.put_nowait(Dismissed(0, "Refused", str(error)))
            return
        except MasterError as error:
            self._events.put_nowait(Dismissed(AGAIN, type(error).__name__, str(error)))
            return
        finally:
            bench.close()
        if verdict.part is Part.EXCLUDED:
            self._events.put_nowait(Dismissed(FAILED, "NodeCheckFailed", f"node check: {verdict.reason}"))
            return
        if verdict.reason:
            log.warning("node check: %s", verdict.reason)
        self._workers.prepare(self._environment)
        self._events.put_nowait(Vetted())

    async def _watch(self) -> None:
        """Keep a Watch pending at the master, and emit its orders."""
        seen, found = 0, False
        while True:
            try:
                orders = await self._master.call(self._heartbeat(seen))
            except Stale as error:
                self._events.put_nowait(Dismissed(AGAIN, "Replaced", str(error)))
                return
            except MasterError as error:
                self._events.put_nowait(Dismissed(AGAIN, type(error).__name__, str(error)))
                return
            if not found:  # the workers may import for long before they join
                found = True
                log.info("found the master at %s", self._master.address)
            if orders.succession is not None:
                self._left = orders.succession
                orders = msgspec.structs.replace(orders, succession=None)
            if orders != self._group.orders:
                self._events.put_nowait(Ordered(orders))
            if orders.order is Order.STOP:
                return
            seen = orders.version

    def _heartbeat(self, seen: int) -> Watch:
        place, group = self._settings.place, self._group
        return Watch(
            node=place.node,
            role=place.role,
            index=place.index,
            incarnation=group.terms.incarnation,
            pod=place.pod,
            seen=seen,
            round=group.round if group.training else 0,
        )

    async def _report(self) -> None:
        """Report progress and usage about once a second, the first progress in a round at once."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_EVERY):
                    await self._news.wait()
            self._news.clear()
            self._kills.look(time.monotonic())
            used = self._footprint.read()
            self._remember(used)
            if not self._group.training:
                continue
            report = Report(
                node=self._group.terms.node,
                incarnation=self._group.terms.incarnation,
                round=self._group.round,
                progress=self._group.progress if self._group.progress_round == self._group.round else None,
                usage=self._usage(used),
                workers=self._watcher.states(time.monotonic()),
                stacks=self._written,
                kept=self._keeper.kept if self._keeper.kept != Kept() else None,
            )
            with suppress(MasterError):  # the next report includes it
                await self._master.call(report, patience=REPORT_EVERY)

    def _usage(self, used: int | None) -> Usage | None:
        """What this node uses; None if its memory cannot be read, which is not 0."""
        cores, gpus = self._meter.cores(self._workers.pids), self._gpus.at(time.monotonic())
        if used is None:
            return None
        most, by_kernel = self._footprint.peak, self._footprint.kernel_peak
        return Usage(cpu=cores, memory=used, peak=most, kernel_peak=by_kernel, gpus=gpus)

    def _remember(self, used: int | None) -> None:
        """Keep what is used; near the limit in the termination message too: a kill of all leaves no time."""
        self._used = used or self._used
        limit = self._kills.cgroup.limit() if self._kills.cgroup else None
        near = used is not None and memory.is_near(used, limit)
        if near:
            words.write(self._settings.place.termination_log, reason="", message=self._told_use(), code=0)
        elif self._warned:
            words.clear(self._settings.place.termination_log)
        self._warned = near

    async def _succeed(self, take_over: TakeOver) -> None:
        """While the master is gone, look for its successor, or be it."""
        _, port = parts(self._settings.place.master)
        loop, refused = asyncio.get_running_loop(), ""
        while True:
            await asyncio.sleep(SUCCEED_EVERY)
            if self._master.failing is None:
                continue
            silent, left = loop.time() - self._master.failing, self._left
            heirs = succession.heirs(left, silent) if left else ()
            self._master.look_for(host_port(heir.address, port) for heir in heirs)
            if succession.is_next(self._settings.place.node, left, silent):
                try:
                    await take_over(left)
                except OSError as error:  # another node on this machine may have it
                    if str(error) != refused:
                        refused = str(error)
                        log.info("this node does not hold the master: %s", error.strerror or error)
                else:
                    gone = left.host if left else f"the master at {self._master.address}"
                    log.warning("%s is gone; this node holds the master now", gone)
                    self._left, self._master.failing = None, None

    async def _notice(self) -> None:
        """Say what this node waits for, and which workers make no steps."""
        notices = Notices()
        while True:
            await asyncio.sleep(NOTICE_EVERY)
            now = asyncio.get_running_loop().time()
            group, client = self._group, self._master
            self._say_where_the_master_is()
            self._joined = (self._joined or now) if group.asking else None
            master = Master(client.address, client.heard, client.trouble, self._settings.patience)
            states = self._watcher.states(time.monotonic())
            conditions = chain(waits(group, master, self._joined, now), stalls(group, states, now))
            for sentence in notices.due(conditions, now):
                log.warning("%s", sentence)

    def _say_where_the_master_is(self) -> None:
        """Write the way to the master for the workers, at first and when it has moved."""
        place, master = self._settings.place, self._master.address
        if self._way is not None and self._way.address == master:
            return
        token = address.token_file(self._environment, place.token, self._folder)
        incarnation = self._group.terms.incarnation
        self._way = address.Way(master, str(token), place.node, incarnation)
        address.write(self._folder / WAY, self._way)

    async def _look(self) -> None:
        """Look at the workers a few times a second; report at once what the master should know."""
        while True:
            await asyncio.sleep(health.EVERY)
            rounds = {worker.slot: worker.round for worker in self._group.training}
            pulses, pids = self._workers.pulses, self._workers.pid_of
            processes = {slot: seen for slot, pid in pids.items() if (seen := look_at(pid))}
            sights = {
                slot: health.Sight(pulses[slot], *processes[slot]) for slot in pulses.keys() & processes
            }
            if self._watcher.look(rounds, sights, time.monotonic()):
                self._news.set()

    async def _write_stacks(self, hang: Hang) -> None:
        """Write where all workers of this node are, to the log and to the log directory; tell the master."""
        log.warning("%s", hang.reason)
        stopped = {state.local_rank for state in self._watcher.states(time.monotonic()) if state.stopped}
        group, pids = self._group, self._workers.pid_of
        texts = await asyncio.gather(
            *(
                stacks.stacks_of(pid, self._workers.stacks_file(slot), stopped=slot in stopped)
                for slot, pid in pids.items()
            )
        )
        for slot, text in zip(pids, texts, strict=True):
            head = f"stacks of rank {rank_of(group, slot)} (worker {slot}, pid {pids[slot]})"
            log.warning("%s:\n%s", head, stacks.shortened(text))
            self._keep(slot, f"{hang.reason}\n{head}:\n{text}\n\n")
        self._written = hang.number
        self._news.set()

    def _keep(self, slot: int, text: str) -> None:
        """Append stacks to a worker's folder below the log directory, if there is one."""
        if self._settings.log_dir is None:
            return
        folder = self._settings.log_dir / self._settings.place.job / str(slot)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "stacks.log").open("a") as file:
                file.write(text)
        except OSError as error:
            log.warning("the stacks are not kept in %s: %s", folder, error)

    def _noticed(self, advance: Advance) -> None:
        if advance.round != self._reported_round:
            self._reported_round = advance.round
            self._news.set()

    def _call(self, request: Request[Any]) -> None:
        """Send a request; a refusal is ignored, since the request may be out of date by now."""
        task = asyncio.get_running_loop().create_task(self._say(request))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        task.add_done_callback(self._died)

    async def _say(self, request: Request[Any]) -> None:
        try:
            await self._master.call(request)
        except Rejected as error:
            log.info("the master refused %s: %s", type(request).__name__, error)
        except Unreachable as error:
            log.warning("%s", error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._died)
        return task

    def _died(self, task: asyncio.Task[None]) -> None:
        """End the agent if a task failed: without it the agent would wait for ever."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a task of the agent failed", exc_info=error)
            self._events.put_nowait(Dismissed(1, "AgentFailed", f"{type(error).__name__}: {error}"))

    async def _finish_calls(self, end: Exit) -> None:
        """Wait, with a limit, for the last requests to the master."""
        if self._calls:
            await asyncio.wait(self._calls, timeout=last_calls(end))

    async def _close(self) -> None:
        running = [*self._tasks, *self._calls]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._release_port()
        await self._keeper.close()
        await self._workers.close()

    def _reserve_port(self) -> int:
        """Reserve a port for a script's store until the next call: bound but not listening.

        Torch's store, which sets SO_REUSEADDR, can share the port, and the kernel assigns it to no other
        process.
        """
        self._release_port()
        self._reserved = bound(self._settings.place.address)
        port: int = self._reserved.getsockname()[1]
        return port

    def _release_port(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _prefix(self, slot: int) -> str:
        """Return what precedes a line of this worker now: its rank may change."""
        return Template(self._settings.template or PREFIX).safe_substitute(
            role_name=self._settings.name,
            local_rank=slot,
            rank=rank_of(self._group, slot),
            hostname=hostname(),
        )

    def _shown(self, slot: int, stream: str) -> bool:
        shown, redirected = self._settings.shown, self._settings.redirects.has(slot, stream)
        return not redirected and (shown is None or slot in shown)

    def _log_file(self, slot: int, stream: str) -> Path | None:
        named = (self._settings.redirects, self._settings.tee)
        if self._settings.log_dir is None or (any(named) and not any(n.has(slot, stream) for n in named)):
            return None
        folder = self._settings.log_dir / self._settings.place.job / str(slot)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{stream}.log"

    def _lost_peers(self, slot: int) -> None:
        """Say in one line what a worker's traceback would: called by the thread that reads its output."""
        group, file = self._group, self._log_file(slot, "stderr")
        rank, where = rank_of(group, slot), f"in {file}" if file else "with --log-dir"
        log.info("rank %s: lost its peers in round %d (traceback %s)", rank, group.round, where)

    def _last_words(self, end: Exit) -> None:
        """Write the termination message and the last log line."""
        more = "" if end.message in self._told else f": {end.message}"
        log.info("%s%s (exit code %d)", end.reason, more, end.code)
        words.write(
            self._settings.place.termination_log,
            reason=end.reason,
            message=end.message,
            code=end.code,
            local_rank=end.local_rank,
        )


def terms(settings: Settings) -> Terms:
    """Return the settings that decisions need, with a fresh incarnation."""
    place = settings.place
    return Terms(
        node=place.node,
        role=place.role,
        index=place.index,
        incarnation=uuid.uuid4().hex,
        address=place.address,
        workers=settings.workers,
        max_restarts=settings.max_restarts,
        grace=settings.grace,
        tries=settings.tries,
        forgive=settings.forgive,
        may_lose_save=settings.may_lose_save,
        in_pod=bool(place.pod),
    )


def payloads(settings: Settings) -> int:
    """Return how many processes of the payload this node runs: one for each device that it uses."""
    return max(1, min(settings.workers, count_devices()))


def survives(number: signal.Signals) -> bool:
    """Whether the run was started to outlive its terminal, by nohup."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


def last_save(end: Exit, group: Group) -> float:
    """Return the limit of the last save in seconds; lower for a node that left its world, with old copies."""
    left = bool(group.round) and group.given_up >= group.round
    return HURRIED_SAVE if end.code or left else LAST_SAVE


def last_calls(end: Exit) -> float:
    """Return the limit of the last requests in seconds; lower for a leave, which a disconnect also shows."""
    return FAREWELL if end.reason == LEFT else LAST_CALLS


def recovery(wanted: Recover, imported: frozenset[str]) -> Recovery:
    """Return the expected recovery mode of the workers, before they run."""
    match wanted:
        case Recover.AUTO:
            return Recovery.IN_PROCESS if is_elastic(imported) else Recovery.RESTART
        case Recover.IN_PROCESS:
            return Recovery.IN_PROCESS
        case Recover.RESTART:
            return Recovery.RESTART
        case _:
            assert_never(wanted)


def replace_port(join: Join, port: int) -> Join:
    """Return `join` with the reserved port."""
    return msgspec.structs.replace(join, port=port)
