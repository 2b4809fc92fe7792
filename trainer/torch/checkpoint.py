"""Checkpoints on disk: one file per step, written whole or not at all, the newest two kept."""

from __future__ import annotations

import logging
import os
import re
import secrets
from pathlib import Path
from pickle import UnpicklingError  # noqa: TID251  # only the name of torch's error
from typing import Any, Final

import torch

log = logging.getLogger("elasticjob")

NAME: Final = re.compile(r"step-(\d{9})\.pt")
KEEP: Final = 2


class Checkpoints:
    """The checkpoints of one job in `folder`; safe against a crash during a write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._readable = False  # what was saved could be read again

    def save(self, step: int, snapshot: dict[str, Any]) -> Path:
        """Write `snapshot` as the checkpoint of `step`; durable on return. OSError names the failure.

        TypeError if `load` would refuse the first one: better now than after a crash.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"step-{step:09d}.pt"
        temporary = final.with_suffix(f".{secrets.token_hex(4)}.tmp")  # pids of two pods may be equal
        try:
            with temporary.open("wb") as file:
                torch.save(snapshot, file)
                file.flush()
                os.fsync(file.fileno())
            if not self._readable:
                check(temporary, step)
                self._readable = True
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(self.folder)
        self._sweep(step)
        return final

    def _sweep(self, step: int) -> None:
        """Remove checkpoints older than the newest two, and partial files of killed workers."""
        old = [self.folder / f"step-{each:09d}.pt" for each in self.steps()[:-KEEP]]
        half = [path for path in self.folder.glob("step-*.tmp") if path.name < f"step-{step:09d}"]
        for path in (*old, *half):
            path.unlink(missing_ok=True)

    def steps(self) -> list[int]:
        """Return the steps of all checkpoints, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(match[1]) for path in self.folder.iterdir() if (match := NAME.fullmatch(path.name)))

    def load(self) -> dict[str, Any] | None:
        """Return the newest snapshot that can be read, its tensors on the CPU; None if there is none at all.

        Damaged files that are newer get another name. If all are damaged, the newest one's error is raised:
        a job that began anew would overwrite them.
        """
        damaged: dict[Path, Exception] = {}
        for step in reversed(self.steps()):
            path = self.folder / f"step-{step:09d}.pt"
            try:
                snapshot: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            except OSError:  # the file may be whole
                raise
            except Exception as error:  # torch raises anything on a file that is not
                damaged[path] = error
                continue
            for each, reason in damaged.items():
                aside = each.replace(each.with_suffix(".damaged"))
                log.warning(
                    "%s is damaged (%s): renamed to %s, training goes on from %s",
                    each,
                    first_sentence(reason),
                    aside.name,
                    path.name,
                )
            return snapshot
        if damaged:
            raise next(iter(damaged.values()))
        return None


def check(path: Path, step: int) -> None:
    """Raise TypeError if the checkpoint in `path` holds what `load` refuses; its tensors are not kept."""
    try:
        torch.load(path, map_location="meta", weights_only=True)
    except UnpicklingError as error:
        raise TypeError(
            f"the checkpoint of step {step} could not be read again: the states of model, optimizer and "
            f"scheduler may hold only tensors, numbers, strings, lists and dicts ({first_sentence(error)})"
        ) from error


def first_sentence(error: Exception) -> str:
    """Return the first sentence of an error's message: torch adds a page of advice."""
    return str(error).partition("\n")[0].partition(". ")[0]


def sync_folder(folder: Path) -> None:
    """Fsync the directory."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
