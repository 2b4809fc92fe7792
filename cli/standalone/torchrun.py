"""torchrun's words for a run: read into our values, or refused by name with the reason."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from elasticjob.cli.errors import Exit, Failure
from elasticjob.trainer.agent.settings import GOODBYE, Streams

PORT: Final = 29400
"""The port of an endpoint without one."""
LAST_PORT: Final = 65535
STATIC: Final = "127.0.0.1"
"""Where the nodes of a run meet without an endpoint."""
BACKENDS: Final = ("", "static", "c10d", "elasticjob")
SIGNALS: Final = ",".join(number.name for number in GOODBYE)
RANKED: Final = ("", "static")
"""The backends under which --node-rank counts."""


@dataclass(frozen=True)
class Conf:
    """The keys of --rdzv-conf that have a meaning here; times in seconds."""

    join: float = 900.0
    last_call: float = 30.0
    hang: float = 4.0  # beyond 3 usual steps without one: the worker that the others wait for is killed
    hang_reading: float = 600.0  # the same while it waits for records or storage, in all; 0: never
    hang_computing: float = 600.0  # while it computes in its step
    hang_first: float = 1800.0  # while it neither computes nor reads before its first step
    hang_outside: float = 1800.0  # the same between two steps
    hang_collective: float = 60.0  # while all wait for each other, beyond 10 usual steps
    quiet: float = 3.0  # how long late nodes of plain scripts are gathered
    close: float = 60.0  # how long the master waits until the other nodes know of the end
    interval: float = 0.0
    attempts: float = 0.0
    is_host: bool | None = None

    @property
    def silence(self) -> float:
        """Seconds without a heartbeat after which a node is lost."""
        given = (self.interval or 5.0) * (self.attempts or 3.0)
        return given if self.interval or self.attempts else 5.0


def number(text: str) -> float:
    """Return a positive number; else ValueError."""
    if not 0 < float(text) < 1e9:
        raise ValueError("not above 0")
    return float(text)


def duration(text: str) -> float:
    """Return a number of seconds, 0 for never; else ValueError."""
    if not 0 <= float(text) < 1e9:
        raise ValueError("below 0")
    return float(text)


def truth(text: str) -> bool:
    """Return a bool in torchrun's spellings; else ValueError."""
    word = text.lower()
    if word in ("1", "t", "true", "y", "yes"):
        return True
    if word in ("0", "f", "false", "n", "no"):
        return False
    raise ValueError("neither true nor false")


def tcp(text: str) -> None:
    """Accept the store type that needs nothing; else ValueError."""
    if text.strip().lower() != "tcp":
        raise ValueError("nodes meet over TCP; there is no file store")


KEYS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "join_timeout": ("join", number),
    "timeout": ("join", number),
    "last_call_timeout": ("last_call", number),
    "close_timeout": ("close", number),
    "hang_timeout": ("hang", duration),
    "hang_reading": ("hang_reading", duration),
    "hang_computing": ("hang_computing", duration),
    "hang_first": ("hang_first", duration),
    "hang_outside": ("hang_outside", duration),
    "hang_collective": ("hang_collective", duration),
    "quiet_window": ("quiet", number),
    "keep_alive_interval": ("interval", number),
    "keep_alive_max_attempt": ("attempts", number),
    "is_host": ("is_host", truth),
    "store_type": ("", tcp),
}
"""Keys of --rdzv-conf, the field of `Conf` that each sets, and how its value is read."""

NO_ETCD: Final = "there is no etcd: the master takes its place"
REFUSED_KEYS: Final[Mapping[str, str]] = {
    "heartbeat_timeout": "nodes are lost after keep_alive_interval times keep_alive_max_attempt",
    "read_timeout": "requests have limits of their own, and are repeated until join_timeout",
    "cas_backoff_max_seconds": "nodes send requests to a master, and share no store that they write to",
    "rank": "give --node-rank",
    **dict.fromkeys(("protocol", "cert", "key", "cacert", "ssl_cert", "ssl_cert_key", "ca_cert"), NO_ETCD),
    "etcd_prefix": NO_ETCD,
}

REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "--event-log-handler": ("null", "events are the log on stderr and the master's /metrics and /status"),
    "--logs-specs": ("default", "plug-ins for logs are torch's own; give --log-dir, --redirects and --tee"),
    "--numa-binding": ("", "workers fork from one process that is bound to no node; give numactl the run"),
    "--duplicate-stdout-filters": ("", "search the files of --log-dir with grep"),
    "--duplicate-stderr-filters": ("", "search the files of --log-dir with grep"),
    "--print-completion": ("", "there is no completion script for elasticjob"),
}
"""Flags that only their default is accepted for, with that default and the reason."""


def refuse(flags: Mapping[str, str | None]) -> None:
    """Fail if a flag without a meaning here is given anything but its default."""
    for flag, value in flags.items():
        default, reason = REFUSED[flag]
        if value not in (None, "", default):
            raise Failure(f"{flag} is not supported: {reason}", code=Exit.USAGE)


def backend(text: str) -> str:
    """Return the rendezvous backend; Failure if nodes cannot meet by it."""
    if text in BACKENDS:
        return text
    reason = NO_ETCD if text.startswith("etcd") else "there is no such backend"
    raise Failure(f"--rdzv-backend is {text!r}: {reason}", next_step="give c10d or static", code=Exit.USAGE)


def conf(text: str) -> Conf:
    """Return the meaning of --rdzv-conf; Failure names a key or value that has none."""
    read = Conf()
    for pair in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in pair.partition("="))
        if key in REFUSED_KEYS:
            raise Failure(f"--rdzv-conf {key} is not supported: {REFUSED_KEYS[key]}", code=Exit.USAGE)
        if key not in KEYS or not equals or not value:
            known = ", ".join(sorted(KEYS))
            raise Failure(
                f"--rdzv-conf has {pair!r}", next_step=f"give KEY=VALUE with {known}", code=Exit.USAGE
            )
        field, reader = KEYS[key]
        try:
            found = reader(value)
        except ValueError as error:
            raise Failure(f"--rdzv-conf {key} is {value!r}: {error}", code=Exit.USAGE) from None
        if field:
            read = replace(read, **{field: found})  # type: ignore[arg-type]  # by name
    return read


def streams(flag: str, text: str) -> Streams:
    """Return the streams of --redirects or --tee: `3`, or by worker `0:1,1:2`."""
    if re.fullmatch("[0-3]", text):
        return Streams(int(text))
    if re.fullmatch(r"\d+:[0-3](,\d+:[0-3])*", text):
        pairs = (pair.split(":") for pair in text.split(","))
        return Streams(by_worker=tuple((int(slot), int(number)) for slot, number in pairs))
    raise Failure(f"{flag} is {text!r}", next_step="give 0, 1, 2, 3, or WORKER:NUMBER,…", code=Exit.USAGE)


def ranks(text: str) -> frozenset[int] | None:
    """Return the workers in --local-ranks-filter, None for all."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isdecimal() for word in words):
        raise Failure(f"--local-ranks-filter is {text!r}", next_step="give numbers, as 0,1", code=Exit.USAGE)
    return frozenset(map(int, words)) if words else None


def signals(text: str) -> tuple[signal.Signals, ...]:
    """Return the signals in --signals-to-handle."""
    try:
        found = tuple(signal.Signals[word.strip()] for word in text.split(",") if word.strip())
    except KeyError as error:
        raise Failure(f"--signals-to-handle: there is no signal {error}", code=Exit.USAGE) from None
    if hopeless := {signal.SIGKILL, signal.SIGSTOP} & set(found):
        raise Failure(f"--signals-to-handle: {min(hopeless).name} cannot be handled", code=Exit.USAGE)
    return found or GOODBYE


def endpoint_of(text: str) -> tuple[str, int]:
    """Return host and port of an endpoint; the port is torchrun's 29400 if absent."""
    host, colon, port = text.rpartition(":")
    if text.endswith("]") or not colon or (":" in host and not host.startswith("[")):
        return text.strip("[]"), PORT
    return host.strip("[]"), port_of("--rdzv-endpoint", text, port)


def port_of(flag: str, given: str, port: str) -> int:
    """Return the port in what is given for a flag; Failure if it is none. 0 stands for any free one."""
    if not port.isdecimal() or int(port) > LAST_PORT:
        raise Failure(
            f"{flag} is {given!r}: the port is not a number up to {LAST_PORT}",
            next_step="give HOST:PORT" if given != port else "",
            code=Exit.USAGE,
        )
    return int(port)


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
