"""accelerate launch: its flags and its configuration become variables that Accelerator() reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import yaml

from elasticjob.cli.convert.launchers import launch as acts
from elasticjob.cli.convert.launchers.launch import Flag, Flags, Launch
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
    "num-processes": Flag(acts.total),
    "num-machines": Flag(acts.nodes),
    **acts.each("module m", Flag(acts.as_module, 0)),
    "no-python": Flag(acts.no_python, 0),
    **{name: Flag(acts.same(name)) for name in ("max-restarts", "role", "tee", "log-dir")},
    "rdzv-conf": Flag(rendezvous_conf),
    "monitor-interval": Flag(acts.needless("the end of a worker is noticed at once")),
    **acts.each(
        "machine-rank main-process-ip main-process-port rdzv-backend", Flag(acts.needless(acts.MASTER))
    ),
    "same-network": Flag(acts.needless(acts.MASTER), 0),
    "multi-gpu": Flag(acts.needless(BY_NUMBER), 0),
    **acts.each("cpu use-cpu", Flag(acts.variable("ACCELERATE_USE_CPU", "true"), 0)),
    **acts.each("quiet q", Flag(acts.needless("the agent logs events, not each step"), 0)),
    "debug": Flag(acts.variable("ACCELERATE_DEBUG_MODE", "true"), 0),
    "enable-cpu-affinity": Flag(acts.variable("ACCELERATE_CPU_AFFINITY", "1"), 0),
    "gpu-ids": Flag(gpu_ids),
    "mixed-precision": Flag(acts.variable("ACCELERATE_MIXED_PRECISION")),
    "num-cpu-threads-per-process": Flag(acts.variable("OMP_NUM_THREADS")),
    "main-training-function": Flag(acts.needless("it is for TPUs alone")),
    "zero3-init-flag": Flag(acts.variable("ACCELERATE_DEEPSPEED_ZERO3_INIT", lower=True)),
    **acts.each(
        "deepspeed-hostfile deepspeed-exclusion-filter deepspeed-inclusion-filter "
        "deepspeed-multinode-launcher mpirun-hostfile",
        Flag(acts.needless(acts.OF_SSH)),
    ),
    **{
        name: Flag(acts.variable(f"ACCELERATE_{name.upper().replace('-', '_')}", "True"), 0)
        for name in (
            *("dynamo-use-fullgraph", "dynamo-use-dynamic", "dynamo-use-regional-compilation"),
            "fp8-use-autocast-during-eval",
        )
    },
    **acts.each("downcast-bf16 tpu tpu-cluster tpu-use-sudo", Flag(acts.drop(NO_TPU), 0)),
    "no-tpu-cluster": Flag(acts.needless(NO_TPU), 0),
    **acts.each("vm env", Flag(acts.drop(NO_TPU))),
}
FAMILIES: Final[Mapping[str, str]] = {
    "fsdp-": "",
    "megatron-lm-": "",
    "parallelism-config-": "",
    **dict.fromkeys(("dynamo-", "fp8-", "gradient-", "deepspeed-", "use-"), "ACCELERATE_"),
    **dict.fromkeys(("zero-", "zero3-", "offload-"), "ACCELERATE_DEEPSPEED_"),
}
"""Prefixes of flags that become variables of the same name, and the prefix of the variable."""
LOWER: Final = re.compile("fsdp-(?!.*wrap)|gradient-clipping|offload-|zero3-")
"""Flags whose True and False are written in small letters."""

OF_TYPE: Final = {"FSDP": "use-fsdp", "DEEPSPEED": "use-deepspeed", "MEGATRON_LM": "use-megatron-lm"}
"""The flag that a distributed_type of the configuration stands for."""
SAID_BY_OTHERS: Final = ("compute_environment", "distributed_type", "tpu_env", "command_file", "commands")


def flag_of(name: str) -> Flag | None:
    """Return a flag of accelerate launch."""
    found = acts.one_of(FLAGS)(name)
    if found is not None:
        return found
    if (start := next((each for each in FAMILIES if name.startswith(each)), None)) is None:
        return None
    told = FAMILIES[start] + name.upper().replace("-", "_")
    if start == "use-":
        return Flag(acts.variable(told, "true"), 0)
    return Flag(acts.variable(told, lower=LOWER.match(name) is not None))


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
    launch = acts.read(launch, acts.words_of(list(_flags(found))), flag_of)
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
