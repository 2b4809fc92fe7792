"""DeepSpeed's objects are refused: ZeRO holds flat parts of several parameters, which have no names."""

from typing import Any, Final

from torch import nn

INSTEAD: Final = "save by engine.save_checkpoint, or divide the model with fully_shard in place of ZeRO"


def refuse(name: str, value: Any) -> None:
    """Raise TypeError if a value is an engine or an optimizer of DeepSpeed, or a model as ZeRO-3 has it."""
    if type(value).__name__ == "ZeroRedundancyOptimizer":
        raise TypeError(f"{name} divides its state over workers in its own way: use fully_shard in its place")
    kinds = {each.__name__ for each in type(value).__mro__ if each.__module__.startswith("deepspeed.")}
    if kinds & {"DeepSpeedEngine", "DeepSpeedOptimizer"}:
        raise TypeError(f"{name} is a {type(value).__name__}, whose state has no names: {INSTEAD}")
    for each, parameter in value.named_parameters() if isinstance(value, nn.Module) else ():
        if hasattr(parameter, "ds_id"):
            raise TypeError(f"{name} has {each}, of which ZeRO-3 holds flat parts: {INSTEAD}")
