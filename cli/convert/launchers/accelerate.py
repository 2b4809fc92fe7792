"""accelerate launch: its flags and its configuration become variables that Accelerator() reads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from elasticjob.cli.convert.launchers.launch import (
    MASTER,
    OF_SSH,
    Flag,
    Flags,
    Launch,
    as_module,
    drop,
    needless,
    no_python,
    nodes,
    one_of,
    read,
    same,
    total,
    variable,
    words_of,
)
from elasticjob.cli.convert.launchers.torchrun import rendezvous_conf
from elasticjob.cli.convert.system import Verdict

LARGEST: Final = 64 * 1024
NO_TPU: Final = "TPUs are not supported: workers use GPUs or CPUs"
BY_MACHINE: Final = (
    "counts the GPUs of its machine, or reads default_config.yaml there: name that by "
    "--config_file, or write "
    "--nproc-per-node"
)
BY_NUMBER: Final = "--nproc-per-node says so"


def gpu_ids(launch: Launch, flag: str, value: str) -> Launch:
    """A pod has the GPUs that it asks for."""
    why = "a pod sees the GPUs that it asks for: nvidia.com/gpu in resources.limits"
    return launch.note(flag, Verdict.DROPPED, why, harmless=value in ("all", ""))


FLAGS: Final[Flags] = {
    "num-processes": Flag(total),
    "num-machines": Flag(nodes),
    "module": Flag(as_module, 0),
    "m": Flag(as_module, 0),
    "no-python": Flag(no_python, 0),
    "max-restarts": Flag(same("max-restarts")),
    "role": Flag(same("role")),
    "tee": Flag(same("tee")),
    "log-dir": Flag(same("log-dir")),
    "rdzv-conf": Flag(rendezvous_conf),
    "monitor-interval": Flag(needless("the end of a worker is noticed at once")),
    **{
        name: Flag(needless(MASTER))
        for name in ("machine-rank", "main-process-ip", "main-process-port", "rdzv-backend", "same-network")
    },
    "same-network": Flag(needless(MASTER), 0),
    "multi-gpu": Flag(needless(BY_NUMBER), 0),
    "cpu": Flag(variable("ACCELERATE_USE_CPU", "true"), 0),
    "use-cpu": Flag(variable("ACCELERATE_USE_CPU", "true"), 0),
    "quiet": Flag(needless("the agent logs events, not each step"), 0),
    "q": Flag(needless("the agent logs events, not each step"), 0),
    "debug": Flag(variable("ACCELERATE_DEBUG_MODE", "true"), 0),
    "enable-cpu-affinity": Flag(variable("ACCELERATE_CPU_AFFINITY", "1"), 0),
    "gpu-ids": Flag(gpu_ids),
    "mixed-precision": Flag(variable("ACCELERATE_MIXED_PRECISION")),
    "num-cpu-threads-per-process": Flag(variable("OMP_NUM_THREADS")),
    "main-training-function": Flag(needless("it is for TPUs alone")),
    "use-fsdp": Flag(variable("ACCELERATE_USE_FSDP", "true"), 0),
    "use-deepspeed": Flag(variable("ACCELERATE_USE_DEEPSPEED", "true"), 0),
    "use-megatron-lm": Flag(variable("ACCELERATE_USE_MEGATRON_LM", "true"), 0),
    "use-parallelism-config": Flag(variable("ACCELERATE_USE_PARALLELISM_CONFIG", "true"), 0),
    "fsdp-transformer-layer-cls-to-wrap": Flag(variable("FSDP_TRANSFORMER_CLS_TO_WRAP")),
    "zero-stage": Flag(variable("ACCELERATE_DEEPSPEED_ZERO_STAGE")),
    "gradient-accumulation-steps": Flag(variable("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")),
    "gradient-clipping": Flag(variable("ACCELERATE_GRADIENT_CLIPPING", lower=True)),
    "offload-optimizer-device": Flag(variable("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", lower=True)),
    "offload-optimizer-nvme-path": Flag(variable("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH")),
    "offload-param-device": Flag(variable("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", lower=True)),
    "offload-param-nvme-path": Flag(variable("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH")),
    "zero3-init-flag": Flag(variable("ACCELERATE_DEEPSPEED_ZERO3_INIT", lower=True)),
    "zero3-save-16bit-model": Flag(variable("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", lower=True)),
    "deepspeed-config-file": Flag(variable("ACCELERATE_DEEPSPEED_CONFIG_FILE")),
    "deepspeed-moe-layer-cls-names": Flag(variable("ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES")),
    **{
        f"deepspeed-{name}": Flag(needless(OF_SSH))
        for name in ("hostfile", "exclusion-filter", "inclusion-filter", "multinode-launcher")
    },
    "mpirun-hostfile": Flag(needless(OF_SSH)),
    "dynamo-use-fullgraph": Flag(variable("ACCELERATE_DYNAMO_USE_FULLGRAPH", "True"), 0),
    "dynamo-use-dynamic": Flag(variable("ACCELERATE_DYNAMO_USE_DYNAMIC", "True"), 0),
    "dynamo-use-regional-compilation": Flag(
        variable("ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", "True"), 0
    ),
    "fp8-use-autocast-during-eval": Flag(variable("ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL", "True"), 0),
    "downcast-bf16": Flag(drop(NO_TPU), 0),
    "tpu": Flag(drop(NO_TPU), 0),
    "tpu-cluster": Flag(drop(NO_TPU), 0),
    "no-tpu-cluster": Flag(needless(NO_TPU), 0),
    "tpu-use-sudo": Flag(drop(NO_TPU), 0),
    "vm": Flag(drop(NO_TPU)),
    "env": Flag(drop(NO_TPU)),
}
FAMILIES: Final[Mapping[str, str]] = {
    "fsdp-": "",
    "megatron-lm-": "",
    "parallelism-config-": "",
    "dynamo-": "ACCELERATE_",
    "fp8-": "ACCELERATE_",
}
"""Prefixes of flags that become variables of the same name, and the prefix of the variable."""

OF_TYPE: Final = {"FSDP": "use-fsdp", "DEEPSPEED": "use-deepspeed", "MEGATRON_LM": "use-megatron-lm"}
"""The flag that a distributed_type of the configuration stands for."""
SAID_BY_OTHERS: Final = ("compute_environment", "distributed_type", "tpu_env", "command_file", "commands")


def flag_of(name: str) -> Flag | None:
    """Return a flag of accelerate launch."""
    found = one_of(FLAGS)(name)
    if found is not None:
        return found
    for start, before in FAMILIES.items():
        if name.startswith(start):
            return Flag(
                variable(
                    before + name.upper().replace("-", "_"), lower=start == "fsdp-" and "wrap" not in name
                )
            )
    return None


def read_configuration(launch: Launch, path: str, file: Callable[[str], str | None]) -> Launch:
    """Return the launch that a configuration file asks for, whose flags those of the line override."""
    text = file(path)
    if text is None:
        why = "run elasticjob convert where the file is: its processes and precision are unknown"
        return launch.note("--config_file", Verdict.DROPPED, why)
    try:
        found = yaml.safe_load(text) if len(text) <= LARGEST else None
    except (yaml.YAMLError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return launch.note("--config_file", Verdict.DROPPED, f"{path} is no configuration of accelerate")
    launch = launch.note("--config_file", Verdict.KEPT, f"each setting of {path} is said below")
    before = len(launch.notes)
    launch = read(launch, words_of(list(_flags(found))), flag_of)
    told = (replace(note, field=f"{path}: {note.field.lstrip('-')}") for note in launch.notes[before:])
    return replace(launch, notes=(*launch.notes[:before], *told), script="", arguments=())


def _flags(found: Mapping[str, Any]) -> Iterator[str]:
    """Find the flags that settings of a configuration stand for."""
    if kind := OF_TYPE.get(str(found.get("distributed_type"))):
        yield f"--{kind}"
    for name, value in found.items():
        if isinstance(value, Mapping):
            yield from _flags(value)
        elif name not in SAID_BY_OTHERS and value is not None and value != "":
            yield from _flag(str(name), value)


def _flag(name: str, value: Any) -> Iterator[str]:
    known = flag_of(name.replace("_", "-"))
    if known is not None and known.values == 0:
        if str(value).lower() not in ("false", "no", "0"):
            yield f"--{name}"
    else:
        yield f"--{name}={','.join(map(str, value)) if isinstance(value, list) else value}"


def has_configuration(name: str, values: Mapping[str, str]) -> str:
    """Return the path of the configuration that a line names."""
    return values.get(name, "")
