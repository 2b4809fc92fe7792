"""What the integrations refuse: prints a sentence for each."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from accelerate import FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import DataLoader

from elasticjob.trainer.integrations import huggingface, lightning, plain
from elasticjob.trainer.integrations.accelerate import ElasticAccelerator
from elasticjob.trainer.integrations.lightning import ResumableLoader
from elasticjob.trainer.torch import Elastic, node_mesh


def refused(call: Callable[..., Any], *arguments: Any) -> None:
    """Print why a call is refused."""
    try:
        call(*arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)


folder = Path(sys.argv[1])
callback = lightning.ElasticCallback(folder)
divides = SimpleNamespace(restore_checkpoint_after_setup=True)
refused(callback.setup, SimpleNamespace(strategy=divides), None, "fit")
zero = type("ZeroRedundancyOptimizer", (), {})()
refused(callback.on_fit_start, SimpleNamespace(optimizers=[zero]), None)
loaders = {"a": [1], "b": ResumableLoader([1, 2])}
refused(callback.on_train_start, SimpleNamespace(train_dataloader=loaders), None)
elastic = huggingface.ElasticCallback(folder)
for kind in ("DEEPSPEED", "FSDP"):
    divides = SimpleNamespace(distributed_type=SimpleNamespace(value=kind), is_fsdp2=False)
    refused(elastic.newest, SimpleNamespace(accelerator=divides))
refused(elastic.on_train_begin, None, None, None)
loader = ElasticAccelerator(folder, cpu=True).prepare(DataLoader([1, 2, 3, 4], 2, shuffle=True))  # type: ignore[arg-type]
before = {"workers": 1, "batch size": 4, "sampler": "SequentialSampler", "records": 5, "seed": 2}
refused(plain.check_order, "3 batches of epoch 0", plain.order_of(loader, 1, 3), before)
refused(plain.check_order, "3 batches of epoch 0", plain.order_of(loader, 1, 3), before | {"workers": 2})
plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
refused(lambda: ElasticAccelerator(folder, cpu=True, fsdp_plugin=plugin))
model = nn.Sequential(nn.Linear(2, 2))
parallelize_module(model, node_mesh(), {"0": ColwiseParallel()})
refused(Elastic, model, torch.optim.SGD(model.parameters()))
