"""Damage to small checkpoints, by chance: a load gives a whole state that was saved, or is refused.

`python -m lab.damages` prints how many were whole, refused, refused with some of the script's tensors filled,
and wrong, and each draw that was. Two workers load, replicated or divided, or `saved.read` reads. What is
refused changes no file, but that it is set aside.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, product
from multiprocessing.context import ForkProcess
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import torch
import torch._dynamo  # fully_shard would import it in each fork
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from elasticjob.trainer.checkpoint.part import Damaged, Newer
from elasticjob.trainer.torch.checkpoint import Checkpoint
from elasticjob.trainer.torch.saved import NoCheckpoint, read
from lab.processes import end_on_sigterm

SCENES: Final = (("killed", 0, 2), ("divided", 0, 2), ("divided", 1, 2), ("two savers", 0, 1))
"""What is saved, by which worker that is killed then or meets another saver, of how many."""
STATES: Final = (1, 2, 3, 13, 14)  # their last digits are the steps; a script begins with state 0
RIGHT: Final = ("whole", "refused", "half filled")
REFUSALS: Final = (Damaged, Newer, OSError, ValueError, NoCheckpoint)
CHANGES: Final = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")
GIVEN: Final[dict[str, Any]] = {
    "every": 1,
    "save_every": 1,
    "environment": {"ELASTICJOB_STORAGE_PATIENCE": "0"},
}


def made(layout: str, number: int) -> dict[str, Any]:
    """Return the state of a number."""
    torch.manual_seed(number)
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))
    for each in model.children() if layout == "divided" else ():  # one worker has nothing of the last one
        fully_shard(each, mesh=init_device_mesh("cpu", (2,)))
    return {
        "model": model,
        "notes": {"number": number, "double": 2 * model.get_parameter("0.weight").detach()},
    }


def shown(of: Any) -> str:
    """Return what this worker has of a state."""
    model = getattr(of["model"], "state_dict", lambda: of["model"])()
    tensors = (*model.values(), of["notes"]["double"])
    return str([getattr(each, "_local_tensor", each).tolist() for each in tensors])


def save(where: Path, layout: str, number: int) -> None:
    """Go on with what is in a place, and save a state."""
    of, new = made(layout, 0), made(layout, number)
    checkpoint = Checkpoint(where, of, **GIVEN)
    with suppress(*REFUSALS):
        checkpoint.load()
        of["model"].load_state_dict(new["model"].state_dict())
        of["notes"].update(new["notes"])
        checkpoint.save(number % 10)


def load(where: Path, layout: str) -> str:
    """Return whether a load gives a "whole" state, is "refused", or what is wrong with it."""
    of, step = made(layout, 0), None
    try:
        if layout == "read":
            of = read(where)
        else:
            step = Checkpoint(where, of, **GIVEN).load()
    except REFUSALS:
        return "refused" if shown(of) == shown(made(layout, 0)) else "half filled"
    number = of["notes"]["number"]
    if number == step == 0:
        return "nothing" if [*where.glob("*/manifest*")] else "refused"
    right = number in STATES and step in (None, number % 10) and shown(of) == shown(made(layout, number))
    return "whole" if right else f"step {step} of state {number}"


def work(where: Path, kind: str, rank: int, workers: int, turn: int) -> None:
    """Be a worker that saves three states, and dies, or saves another one, amid a change of the last."""
    changes = count()

    def hear(event: str, _: Any) -> None:
        if event in CHANGES and next(changes) == turn:
            save(where, kind, 13 + turn % 2) if workers == 1 else os._exit(9)

    with suppress(RuntimeError):  # the other worker has died
        join(where, rank, workers)
        save(where, kind, 1)
        save(where, kind, 2)
        sys.addaudithook(hear)
        save(where, kind, 3)


def join(where: Path, rank: int, workers: int = 2) -> None:
    dist.init_process_group("gloo", init_method=f"file://{where}.store", rank=rank, world_size=workers)


def begun(act: Any, *given: Any) -> ForkProcess:
    process = multiprocessing.get_context("fork").Process(target=act, args=given, daemon=True)
    process.start()
    return process


def prepare(folder: Path, changes: int = 25) -> list[Path]:
    """Return places in which the scenes were played, each at each change of a save."""
    for (kind, acting, workers), turn in product(SCENES, range(changes)):
        place = folder / f"{kind}, {acting}, {turn}"
        turns = [turn if rank == acting else -1 for rank in range(workers)]
        for process in [begun(work, place, kind, rank, workers, each) for rank, each in enumerate(turns)]:
            process.join()
    return sorted(each for each in folder.iterdir() if each.is_dir())


def files(folder: Path) -> dict[str, bytes]:
    """Return what is in a place; what is set aside counts as it was."""
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)).removesuffix(".damaged"): each.read_bytes() for each in found}


def damage(folder: Path, random: Random) -> str:
    """Damage a file of a place; return how."""
    there = files(folder)
    name, other = random.choice([*there]), random.choice([*there])
    data, at = there[name], random.randrange(len(there[name]) or 1)
    flipped = bytes(each ^ 1 << random.randrange(8) for each in data[at : at + 1])
    ways: dict[str, dict[str, bytes | None]] = {
        "bit flipped": {name: data[:at] + flipped + data[at + 1 :]},
        "file cut": {name: data[:at]},
        "file longer": {name: data + random.randbytes(at + 1)},
        "file missing": {name: None},
        "bytes of another": {name: there[other]},
    }
    manifest = f"{Path(name).parent}/manifest.json"
    if name == manifest:
        ways["newer version"] = {name: data.replace(b'"format":2', b'"format":9')}
        ways["manifest edited"] = {name: json.dumps(edited(json.loads(data), random)).encode()}
    elif "index" in name and (whole := json.loads(there.get(manifest, b'{"index":{}}'))):
        index = msgspec.msgpack.encode(edited(msgspec.msgpack.decode(data), random))
        whole["index"] |= {"size": len(index), "crc": zlib.crc32(index)}
        ways["index edited"] = {name: index, manifest: json.dumps(whole).encode()}
    way = random.choice([*ways])
    for each, changed in ways[way].items():
        (folder / each).unlink() if changed is None else (folder / each).write_bytes(changed)
    return way


def edited(whole: Any, random: Random) -> Any:
    """Return a manifest or an index with an odd value: beyond a file, outside of a folder, twice, or not."""
    kinds = (int, list, str)[: 3 if isinstance(whole, dict) else 2]  # no checksum covers names in an index
    within, key = random.choice([each for each in places(whole) if isinstance(each[0][each[1]], kinds)])
    value, odd = within[key], (0, -1, 1 << 40, "", "../part")
    within[key] = random.choice((*odd, value * 2, value + 64 if isinstance(value, int) else value[:1]))
    return whole


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place in what was decoded: what holds it, and its key there."""
    for key in [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def play(places: list[Path], draws: int, seed: int, rank: int) -> Counter[tuple[str, str]]:
    """Be one of two workers that load what is damaged; return how often each kind of damage ended how."""
    join(places[0].with_name("all"), rank)
    ends: Counter[tuple[str, str]] = Counter()
    for draw in range(draws):
        random, place, told = Random(f"{seed} {draw}"), places[0].with_name(f"draw {draw}"), ["", ""]
        source, layout, before = random.choice(places), random.choice(("replicated", "divided", "read")), None
        if not rank:
            shutil.copytree(source, place)
            name = damage(place, random) if random.random() < 0.8 else source.name.split(", ")[0]
            before = files(place)
        try:
            dist.barrier()
            dist.all_gather_object(told, load(place, layout))
        except BaseException as error:  # the other one hears of it by its connection
            told = [type(error).__name__] * 2
            dist.destroy_process_group()
            join(place, rank)
        if not rank:
            end = " and ".join(sorted({*told})) + ("" if files(place) == before else ", files changed")
            end = {"half filled and refused": "half filled"}.get(end, end)
            ends[name, end if end in RIGHT else "wrong"] += 1
            if end not in RIGHT:
                print(f"seed {seed}, draw {draw}: {name}: {layout}: {end}", flush=True)
            shutil.rmtree(place)
    return ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    end_on_sigterm()
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        places = prepare(Path(folder))
        other = begun(play, places, args.draws, args.seed, 1)
        ends = play(places, args.draws, args.seed, 0)
        other.join()
    for name in sorted({name for name, _ in ends}):
        print(f"| {name:28} |", *(f"{ends[name, end]:6} |" for end in (*RIGHT, "wrong")))
    return 1 if any(end == "wrong" for _, end in ends) else 0


if __name__ == "__main__":
    sys.exit(main())
