"""Launchers of other systems, as a container's command shows them."""

from __future__ import annotations

import pytest

from elasticjob.api.v1alpha1.checks.launchers import LAUNCHERS, launcher_of


def script(text: str) -> list[str]:
    return ["/bin/bash", "-c", text]


@pytest.mark.parametrize(
    ("words", "name", "advice"),
    [
        (["dlrover-run", "--nnodes=2", "t.py"], "dlrover-run", "elasticjob run"),
        (script("cd /code && dlrover-run t.py"), "dlrover-run", "elasticjob run"),
        (
            ["python", "-m", "dlrover.trainer.torch.elastic_run"],
            "dlrover.trainer.torch.elastic_run",
            "elasticjob",
        ),
        (["torchrun", "--standalone", "t.py"], "torchrun", "leave them out"),
        (["torchrun", "--rdzv_backend", "c10d", "t.py"], "torchrun", "leave them out"),
        (
            ["python3.11", "-u", "-m", "torch.distributed.launch", "--master_addr=a"],
            "torch.distributed.launch",
            "",
        ),
        (["python", "/opt/bin/torchrun", "--rdzv-backend=static"], "torchrun", "leave them out"),
        (
            script(
                "accelerate launch --config_file /cfg/a.yaml --num_machines $NODE_NUM \\\n  --x 1 train.py\n"
            ),
            "accelerate launch",
            "Accelerator() finds its place by the environment",
        ),
        (script("set -e\nA=1 exec accelerate-launch t.py"), "accelerate-launch", "fixed size"),
        (script("(NCCL_DEBUG=INFO deepspeed --num_gpus 2 t.py)"), "deepspeed", "ssh"),
        (["/usr/bin/mpirun", "-np", "2", "t"], "mpirun", "ssh"),
        (script("if true; then horovodrun -np 2 python t.py; fi"), "horovodrun", "ssh"),
    ],
)
def test_a_launcher_that_knows_no_master_is_named(words: list[str], name: str, advice: str) -> None:
    found = launcher_of(words)
    assert found is not None
    assert found[0] == name
    assert advice in found[1]
    assert "elasticjob run" in found[1]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["sh", "-c"],
        ["sh", "start.sh"],
        ["torchrun", "t.py"],
        ["torchrun", "--rdzv-backend", "elasticjob", "--rdzv-endpoint=a:1", "t.py"],
        ["elasticjob", "run", "--standalone", "t.py", "--deepspeed", "ds.json"],
        ["python", "t.py", "--deepspeed"],
        ["accelerate", "config"],
        script("pip install deepspeed accelerate; elasticjob run t.py"),
        script("# mpirun once\nelasticjob run /code/dlrover/trainer/t.py"),
        script("echo 'unfinished"),
    ],
)
def test_commands_that_find_the_master_or_show_nothing_are_left_alone(words: list[str]) -> None:
    assert launcher_of(words) is None


def test_each_launcher_is_named_once() -> None:
    names = [name for each in LAUNCHERS for name in each.names]
    assert len(names) == len(set(names))
