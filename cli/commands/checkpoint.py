"""`elasticjob checkpoint`: what a stored checkpoint holds, and its state in formats that others read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from elasticjob.api.resources import Bytes, MalformedQuantity
from elasticjob.api.sentences import amount
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.options import Group
from elasticjob.cli.output import Output, hand_over_json, say
from elasticjob.trainer.checkpoint.part import Damaged, Newer
from elasticjob.trainer.checkpoint.storage import Manifest, Storage, mixture
from elasticjob.trainer.torch import exported, imported, saved
from elasticjob.trainer.torch.saved import Described, ForEach, NoCheckpoint, Saved


class Format(StrEnum):
    """The formats of an export."""

    TORCH = "torch"
    SAFETENSORS = "safetensors"
    DCP = "dcp"


SUFFIXES: Final = {
    ".pt": Format.TORCH,
    ".pth": Format.TORCH,
    ".bin": Format.TORCH,
    ".safetensors": Format.SAFETENSORS,
}
LONGEST: Final = 60  # characters of a value, or of a list of them
UNITS: Final = ("B", "kB", "MB", "GB", "TB")

Place = Annotated[str, typer.Argument(help="The folder or URL that was given as checkpoint=.")]
Step = Annotated[int | None, typer.Option("--step", help="The step. Default: the newest one.")]


@dataclass(frozen=True)
class Seen:
    """A checkpoint whose `condition` is readable, whole, damaged, set aside, newer or unreadable."""

    step: int
    condition: str
    reason: str = ""
    manifest: Manifest | None = None

    @property
    def is_usable(self) -> bool:
        """Whether a training could begin with it, as far as was read."""
        return self.condition in ("readable", "whole")

    @property
    def size(self) -> int:
        """The size of all parts in bytes."""
        return sum(part.size for part in self.manifest.parts) if self.manifest else 0


def show(
    place: Place,
    step: Step = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all bytes of all checkpoints, and compare checksums.")
    ] = False,
    depth: Annotated[
        int | None,
        typer.Option("--depth", min=1, help="Levels of names that a person is shown. Default: all."),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="The output format.")] = Output.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
) -> int:
    """Show the checkpoints in a place, and what is in one of them; exit with 1 if one cannot be used.

    Example: [bold]elasticjob checkpoint show /mnt/run --verify --depth 1[/]
    """
    with told_in_a_sentence():
        storage = saved.place(place)
        seen = [look(storage, each, verify=verify) for each in storage.steps()]
        seen += [Seen(each, "set aside", "it was damaged") for each in storage.aside()]
        wanted, state = step if step is not None else newest(seen), None
        if not seen or (step is not None and step not in {each.step for each in seen}):
            saved.found(place, step)
        if any(each.step == wanted and each.manifest and each.is_usable for each in seen):
            state = Saved(*saved.found(place, wanted)).described()
    problem = mixture([each.manifest for each in seen if each.manifest], place)
    if as_json or output is Output.JSON:
        hand_over_json("Checkpoints", {**as_data(place, seen, wanted, state), "problem": problem})
    else:
        say(
            "\n".join(
                [*as_text(place, seen, wanted, state, depth or -1), *(["", problem] if problem else [])]
            )
        )
    return Exit.DONE if not problem and all(each.is_usable for each in seen) else Exit.FAILED


def export(
    place: Place,
    out: Annotated[Path, typer.Argument(help="The new file, or folder for dcp.")],
    format_: Annotated[
        Format | None, typer.Option("--format", help="Default: by the name of OUT (.pt, .safetensors).")
    ] = None,
    step: Step = None,
    only: Annotated[str, typer.Option("--only", help="A part of the state alone: model, or keep.ema.")] = "",
    shard_size: Annotated[
        str, typer.Option("--shard-size", help="A folder as Hugging Face has it, with files of 5GB at most.")
    ] = "",
) -> None:
    """Write a checkpoint's state, with whole tensors, in a format that is read without elasticjob.

    Example: [bold]elasticjob checkpoint export /mnt/run model.safetensors --only model[/]
    """
    try:
        shard = int(Bytes.parse(shard_size.removesuffix("B") or "0").value)
    except MalformedQuantity as error:
        raise Failure(f"--shard-size: {error}", code=Exit.USAGE) from error
    kind = format_ or SUFFIXES.get(out.suffix, Format.SAFETENSORS if shard else None)
    if shard and kind is not Format.SAFETENSORS:
        raise Failure(f"--shard-size is for safetensors, and the format is {kind}", code=Exit.USAGE)
    if kind is None:
        problem, step_ = f"the name {out} does not tell the format", "give --format torch, safetensors or dcp"
        raise Failure(problem, next_step=step_, code=Exit.USAGE)
    with told_in_a_sentence():
        out.parent.mkdir(parents=True, exist_ok=True)
        found = Saved(*saved.found(place, step))
        left_out = exported.export(found, only, out, kind, shard)
    more = f", without {left_out} values that are no tensors: --format torch has them" if left_out else ""
    say(f"step {found.manifest.step} of {place} is in {out}{more}")


def import_(
    source: Annotated[
        str, typer.Argument(help="A .safetensors or torch file, or a folder of Hugging Face or DCP.")
    ],
    place: Annotated[str, typer.Argument(help="A folder or URL without checkpoints.")],
    name: Annotated[str, typer.Option("--as", help="The name of the model in the state.")] = "model",
) -> None:
    """Write the weights in files of others as a checkpoint of step 0, with which trainings begin.

    Example: [bold]elasticjob checkpoint import model.safetensors /mnt/run[/]
    """
    with told_in_a_sentence():
        imported.write(source, name, Storage(place))
    say(f"{source} is step 0 of {place}")


checkpoint = Group(
    """Show checkpoints of a training, import or export them; the script is not needed.

    Example: [bold]elasticjob checkpoint show /mnt/run[/]
    """,
    {"show": show, "export": export, "import": import_},
)


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Turn what can go wrong with a checkpoint into a Failure."""
    try:
        yield
    except Damaged as error:
        step = "give an earlier one by --step: `elasticjob checkpoint show` lists them"
        raise Failure(f"the checkpoint is damaged: {error}", next_step=step) from error
    except KeyError as error:
        raise Failure(f"--only {error.args[0]}", code=Exit.USAGE) from error
    except (NoCheckpoint, Newer, OSError, ValueError, TypeError) as error:
        raise Failure(str(error)) from error


def look(storage: Storage, step: int, *, verify: bool) -> Seen:
    """Return the condition of a checkpoint: by its heads, or by all of its bytes."""
    manifest = None
    try:
        manifest = storage.manifest(step)
        saved_ = Saved(storage, manifest)
        if verify:
            saved_.verify()
    except Damaged as error:
        return Seen(step, "damaged", str(error), manifest)
    except Newer as error:
        return Seen(step, "newer", str(error), manifest)
    except (OSError, TypeError) as error:
        return Seen(step, "unreadable", str(error), manifest)
    return Seen(step, "whole" if verify else "readable", manifest=manifest)


def newest(seen: list[Seen]) -> int | None:
    """Return the newest step that can be used."""
    return max((each.step for each in seen if each.manifest and each.is_usable), default=None)


def as_text(place: str, seen: list[Seen], step: int | None, state: Any, depth: int = -1) -> Iterator[str]:
    """Yield the lines for a person."""
    yield place
    for each in sorted(seen, key=lambda one: one.step):
        count = len(each.manifest.parts) if each.manifest else 0
        parts = f"  {human_size(each.size):>9}  {amount(count, 'part')}" if count else ""
        yield f"  step {each.step}{parts}  {each.condition}" + (f": {each.reason}" if each.reason else "")
    if state is not None:
        yield ""
        yield f"step {step}"
        yield from branches(state, "  ", depth)


def branches(value: Any, indent: str, depth: int) -> Iterator[str]:
    """Yield a line for each name in a state, through so many levels; all, if that is negative."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, each in pairs:
        if isinstance(each, Described):
            shape = "×".join(map(str, each.shape)) or "scalar"
            pieces = f"  {each.pieces} pieces" if each.pieces > 1 else ""
            yield f"{indent}{key}  {each.dtype}  {shape}  {human_size(each.size)}{pieces}"
        elif isinstance(each, (Mapping, list, tuple)) and each and not is_short(each):
            told = f": one for each of {len(each)} workers" if isinstance(each, ForEach) else ""
            yield f"{indent}{key}{told}" + (f": {amount(len(each), 'value')}" if depth == 1 else "")
            if depth != 1:
                yield from branches(each, f"{indent}  ", depth - 1)
        else:
            yield f"{indent}{key}: {shorten(repr(each))}"


def is_short(value: Any) -> bool:
    """Whether a list or a mapping is told in one line: it has no tensors, and is one of plain values."""
    children = value.values() if isinstance(value, Mapping) else value
    plain = not isinstance(value, ForEach)
    plain = plain and all(not isinstance(each, (Described, Mapping, list, tuple)) for each in children)
    return plain and (isinstance(value, (list, tuple)) or len(repr(value)) <= LONGEST)


def shorten(text: str) -> str:
    """Return a value's text, or its beginning."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def human_size(size: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def as_data(place: str, seen: list[Seen], step: int | None, state: Any) -> dict[str, Any]:
    """Return everything for a program."""
    return {
        "place": place,
        "checkpoints": [
            {
                "step": each.step,
                "round": each.manifest.round if each.manifest else None,
                "bytes": each.size,
                "parts": [{"name": p.name, "bytes": p.size} for p in each.manifest.parts]
                if each.manifest
                else [],
                "condition": each.condition,
                "reason": each.reason,
            }
            for each in sorted(seen, key=lambda one: one.step)
        ],
        "step": step,
        "state": jsonable(state),
    }


def jsonable(value: Any) -> Any:
    """Return a state as JSON has it; a tensor is an object of its dtype, shape and bytes."""
    match value:
        case Described():
            more = {"pieces": value.pieces} if value.pieces > 1 else {}
            return {"tensor": {"dtype": value.dtype, "shape": [*value.shape], "bytes": value.size, **more}}
        case Mapping():
            return {str(key): jsonable(each) for key, each in value.items()}
        case list() | tuple():
            return [jsonable(each) for each in value]
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case _:
            return repr(value)
