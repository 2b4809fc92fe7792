"""What the integrations refuse: prints a sentence for each."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elasticjob.trainer.integrations import huggingface, lightning
from elasticjob.trainer.integrations.lightning import ResumableLoader


def refused(call: Callable[..., Any], *arguments: Any) -> None:
    """Print why a call is refused."""
    try:
        call(*arguments)
    except (TypeError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)


class Divides(SimpleNamespace):
    """A strategy."""

    restore_checkpoint_after_setup = True


folder = Path(sys.argv[1])
callback = lightning.ElasticCallback(folder)
refused(callback.setup, SimpleNamespace(strategy=Divides()), None, "fit")
zero = type("ZeroRedundancyOptimizer", (), {})()
refused(callback.on_fit_start, SimpleNamespace(optimizers=[zero]), None)
loaders = {"a": [1], "b": ResumableLoader([1, 2])}
refused(callback.on_train_start, SimpleNamespace(train_dataloader=loaders), None)
elastic = huggingface.ElasticCallback(folder)
refused(elastic.newest, SimpleNamespace(is_fsdp_enabled=True, is_deepspeed_enabled=False))
refused(elastic.on_train_begin, None, None, None)
