"""Checkpoints on disk: one file per step, written whole or not at all, the newest two kept."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any, Final

import torch

NAME: Final = re.compile(r"step-(\d{9})\.pt")
KEEP: Final = 2


class Checkpoints:
    """The checkpoints of one job in `folder`; safe against a crash during a write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, step: int, snapshot: dict[str, Any]) -> Path:
        """Write `snapshot` as the checkpoint of `step`; durable on return. OSError names the failure."""
        self.folder.mkdir(parents=True, exist_ok=True)
        final = self.folder / f"step-{step:09d}.pt"
        temporary = final.with_suffix(f".{secrets.token_hex(4)}.tmp")  # pids of two pods may be equal
        try:
            with temporary.open("wb") as file:
                torch.save(snapshot, file)
                file.flush()
                os.fsync(file.fileno())
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
        """Return the newest snapshot, its tensors on the CPU; None if there is none."""
        steps = self.steps()
        if not steps:
            return None
        path = self.folder / f"step-{steps[-1]:09d}.pt"
        snapshot: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return snapshot


def sync_folder(folder: Path) -> None:
    """Fsync the directory."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
