"""Checkpoints of Megatron-core's models and optimizers, by what these tell of their shards:

    Checkpoint("/mnt/run", {"model": Sharded(model.sharded_state_dict, model.load_state_dict), ...})

Megatron is not imported: its classes are known by their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from elasticjob.trainer.torch.saving.targets import Own
from elasticjob.trainer.torch.saving.tree import Piece

MODULE: Final = "megatron.core.dist_checkpointing.mapping"


class Sharded(Own):
    """What `describe` returns, as the state of a checkpoint; `load` gets it with what was saved in it."""

    def __init__(self, describe: Callable[[], Any], load: Callable[[Any], Any]) -> None:
        super().__init__(lambda: dict(leaves(describe())), lambda saved: load(restored(describe(), saved)))


def leaves(value: Any, path: str = "common") -> Iterator[tuple[str, Any]]:
    """Yield what is saved of a description, by name. Layers have names, in place of an axis in front."""
    match kind_of(value):
        case "ShardedTensorFactory":
            yield from built(value)
        case "ShardedTensor":
            yield piece_of(value)
        case "ShardedObject":
            yield "/".join((value.key, *map(str, value.global_offset))), value.data
        case "" if isinstance(value, (dict, list)):
            for key, each in value.items() if isinstance(value, dict) else enumerate(value):
                yield from leaves(each, f"{path}/{key}")
        case "":
            yield path, value


def restored(value: Any, saved: Mapping[str, Any]) -> Any:
    """Return a description with what was saved in the place of its leaves, as Megatron's own load does."""
    found = [saved.get(name, mine) for name, mine in leaves(value)]
    return put(value, iter([each.here if isinstance(each, Piece) else each for each in found]))


def put(value: Any, found: Iterator[Any]) -> Any:
    """Return a description with what was found in the place of its leaves, which is in their order."""
    if kind_of(value) == "ShardedTensorFactory":
        return value.merge_fn(put(value.build(), found))
    if isinstance(value, dict):
        return {key: put(each, found) for key, each in value.items()}
    if isinstance(value, list):
        return [put(each, found) for each in value]
    return value.obj if kind_of(value) == "LocalNonpersistentObject" else next(found)


def piece_of(value: Any) -> tuple[str, Piece]:
    """Return the name and the piece that a ShardedTensor is. ValueError if it is none that can be saved."""
    front = value.prepend_axis_num
    name = "/".join((value.key, *map(str, value.global_offset[:front])))
    if value.data is None or getattr(value, "flattened_range", None) is not None:
        raise ValueError(f"the ShardedTensor {name} has no data, or is flat: describe it in its shape")
    return name, Piece(value.data, tuple(value.global_shape[front:]), tuple(value.global_offset[front:]))


def built(factory: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a factory makes. Chunks of one tensor, as gate and projection, are tensors by themselves."""
    made = [*leaves(factory.build())]
    if len({name for name, _ in made}) == len(made):
        yield from made
        return
    offsets = zip(*(piece.offset for _, piece in made), strict=True)
    axis = next((axis for axis, found in enumerate(offsets) if len({*found}) > 1), 0)
    for number, (name, piece) in enumerate(made):
        shape, offset = [*piece.shape], [*piece.offset]
        shape[axis], more = divmod(shape[axis], len(made))
        offset[axis] -= number * shape[axis]
        if more or not 0 <= offset[axis] <= shape[axis] - piece.here.shape[axis]:
            raise ValueError(f"the ShardedTensorFactory {name} makes pieces that are not of one chunk each")
        yield f"{name}/{number}", Piece(piece.here, (*shape,), (*offset,))


def kind_of(value: Any) -> str:
    """Return which class of Megatron's descriptions a value is of; "" for all others."""
    return next((each.__name__ for each in type(value).__mro__ if each.__module__ == MODULE), "")
