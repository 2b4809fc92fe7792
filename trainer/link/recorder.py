"""Which collective a worker waits in, as torch's flight recorder has it: asked by its agent over a socket.

A thread answers, also while the training thread is blocked in a collective: that holds no lock of the
interpreter. torch is not imported here. The recorder and the table of process groups are private to torch;
`lacks()` says what of them is not there in the torch that is. Then there are no answers, and a worker that
waits inside its forward pass is taken for one that computes.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, Final

import msgspec

from elasticjob.api.numbers import Count
from elasticjob.api.rpc.nodes import GROUPS, LABEL, Begun, Collective
from elasticjob.trainer.link import stacks

log = logging.getLogger("elasticjob")

SAME_SIZE: Final = frozenset({"all_reduce", "allreduce"})
"""Collectives in which all members must have as many numbers."""
GLOO, NCCL = "_dump_fr_trace_json", "_dump_nccl_trace_json"
NAMED: Final = 8  # ranks of a group that are written out


class Entry(msgspec.Struct, frozen=True):
    """A collective in the recorder, number `collective_seq_id` of its group; gloo's all say `scheduled`."""

    pg_id: int
    process_group: tuple[str, str]  # name, description
    collective_seq_id: int
    profiling_name: str
    retired: bool
    state: str
    time_created_ns: int
    input_sizes: tuple[tuple[int, ...], ...] = ()
    is_p2p: bool = False

    @property
    def name(self) -> str:
        """The name of its group."""
        return self.process_group[0]

    @property
    def group(self) -> tuple[str, str]:
        """Its backend and the name of its group, of which each of two backends may have a part."""
        return self.profiling_name.partition(":")[0], self.name

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return not self.retired and self.state != "completed"


class Trace(msgspec.Struct, frozen=True):
    """The entries of torch's recorder, oldest first."""

    entries: tuple[Entry, ...] = ()


class Digest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's answer: where it waits, and how many collectives of each group it has begun.

    `size` is the number of workers in its default group; 0 if torch has none.
    """

    size: Count = 0
    open: Collective | None = None
    begun: Begun = ()


decode: Final = msgspec.json.Decoder(Digest).decode
_trace: Final = msgspec.json.Decoder(Trace).decode


def file_of(stacks_file: Path) -> Path:
    """Return the socket at which the worker with this file for its stacks answers."""
    return stacks_file.with_suffix(".sock")


def serve(environment: Mapping[str, str]) -> None:
    """Answer the agent's questions from now on; nothing without an agent, or in a process without torch."""
    path = environment.get(stacks.FILE)
    if not path or _serving.get(path) == os.getpid() or "torch" not in sys.modules:
        return
    if missing := lacks():
        log.warning("%s: who hangs inside a forward or backward pass is not found", missing)
        return
    try:
        listener = bound(file_of(Path(path)))
    except OSError:
        return  # the agent has ended
    _serving[path] = os.getpid()
    threading.Thread(target=_answer, args=(listener,), name="elasticjob-recorder", daemon=True).start()


_serving: dict[str, int] = {}


def bound(file: Path) -> socket.socket:
    """Return a listening socket, in the place of one that a worker before has left."""
    listener = socket.socket(socket.AF_UNIX)
    file.unlink(missing_ok=True)
    with short_name(file) as short:
        listener.bind(short)
    listener.listen()
    return listener


class short_name:
    """A name for a socket's file that fits into its address, however deep the folder is."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> str:
        self._fd = os.open(self._file.parent, os.O_PATH | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._fd}/{self._file.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _answer(listener: socket.socket) -> None:
    memory = Memory()
    while True:
        asking, _ = listener.accept()
        with asking, suppress(Exception):  # torch may be ending its groups: no answer, and another question
            asking.sendall(msgspec.json.encode(present(memory)))


def lacks() -> str:
    """Return what the torch of this process lacks for this, empty if nothing."""
    torch = sys.modules["torch"]
    if not torch.distributed.is_available():
        return ""
    if not any(hasattr(torch._C._distributed_c10d, each) for each in (GLOO, NCCL)):
        return f"torch {torch.__version__} has no flight recorder ({GLOO})"
    world = getattr(torch.distributed.distributed_c10d, "_world", None)
    return "" if hasattr(world, "pg_map") else f"torch {torch.__version__} has no table of process groups"


def present(memory: Memory) -> Digest:
    """Return what the recorders of this process say now."""
    torch = sys.modules["torch"]
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return Digest()
    dist, library = torch.distributed, torch._C._distributed_c10d
    entries = memory.read(getattr(library, GLOO, None), getattr(library, NCCL, None))
    return digest(entries, groups(dist), dist.get_world_size(), time.time())


Dump = Callable[[bool, bool], bytes]
"""Returns the trace of a recorder: with collectives or without, and those of NCCL that are active only."""


@dataclass
class Memory:
    """The entries of the recorders, read only if something has changed.

    gloo's take 40 ms of the processor, which the agent would take for computing.
    """

    seen: tuple[bytes, ...] = ()
    entries: list[Entry] = field(default_factory=list)

    def read(self, gloo: Dump | None, nccl: Dump | None) -> list[Entry]:
        """Return what the recorders have. gloo's counts them all, NCCL's not those between two workers."""
        dumps = [dump for dump in (gloo, nccl) if dump]
        seen = tuple(dump(dump is nccl, True) for dump in dumps)
        if seen != self.seen:
            self.entries = list(chain.from_iterable(_trace(dump(True, False)).entries for dump in dumps))
            self.seen = seen
        return self.entries


def groups(dist: Any) -> dict[str, tuple[str, list[int]]]:
    """Return the present process groups by name: their descriptions, and their ranks."""
    found: dict[str, tuple[str, list[int]]] = {}
    for group in list(dist.distributed_c10d._world.pg_map):
        found[group.group_name] = group.group_desc, dist.get_process_group_ranks(group)
    return found


def digest(
    entries: Iterable[Entry], groups: Mapping[str, tuple[str, list[int]]], size: int, now: float
) -> Digest:
    """Return what the entries say of the present groups; `now` is the time of day.

    Groups of worlds before have the same names, smaller numbers, and collectives that never ended. Groups
    without a name are in no table: their collectives are waits, too, but nobody can tell them apart.
    """
    ordered = sorted(entries, key=lambda entry: entry.time_created_ns)
    newest: dict[tuple[str, str], int] = {}
    for entry in ordered:
        newest[entry.group] = max(newest.get(entry.group, 0), entry.pg_id)
    live = [
        entry
        for entry in ordered
        if not entry.name or (entry.name in groups and entry.pg_id == newest[entry.group])
    ]
    begun: dict[str, int] = {}
    for entry in live:
        if entry.name and not entry.is_p2p:
            label = name_for_people(entry, groups)
            begun[label] = max(begun.pop(label, 0), entry.collective_seq_id)
    inside = next((opened_by(entry, groups, now) for entry in live if entry.open), None)
    return Digest(size, inside, tuple(begun.items())[-GROUPS:])


def opened_by(entry: Entry, groups: Mapping[str, tuple[str, list[int]]], now: float) -> Collective:
    """Return a collective that has not ended as a worker says it."""
    kind = entry.profiling_name.rpartition(":")[2][:LABEL]
    size = sum(map(prod, entry.input_sizes)) if kind in SAME_SIZE else 0
    seq = 0 if entry.is_p2p or not entry.name else entry.collective_seq_id
    since = max(0.0, now - entry.time_created_ns / 1e9)
    return Collective(
        group=name_for_people(entry, groups), name=kind, seq=seq, size=size, since=round(since, 3)
    )


def name_for_people(entry: Entry, groups: Mapping[str, tuple[str, list[int]]]) -> str:
    """Return a group's name for people, of no other group: torch may use its own names twice."""
    backend, name = entry.group
    description, ranks = groups.get(name, (entry.process_group[1], []))
    known = description[:40] if description not in ("", "undefined") else "a group"
    some = ranks if len(ranks) <= NAMED else [*ranks[:2], "…", ranks[-1]]
    of = f" {name[:16]} of ranks {', '.join(map(str, some))}" if name else ""
    return f"{known}{of} ({backend})"[: LABEL // 2]
