"""What libraries tell of their shards: Megatron-core all, DeepSpeed nothing (see `make loops-titan`, too)."""

from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from elasticjob.trainer.integrations.megatron import MODULE, Sharded
from elasticjob.trainer.torch.checkpoint import Checkpoint
from elasticjob.trainer.torch.saving.tree import Piece

FIELDS = {
    "ShardedTensor": ["key", "data", "global_shape", "global_offset", "prepend_axis_num"],
    "ShardedObject": ["key", "data", "global_shape", "global_offset"],
    "ShardedTensorFactory": ["build", "merge_fn"],
    "LocalNonpersistentObject": ["obj"],
}
"""What is read of Megatron-core's classes."""


def made(kind: str, *values: Any) -> Any:
    """Return an object as Megatron-core would make it."""
    return make_dataclass(kind, FIELDS[kind], namespace={"__module__": MODULE})(*values)


def described(*at: int) -> dict[str, Any]:
    """Return layer 1 of 2 of one of two tensor-parallel workers; its gate and projection are `at` rows."""
    halves = torch.arange(24.0).view(4, 6).chunk(2)
    cut = [
        made("ShardedTensor", "w", half, (2, 8, 6), (1, row, 0), 1)
        for half, row in zip(halves, at, strict=True)
    ]
    return {
        "weight": made("ShardedTensorFactory", lambda: cut, torch.cat),
        "extra": made("ShardedObject", "extra", None, (2,), (1,)),
        "rank": made("LocalNonpersistentObject", 7),
        "groups": [{"lr": 0.1}],
    }


def test_what_megatron_describes_is_saved_by_names_of_the_whole_model() -> None:
    loaded: list[Any] = []
    state = Sharded(lambda: described(2, 6), loaded.append)
    taken = state.state_dict()
    pieces = {name: each for name, each in taken.items() if isinstance(each, Piece)}
    places = {name: (each.shape, each.offset) for name, each in pieces.items()}
    assert places == dict.fromkeys(("w/1/0", "w/1/1"), ((4, 6), (2, 0)))
    assert taken.keys() - pieces.keys() == {"extra/1", "common/groups/0/lr"}
    state.load_state_dict(taken | {name: each.here + 1 for name, each in pieces.items()})
    assert torch.equal(loaded[0].pop("weight"), torch.arange(24.0).view(4, 6) + 1)
    assert loaded == [{"extra": None, "rank": 7, "groups": [{"lr": 0.1}]}]


def test_what_is_not_understood_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="the ShardedTensorFactory w/1 makes pieces that are not of one chunk"
    ):
        Sharded(lambda: described(2, 3), print).state_dict()
    with pytest.raises(ValueError, match="ShardedTensor w has no data"):
        Sharded(lambda: made("ShardedTensor", "w", None, (2,), (0,), 0), print).state_dict()
    with pytest.raises(ValueError, match=r"state.w is a ShardedTensor: give Sharded"):
        Checkpoint(tmp_path, {"state": {"w": made("ShardedTensor", "w", None, (2,), (0,), 0)}}).save(100)
    base = type("DeepSpeedOptimizer", (), {"__module__": "deepspeed.runtime.base_optimizer"})
    with pytest.raises(TypeError, match=r"state\['optimizer'\] is a ZeRO, whose state has no names"):
        Checkpoint(tmp_path, {"optimizer": type("ZeRO", (base,), {})()})
    model = nn.Linear(2, 1)
    model.weight.__dict__["ds_id"] = 0
    with pytest.raises(TypeError, match=r"state\['model'\] has weight, of which ZeRO-3 holds flat parts"):
        Checkpoint(tmp_path, {"model": model})
