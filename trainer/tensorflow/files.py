"""Checkpoints in a folder that servers and workers share: names, and which of them are complete.

A checkpoint `model-<number>` is a standard one of TensorFlow (`tf.train.load_checkpoint`). Beside it,
`model-<number>.json` has the manifest and the positions of the datasets. It is complete when its index is
there, which is written last.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from elasticjob.api.rpc.message import decode_as
from elasticjob.api.rpc.parameters import Positions
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.trainer.tensorflow.partitions import Manifest

STEM: Final = "model-"


class Beside(msgspec.Struct, frozen=True):
    """The metadata of a checkpoint: its servers, its variables, the positions of the datasets."""

    number: int
    servers: int
    manifest: Manifest
    positions: Positions


def prefix(folder: Path, number: int) -> Path:
    """Return the prefix by which TensorFlow finds a checkpoint."""
    return folder / f"{STEM}{number}"


def shard(folder: Path, number: int, place: int) -> Path:
    """Return the prefix of what one server writes."""
    return folder_in_work(folder, number) / f"server-{place}"


def folder_in_work(folder: Path, number: int) -> Path:
    """Return the folder of a checkpoint that is being written."""
    return folder / f".{STEM}{number}"


def index(folder: Path, number: int) -> Path:
    """Return the file that is there when the checkpoint is complete."""
    return folder / f"{STEM}{number}.index"


def size(folder: Path, number: int) -> int:
    """Return how many bytes the values of a checkpoint take."""
    return sum(path.stat().st_size for path in folder.glob(f"{STEM}{number}.data-*"))


def set_aside(folder: Path, number: int) -> None:
    """Make a damaged checkpoint not count any more; its files stay for whoever wants to look."""
    with suppress(FileNotFoundError):  # another server was first
        index(folder, number).rename(folder / f"{STEM}{number}.index.damaged")


def write_beside(folder: Path, beside: Beside) -> None:
    """Write it, whole or not at all."""
    path = _json(folder, beside.number)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(beside))
    temporary.replace(path)


def read_beside(folder: Path, number: int) -> Beside:
    """Raises OSError or ValueError if it cannot be read."""
    try:
        return decode_as(_json(folder, number).read_bytes(), Beside)
    except UNREADABLE as error:
        raise ValueError(f"{_json(folder, number)} is damaged: {error}") from None


def complete(folder: Path) -> list[int]:
    """Return the numbers of complete checkpoints, oldest first."""
    found = []
    for path in folder.glob(f"{STEM}*.index"):
        number = path.stem.removeprefix(STEM)
        if number.isdecimal() and _json(folder, int(number)).is_file():
            found.append(int(number))
    return sorted(found)


def finish(folder: Path, number: int, merge: Callable[[list[str], str], None]) -> None:
    """Make one checkpoint of what the servers wrote: `merge` moves files of these prefixes to that one.

    It works on links to the files, so that it can begin anew after a process that was lost on the way.
    """
    written = folder_in_work(folder, number)
    if not index(folder, number).is_file():
        merged = written / "merged"
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir(parents=True)
        for path in written.glob("server-*"):
            _link(path, merged / path.name)
        prefixes = sorted(str(path.with_suffix("")) for path in merged.glob("server-*.index"))
        if prefixes:
            merge(prefixes, str(merged / f"{STEM}{number}"))
        else:
            (merged / f"{STEM}{number}.index").touch()  # there were no values yet
        for path in sorted(merged.glob(f"{STEM}{number}.*"), key=lambda each: each.suffix == ".index"):
            path.replace(folder / path.name)
    shutil.rmtree(written, ignore_errors=True)


def delete_before(folder: Path, number: int) -> None:
    """Delete checkpoints older than the one before `number`, and what was never finished."""
    for old in [each for each in complete(folder) if each < number][:-1]:
        for path in (index(folder, old), *folder.glob(f"{STEM}{old}.*")):
            path.unlink(missing_ok=True)
    for path in folder.glob(f".{STEM}*"):
        name = path.name.removeprefix(f".{STEM}")
        if name.isdecimal() and int(name) < number:
            shutil.rmtree(path, ignore_errors=True)


def _link(path: Path, link: Path) -> None:
    try:
        link.hardlink_to(path)
    except OSError:  # not on every shared file system
        shutil.copyfile(path, link)


def _json(folder: Path, number: int) -> Path:
    return folder / f"{STEM}{number}.json"
