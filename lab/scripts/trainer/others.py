"""torchtitan, Megatron-core and DeepSpeed on CPU: a line for each case; exits with 1 if one is wrong.

torchtitan's Trainer makes three steps of 12 records in micro-batches of 3, and is compared bit for bit with
its own checkpointer. Workers fork from this process, which has imported all.
"""

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
import deepspeed
import torch
import torch.distributed as dist
import torchtitan.tools.utils as tools
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

CPU = {name: getattr(torch.cpu, name) for name in ("set_device", "synchronize", "device_count")} | {
    "get_device_properties": lambda *_: SimpleNamespace(total_memory=1, name="cpu"),
    **{"get_device_name": lambda *_: "cpu", "current_device": lambda: 0, "memory_stats": lambda *_: {}},
    **{"reset_peak_memory_stats": lambda: None, "empty_cache": lambda: None},
}
tools.device_type, tools.device_module = (
    "cpu",
    SimpleNamespace(**CPU),
)  # others of torchtitan copy these names
from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from elasticjob.trainer.integrations.megatron import Sharded  # noqa: E402
from elasticjob.trainer.integrations.torchtitan import ElasticCheckpointer  # noqa: E402
from elasticjob.trainer.torch.checkpoint import Checkpoint  # noqa: E402
from lab.processes import end_on_sigterm  # noqa: E402

BATCH, LOCAL, LENGTH = 12, 3, 16
Layout = tuple[int, int]  # data-parallel shards or pipeline stages, tensor-parallel workers
LAYOUTS = (((2, 1), (1, 1), 5), ((1, 2), (2, 1), 9), ((2, 1), (2, 2), 3), ((2, 2), (1, 2), 4))
Lines = dict[Any, list[Any]]


class Data:
    """Records for torchtitan. Its place is how many all have read, or one for each, as of its own loaders."""

    def __init__(self, own: bool, workers: int, rank: int) -> None:
        self.own, self.workers, self.rank, self.at = own, workers, rank, 0

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            draw = torch.Generator().manual_seed(self.at + self.rank * LOCAL)
            x = torch.randint(2048, (LOCAL, LENGTH + 1), generator=draw)
            self.at += LOCAL * self.workers
            yield {"input": x[:, :-1].contiguous()}, x[:, 1:].contiguous()

    def state_dict(self) -> dict[str, Any]:
        own = {f"dp_rank_{self.rank}": self.at, "world_size": self.workers}
        return own if self.own else {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state[f"dp_rank_{self.rank}" if self.own else "at"]


def config(folder: Path, layout: Layout, checkpointer: Any) -> Any:
    """Return torchtitan's debug model, as small as it goes, without what needs a GPU."""
    made = llama3_debugmodel()
    training, parallel, own = made.training, made.parallelism, folder.name == "own"
    del made.model_spec.model.layers[2:]
    for layer in made.model_spec.model.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    made.loss, made.dump_folder = CrossEntropyLoss.Config(global_vocab_size=2048), str(folder)
    made.tokenizer = SimpleNamespace(build=lambda **_: None)
    made.dataloader = SimpleNamespace(build=lambda **at: Data(own, at["dp_world_size"], at["dp_rank"]))
    parallel.data_parallel_shard_degree, parallel.tensor_parallel_degree = layout
    training.local_batch_size, training.global_batch_size, training.steps = LOCAL, BATCH, 3
    training.seq_len, training.mixed_precision_param, training.disable_cuda_graphs = LENGTH, "float32", True
    made.debug.seed, made.optimizer.implementation, made.activation_checkpoint = 0, "foreach", None
    made.compile.enable = made.validator.enable = False
    given = {"every": 1} if checkpointer is ElasticCheckpointer else {"last_save_model_only": False}
    made.checkpoint = checkpointer.Config(enable=True, interval=1, **given)
    return made


def train(folder: Path, rank: int, layout: Layout, checkpointer: Any, kill: int) -> None:
    """Train with torchtitan, the last worker until it is killed; write what is logged, and the last bits."""
    trainer = Trainer(config(folder, layout, checkpointer))
    for each in trainer.model_parts[0].modules():
        if isinstance(each, FSDPModule):
            each.set_force_sum_reduction_for_comms(True)  # gloo has no PREMUL_SUM
    lines, left, step = (folder / f"lines{rank}").open("a"), [*range(kill)], trainer.forward_backward_step

    def killed(**given: Any) -> Any:
        if left and left.pop() == 0 and rank == layout[0] * layout[1] - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(**given)

    def log(*line: Any, extra_metrics: Any = None) -> None:
        print(json.dumps([*line, *(extra_metrics or {}).values()]), file=lines, flush=True)

    trainer.forward_backward_step, trainer.metrics_processor.log = killed, log
    time.sleep = lambda _: None  # Trainer waits for others, who are there
    trainer.train()
    states = [*trainer.model_parts[0].parameters(), *trainer.optimizers.state_dict().values()]
    whole = [each.full_tensor() if isinstance(each, DTensor) else each for each in states]
    bits = b"".join(each.detach().numpy().tobytes() for each in whole if torch.is_tensor(each))
    log("end", sha256(bits).hexdigest())


def described(folder: Path, rank: int, layout: Layout) -> None:
    """Load a GPT of Megatron-core, or draw one; write each piece as Megatron places it."""
    stages, wide = layout
    parallel_state.initialize_model_parallel(wide, stages)
    sizes = {"num_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "gated_linear_unit": True}
    sizes |= {"tensor_model_parallel_size": wide, "pipeline_model_parallel_size": stages}
    made = TransformerConfig(**sizes, use_cpu_initialization=True, pipeline_dtype=torch.float32)
    ends = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    spec = get_gpt_layer_local_spec()
    model = GPTModel(made, spec, 64, 32, pre_process=ends[0], post_process=ends[1])
    for name, each in model.named_parameters():
        seed = len(name) + rank * getattr(each, "tensor_model_parallel", False)
        each.data = torch.rand(each.shape, generator=torch.Generator().manual_seed(seed))
    state = {"model": Sharded(model.sharded_state_dict, model.load_state_dict)}
    checkpoint = Checkpoint(folder / "run", state, every=1, save_every=1)
    checkpoint.save(checkpoint.load() + 1)
    apply_factories(all_ := model.sharded_state_dict())
    found = [each for each in nested_values(all_) if isinstance(each, ShardedTensor)]
    torch.save(
        [(each.key, each.global_shape, each.global_slice(), each.data) for each in found], folder / f"{rank}"
    )


def refused(folder: Path, _: int, __: Layout, stage: int) -> None:
    """Give a Checkpoint what DeepSpeed has made of a model; write what is refused."""
    module, optimizer = torch.nn.Linear(2, 1), {"type": "Adam", "params": {"torch_adam": True}}
    given = {"train_batch_size": 1, "optimizer": optimizer, "zero_optimization": {"stage": stage}}
    engine, divided, *_rest = deepspeed.initialize(model=module, config=given)
    with (folder / "said").open("w") as file:
        for each in (engine, divided, module):
            try:
                Checkpoint(folder, {"it": each})
            except TypeError as error:
                print(str(error).partition(",")[0], file=file)


def forked(work: Callable[..., None], folder: Path, layout: Layout, *given: Any) -> None:
    """Do some work in as many workers as a layout has."""
    workers = layout[0] * layout[1]
    (folder / "group").unlink(missing_ok=True)

    def be(rank: int) -> None:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(workers))
        os.dup2(os.open(folder / f"log{rank}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=workers)
        work(folder, rank, layout, *given)
        dist.destroy_process_group()

    processes = [
        multiprocessing.get_context("fork").Process(target=be, args=(rank,)) for rank in range(workers)
    ]
    try:
        for each in processes:
            each.start()
        for each in processes:
            each.join(120)
    finally:
        for each in processes:
            each.kill()


def trained(folder: Path, *given: Any) -> Lines:
    """Train; return what the folder tells of each step, and how often."""
    folder.mkdir(exist_ok=True)
    forked(train, folder, *given)
    lines = [json.loads(line) for line in (folder / "lines0").read_text().splitlines()]
    steps = [line.pop(0) for line in lines]
    return {step: [steps.count(step), *line] for step, line in zip(steps, lines, strict=True)}


def pieces(folder: Path, layout: Layout) -> dict[str, Any]:
    """Load and save with Megatron; return the tensors that its pieces make."""
    forked(described, folder, layout)
    whole: dict[str, Any] = {}
    for rank in range(layout[0] * layout[1]):
        for key, shape, at, found in torch.load(folder / f"{rank}", weights_only=False):
            whole.setdefault(key, torch.full(shape, torch.nan))[at] = found
    return {key: each.tolist() for key, each in whole.items()}


def cases(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Play all cases: what each is, what was seen, and what it has to be."""
    theirs, ours, whole = CheckpointManager, ElasticCheckpointer, (2, 1)

    def killed(first: Any, then: Any, kill: int, layout: Layout = whole, after: Layout = whole) -> Lines:
        folder = Path(tempfile.mkdtemp(dir=place))
        trained(folder, layout, first, kill)
        return trained(folder, after, then, 0)

    plain = trained(place / "plain", whole, theirs, 0)
    yield "torchtitan, undisturbed", trained(place / "ours", whole, ours, 0), plain
    for kill in range(1, 7):
        yield f"torchtitan, killed at micro-batch {kill} of 6", killed(ours, ours, kill), plain
    yield "torchtitan's own, killed, then ours", killed(theirs, ours, 3), plain
    for layout, after, kill in LAYOUTS:
        own, seen = (killed(each, each, kill, layout, after) for each in (theirs, ours))
        tokens = [(seen[step].pop(4), own[step].pop(4))[0] for step in (1, 2, 3)]
        name = f"torchtitan, {layout[0]} shards x {layout[1]} tensor, then {after[0]} x {after[1]}"
        yield name, seen, own
        yield f"{name}: tokens", tokens, [BATCH * LENGTH * step for step in (1, 2, 3)]  # theirs are too few
    for layout in (whole, (1, 1)):
        trained(place / "own", layout, ours, 5)
    said = (place / "own" / "log0").read_text().splitlines()[-1]
    yield f"torchtitan's loader, 2, then 1: {said}", "here are 1: torchtitan's own loader" in said, True
    first = pieces(place, (1, 2))
    for layout in ((1, 1), (2, 2), (2, 1), (1, 2)):
        yield f"Megatron-core, 1 stage x 2 tensor, then {layout}", pieces(place, layout), first
    for stage, expected in ((1, 2), (2, 2), (3, 3)):
        forked(refused, place, (1, 1), stage)
        refusals = (place / "said").read_text().splitlines()
        yield f"DeepSpeed, ZeRO-{stage}: {'; '.join(refusals)}", len(refusals), expected


if __name__ == "__main__":
    end_on_sigterm()
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, seen, expected in cases(Path(folder)):
            bad += seen != expected
            print(f"{name:60} {'equal' if seen == expected else f'{seen} is not {expected}'}", flush=True)
    sys.exit(bad > 0)
