"""Log lines of all programs, in one shape: one line for people, or one JSON object. Written and read here.

People read `TIME LEVEL [NAMESPACE/JOB NODE rank RANK round ROUND] message name=value`, each part where it is
known; a program on somebody's terminal says `elasticjob NODE 12:00:27: message`. This module needs the
standard library alone: it is imported in users' images.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from elasticjob.api.escapes import as_line, as_text
from elasticjob.api.rpc import environment as env


class Level(StrEnum):
    """How serious a line is, from the least on."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


LEVELS: Final = tuple(Level)
QUIET: Final = ("aiohttp.access", "asyncio", "kubernetes_asyncio")
PLACES: Final = ("namespace", "job", "node")
COUNTS: Final = ("rank", "workers", "round")
WORDS: Final = ("level", "message", *PLACES, "logger", "exception")
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_WHERE: Final = (
    r"(?:(?P<namespace>[^\s/\]]+)/)?(?P<job>[^\s\]]+)(?: (?!ranks? |round )(?P<node>[^\s\]]+))?"
    r"(?: ranks? (?P<rank>\d{1,9})(?:-(?P<last>\d{1,9}))?)?(?: round (?P<round>\d{1,9}))?"
)
_PEOPLES: Final = re.compile(
    rf"(?P<time>\d{{4}}-\S+) (?P<level>{'|'.join(LEVELS)}) (?:\[{_WHERE}\] )?(?P<message>.*)"
)


class Format(StrEnum):
    """How log lines are written."""

    PEOPLE = "people"
    JSON = "json"


@dataclass(frozen=True)
class Entry:
    """One line of a log. `rank` is that of the worker that it is about, or of a node's first of `workers`."""

    time: datetime
    level: str
    message: str
    namespace: str = ""
    job: str = ""
    node: str = ""
    rank: int | None = None
    workers: int = 1
    round: int | None = None
    logger: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)
    exception: str = ""

    def fields(self) -> dict[str, Any]:
        """Return what is known, as JSON has it."""
        head = {"time": stamp(self.time), "level": self.level, "message": self.message}
        values = {name: getattr(self, name) for name in (*PLACES, *COUNTS, "logger", "exception")}
        lacking = {"workers"} if self.workers == 1 else set()
        known = {name: value for name, value in values.items() if value not in ("", None)}
        more = {name: value for name, value in self.more.items() if name not in head}
        return head | {name: value for name, value in known.items() if name not in lacking} | more


def stamp(moment: datetime) -> str:
    """Return a time in UTC as in RFC 3339, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def for_people(entry: Entry) -> str:
    """Return the line, with other people's words within their own value, and a traceback below it."""
    first, last = entry.rank, (entry.rank or 0) + entry.workers - 1
    where = (
        "/".join(filter(None, (entry.namespace, entry.job))),
        entry.node.removeprefix(f"{entry.job}-"),
        "" if first is None else f"rank {first}" if first == last else f"ranks {first}-{last}",
        "" if entry.round is None else f"round {entry.round}",
    )
    place = " ".join(filter(None, where))
    return " ".join(filter(None, (stamp(entry.time), entry.level, place and f"[{place}]", _words(entry))))


def for_terminal(entry: Entry) -> str:
    """Return the line as a program says it to who has started it, at the time of this machine."""
    level = "" if entry.level == "info" else f" {entry.level}"
    return f"elasticjob {entry.node} {entry.time.astimezone():%H:%M:%S}{level}: {_words(entry)}"


def for_programs(entry: Entry) -> str:
    """Return the entry as one JSON object."""
    return json.dumps(entry.fields(), default=str)


def read(line: str) -> Entry | None:
    """Return what a line of either form says; None of a line that no program of ours has written."""
    try:
        return _from_json(json.loads(line)) if line.startswith("{") else _from_people(line)
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        return None


def _from_json(said: dict[str, Any]) -> Entry | None:
    if said["level"] not in LEVELS or not isinstance(said["message"], str):
        return None
    time = _moment(said.pop("time"))
    words: dict[str, Any] = {name: str(said.pop(name, "")) for name in WORDS}
    numbers = {name: said.pop(name, None) for name in COUNTS}
    counts: dict[str, Any] = {name: each for name, each in numbers.items() if isinstance(each, int)}
    return Entry(time, **words, **counts, more=said)


def _from_people(line: str) -> Entry | None:
    found = _PEOPLES.fullmatch(line)
    if found is None:
        return None
    said = found.groupdict("")
    rank, last = said["rank"], said["last"]
    return Entry(
        _moment(said["time"]),
        *(said["level"], said["message"], said["namespace"], said["job"]),
        node=f"{said['job']}-{said['node']}" if said["node"] else "",
        rank=int(rank) if rank else None,
        workers=int(last) - int(rank) + 1 if last else 1,
        round=int(said["round"]) if said["round"] else None,
    )


def _moment(said: str) -> datetime:
    """Return a time with its zone, in UTC. Raises ValueError, OverflowError."""
    found = datetime.fromisoformat(said)
    if found.tzinfo is None:
        raise ValueError(f"{said} has no zone")
    return found.astimezone(UTC)


def _words(entry: Entry) -> str:
    values = (f"{as_line(name)}={_value(value)}" for name, value in entry.more.items())
    line = " ".join((as_line(entry.message), *values))
    return f"{line}\n{as_text(entry.exception)}" if entry.exception else line


def _value(value: object) -> str:
    text = as_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))
    return json.dumps(text, ensure_ascii=False) if " " in text and isinstance(value, str) else text


class Formatter(logging.Formatter):
    """Writes records with what a program knows of its place; `extra` of a record wins over that."""

    def __init__(self, format: Format, place: Entry, *, terminal: bool = False) -> None:
        super().__init__()
        shape = for_terminal if terminal else for_people
        self._shape, self._place = for_programs if format is Format.JSON else shape, place

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        more = {name: value for name, value in vars(record).items() if name not in _USUAL}
        known = {name: more.pop(name) for name in (*PLACES, *COUNTS) if name in more}
        entry = replace(
            self._place,
            time=datetime.fromtimestamp(record.created, UTC),
            level=record.levelname.lower(),
            message=record.getMessage(),
            logger=record.name,
            more=more,
            exception=self.formatException(record.exc_info) if record.exc_info else "",
            **known,
        )
        return self._shape(entry)


NOWHERE: Final[Mapping[str, str]] = {}


def configure(
    environ: Mapping[str, str] = NOWHERE,
    *,
    format: Format | None = None,
    node: str = "",
    verbose: bool = False,
    quiet: bool = False,
    file: Path | None = None,
) -> None:
    """Send the log of this process to stderr, or to `file`: in a `format`, else in that of the environment.

    `node` is the name of a program that people start on a terminal. `quiet`: warnings only.
    """
    job, where = environ.get(env.JOB, ""), environ.get(env.NAMESPACE, "")
    said = environ.get(env.LOG_FORMAT, "")  # no program fails by another word
    chosen = format or (Format.JSON if said == Format.JSON else Format.PEOPLE)
    place = Entry(datetime.min.replace(tzinfo=UTC), "", "", where, job, environ.get(env.NODE, "") or node)
    handler = logging.FileHandler(file) if file else logging.StreamHandler(sys.stderr)
    terminal = bool(node) and not where and file is None and sys.stderr.isatty()
    handler.setFormatter(Formatter(chosen, place, terminal=terminal))
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
