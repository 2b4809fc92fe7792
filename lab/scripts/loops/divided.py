"""Loops of others over a model that FSDP2 divides, killed at each micro-batch of three steps: prints a table.

A training saves our checkpoint and the loop's own. It begins again from either, and from ours with another
number of workers: the state before each step that is left, and in the end, is that of an undisturbed training
bit for bit; with another number of workers what was loaded is, and the losses agree to 1e-5.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import lightning as pl
import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as whole
import transformers as hf
from accelerate import DataLoaderConfiguration, DistributedType, FullyShardedDataParallelPlugin, PartialState
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import ExponentialLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from elasticjob.trainer.integrations import huggingface, lightning
from elasticjob.trainer.integrations.accelerate import ElasticAccelerator
from lab.processes import end_on_sigterm

BATCH, EPOCHS, MICRO, EACH = 12, 2, 4, 2  # records of all in a micro-batch; those in an epoch, and in a step
RECORDS: Any = [{"inputs": each} for each in torch.arange(BATCH * MICRO * 6.0).sin().view(-1, 6)]
LOSSES: Final[list[float]] = []
STATES: Final[list[str]] = []


class Run(NamedTuple):
    """A start of a training, from our checkpoint or the loop's own; the last worker may be killed."""

    folder: Path
    workers: int = 2
    own: bool = False
    dropout: float = 0.0
    kill: int = 0


class Net(pl.LightningModule):
    """A model for all loops, with layers that workers do not divide evenly, and a frozen one."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers = nn.Linear(6, 5), nn.Dropout(run.dropout), nn.Linear(5, 7), nn.Linear(7, 1)
        self.layers = nn.Sequential(*layers)
        layers[2].requires_grad_(False)
        self.run = run
        torch.manual_seed(7 + dist.get_rank())
        register_optimizer_step_pre_hook(partial(keep, self))

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        if len(LOSSES) + 1 == self.run.kill and dist.get_rank() == self.run.workers - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = (self.layers(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        dist.all_reduce(everyones := loss.detach().clone())
        LOSSES.append(everyones.item() / self.run.workers)
        return {"loss": loss}

    def configure_model(self) -> None:
        for each in (*self.layers, self.layers):
            fully_shard(each, mesh=self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> Any:
        adam = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [adam], [{"scheduler": ExponentialLR(adam, 0.9), "interval": "step"}]

    def training_step(self, batch: Any, index: int) -> Any:
        loader: Any = self.trainer.train_dataloader  # whose place is for Lightning's own checkpoint
        loader.epoch, loader.batch = divmod(self.current_epoch * MICRO + index + 1, MICRO)
        return self(**batch)["loss"]


def keep(model: nn.Module, optimizer: Any, *_: Any) -> None:
    """Keep the whole state; torch makes a step to load an optimizer, too, before there is a loss."""
    if not LOSSES:
        return
    options = whole.StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)
    found: dict[str, Any] = whole.get_model_state_dict(model, options=options)
    if optimizer.state:
        found |= whole.get_optimizer_state_dict(model, optimizer, options=options)
    plain = [(name, each.tolist() if isinstance(each, Tensor) else each) for name, each in found.items()]
    STATES.append(repr(sorted(plain)))


def with_accelerate(run: Run, ours: dict[str, Any], own: str | None) -> Any:
    PartialState(cpu=True).distributed_type = DistributedType.MULTI_GPU  # accelerate divides on GPUs only
    order = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=5)
    given = {"dataloader_config": order, "fsdp_plugin": FullyShardedDataParallelPlugin(fsdp_version=2)}
    accelerator = ElasticAccelerator(**ours, **given, gradient_accumulation_steps=EACH, cpu=True)
    adam = torch.optim.AdamW((net := Net(run)).parameters(), lr=0.01)
    records: Any = torch.utils.data.DataLoader(RECORDS, BATCH // run.workers, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(net, adam, records, ExponentialLR(adam, 0.9))
    scheduler.split_batches = True  # one step of it for each of ours, however many workers there are

    def rest(own: str) -> Any:
        accelerator.load_state(own)
        first, done = divmod(int(Path(own).name) * EACH, MICRO)
        for epoch in range(first, EPOCHS):
            loader.set_epoch(epoch)
            yield epoch, accelerator.skip_first_batches(loader, done) if epoch == first else loader

    for _, batches in rest(own) if own else accelerator.epochs(loader, EPOCHS):
        for batch in batches:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch)["loss"])
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients and not own:
                accelerator.save_state(str(run.folder / f"own/{accelerator.steps_done + 1}"))
    return net, adam


def with_huggingface(run: Run, ours: dict[str, Any], own: str | None) -> Any:
    given: Any = {"num_train_epochs": EPOCHS, "per_device_train_batch_size": BATCH // run.workers}
    given |= {"gradient_accumulation_steps": EACH, "save_strategy": "steps", "save_steps": 1, "use_cpu": True}
    given |= {"fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "SHARDED_STATE_DICT"}}
    settings = hf.TrainingArguments(str(run.folder / "own"), **given, report_to=[])
    PartialState().distributed_type = DistributedType.MULTI_GPU  # accelerate divides on GPUs only
    elastic = huggingface.ElasticCallback(**ours)
    trainer = hf.Trainer(Net(run), settings, train_dataset=RECORDS, callbacks=[elastic])
    trainer.train(resume_from_checkpoint=elastic.newest(trainer) or own)
    return trainer.model, trainer.optimizer.optimizer


def with_lightning(run: Run, ours: dict[str, Any], own: str | None) -> Any:
    saved = ModelCheckpoint(run.folder / "own", every_n_train_steps=1, save_top_k=-1)
    given: Any = {"accelerator": "cpu", "devices": run.workers, "max_epochs": EPOCHS, "logger": False}
    given |= {"strategy": ModelParallelStrategy(run.workers, 1, process_group_backend="gloo")}
    both = [lightning.ElasticCallback(**ours), saved]
    trainer = pl.Trainer(**given, accumulate_grad_batches=EACH, callbacks=both)
    loader = lightning.ResumableLoader(RECORDS, batch_size=BATCH // run.workers, shuffle=True)
    trainer.fit(net := Net(run), loader, ckpt_path=own)
    return net, trainer.optimizers[0]


# each returns model and optimizer
LOOPS: Final = {"accelerate": with_accelerate, "huggingface": with_huggingface, "lightning": with_lightning}


def work(loop: str, run: Run, rank: int) -> None:
    """Be a worker."""
    log = os.open(run.folder / f"log-{rank}", os.O_CREAT | os.O_WRONLY)
    for number in (1, 2):
        os.dup2(log, number)
    place: Any = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": run.workers,
        "LOCAL_WORLD_SIZE": run.workers,
    }
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 1, "TORCHELASTIC_RUN_ID": "divided"}
    os.environ |= {name: str(each) for name, each in place.items()}
    dist.init_process_group("gloo", f"file://{run.folder}/store", world_size=run.workers, rank=rank)
    own = sorted((each.stat().st_mtime_ns, str(each)) for each in run.folder.glob("own/*") if run.own)
    ours = {"where": run.folder / ("none" if run.own else "ours"), "every": 1, "save_every": 1, "keep": 9}
    keep(*LOOPS[loop](run, ours, own[-1][1] if own else None))
    (run.folder / f"result-{rank}").write_text(json.dumps([LOSSES, STATES]))


def start(loop: str, run: Run, of: Path) -> list[list[Any]]:
    """Start a training, in a copy of a folder; return its losses and states, none if it did not end."""
    shutil.copytree(of, run.folder, ignore=shutil.ignore_patterns("store", "result-*", "log-*"))
    processes = [get_context("fork").Process(target=work, args=(loop, run, n)) for n in range(run.workers)]
    try:
        for each in processes:
            each.start()
        for each in processes:
            each.join()
    finally:
        for each in processes:
            each.kill()
    result = run.folder / "result-0"
    return json.loads(result.read_text()) if result.exists() else [[], []]


def judge(found: list[list[Any]], right: list[list[Any]], begins: int) -> str:
    """Return what differs from an undisturbed training that was at a step, "equal" if nothing does."""
    losses, states = right[0][begins * EACH :], right[1][begins:]
    if not states or found[1][:1] != states[:1] or len(found[0]) != len(losses):
        return "NOT LOADED"
    near = all(abs(a - b) <= 1e-5 * b for a, b in zip(found[0], losses, strict=True))
    return "equal" if found == [losses, states] else "to 1e-5" if near else "DIFFERS"


def main() -> None:
    """Print a row for each loop and micro-batch, or those that are named; exit with 1 if one is not equal."""
    end_on_sigterm()
    loops = [each for each in LOOPS if each in sys.argv] or list(LOOPS)
    kills = [int(each) for each in sys.argv[1:] if each.isdecimal()] or range(EACH + 1, EPOCHS * MICRO + 1)
    place, rows = Path(tempfile.mkdtemp()), []
    (empty := place / "empty").mkdir()
    print("loop        killed in   ours        its own     1 worker    3 workers", flush=True)
    for loop in loops:
        # the random numbers of dropout are not in each loop's own checkpoint
        runs = [Run(place / f"{loop}-{drops}", dropout=drops) for drops in (0.0, 0.5)]
        right = {run.dropout: start(loop, run, empty) for run in runs}
        for kill in kills:
            at = place / f"{loop}-{kill}"
            for drops in right:
                start(loop, Run(at / str(drops), dropout=drops, kill=kill), empty)
            starts = [Run(at / "a", dropout=0.5), Run(at / "b", own=True), Run(at / "c", 1), Run(at / "d", 3)]
            found = [(start(loop, run, at / str(run.dropout)), right[run.dropout]) for run in starts]
            rows.append([judge(*each, (kill - 1) // EACH) for each in found])
            print(f"{loop:<12}{kill:<12}" + "".join(f"{each:<12}" for each in rows[-1]), flush=True)
    if any(row != ["equal", "equal", "to 1e-5", "to 1e-5"] for row in rows):
        sys.exit(f"logs of what is not equal are in {place}")
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
