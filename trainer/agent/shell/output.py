"""The output of one node: the lines of its workers, the termination message, and the last log line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from string import Template
from typing import Final

from elasticjob.trainer.agent import termination
from elasticjob.trainer.agent.actions import Exit
from elasticjob.trainer.agent.group import Group
from elasticjob.trainer.agent.seeing.notices import rank_of
from elasticjob.trainer.agent.settings import Settings, hostname

log = logging.getLogger("elasticjob.agent")

PREFIX: Final = "[${role_name}${local_rank}]:"


class Output:
    """Where the lines of workers go and what precedes them; `present` returns the present group."""

    def __init__(self, settings: Settings, present: Callable[[], Group]) -> None:
        self._settings = settings
        self._present = present
        self._told = ""
        self._warned = False

    def prefix(self, slot: int) -> str:
        """Return what precedes a line of this worker now: its rank may change."""
        return Template(self._settings.template or PREFIX).safe_substitute(
            role_name=self._settings.name,
            local_rank=slot,
            rank=rank_of(self._present(), slot),
            hostname=hostname(),
        )

    def stamp(self, record: logging.LogRecord) -> bool:
        """Add to a record where this node is in the training: its first rank, its workers, and the round."""
        group = self._present()
        if group.world is not None and group.seats:
            record.rank, record.workers = group.world.first_rank(group.terms.node), len(group.seats)
            record.round = group.round
        return True

    def shows(self, slot: int, stream: str) -> bool:
        """Whether lines of a worker are part of this program's output."""
        shown, redirected = self._settings.shown, self._settings.redirects.has(slot, stream)
        return not redirected and (shown is None or slot in shown)

    def log_file(self, slot: int, stream: str) -> Path | None:
        """Return the file below the log directory for lines of a worker, None if there is none."""
        named = (self._settings.redirects, self._settings.tee)
        if self._settings.log_dir is None or (any(named) and not any(n.has(slot, stream) for n in named)):
            return None
        folder = self._folder(self._settings.log_dir, slot)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{stream}.log"

    def lost_peers(self, slot: int) -> None:
        """Say in one line what a worker's traceback would: called by the thread that reads its output."""
        group, file = self._present(), self.log_file(slot, "stderr")
        rank, where = rank_of(group, slot), f"in {file}" if file else "with --log-dir"
        log.warning("rank %s: lost its peers in round %d (traceback %s)", rank, group.round, where)

    def keep_stacks(self, slot: int, text: str) -> None:
        """Append stacks to a worker's folder below the log directory, if there is one."""
        if self._settings.log_dir is None:
            return
        folder = self._folder(self._settings.log_dir, slot)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / "stacks.log").open("a") as file:
                file.write(text)
        except OSError as error:
            log.warning("the stacks are not kept in %s: %s", folder, error)

    def tell(self, why: str, warns: bool) -> None:
        """Log the reason for a step."""
        if why:
            self._told = why
            log.log(logging.WARNING if warns else logging.INFO, why)

    def warn(self, sentence: str | None) -> None:
        """Keep in the termination message why a kill of all may follow; None: none may, so withdraw it."""
        if sentence is not None:
            termination.write(self._settings.place.termination_log, reason="", message=sentence, code=0)
        elif self._warned:
            termination.clear(self._settings.place.termination_log)
        self._warned = sentence is not None

    def last_words(self, end: Exit) -> None:
        """Write the termination message and the last log line."""
        more = "" if end.message in self._told else f": {end.message}"
        level = logging.ERROR if end.code else logging.INFO
        log.log(level, "%s%s (exit code %d)", end.reason, more, end.code)
        termination.write(
            self._settings.place.termination_log,
            reason=end.reason,
            message=end.message,
            code=end.code,
            local_rank=end.local_rank,
        )

    def _folder(self, log_dir: Path, slot: int) -> Path:
        return log_dir / self._settings.place.job / str(slot)
