"""Scripts for sbatch and command lines: the job of the first training, and what became of each line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.cli.convert.conversion import outcome
from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.scripts import ONE_FOR_EACH
from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.client.objects import IMAGE
from tests.cli.convert.converted import converted


def job(text: str, **files: str) -> dict[str, Any]:
    made = converted(text, "train.sh", **files)
    assert made.converted is not None, made.refusal or "not recognised"
    assert made.problems == ()
    return made.converted.job


def worker(text: str) -> dict[str, Any]:
    found: dict[str, Any] = job(text)["spec"]["replicaSpecs"]["worker"]
    return found


def main(text: str) -> dict[str, Any]:
    found: dict[str, Any] = worker(text)["template"]["spec"]["containers"][0]
    return found


WHOLE = """#!/bin/bash
#SBATCH --job-name=Big_Run --nodes=2-4
#SBATCH -t 1-02:00:00
#SBATCH --gres=gpu:a100:8 --cpus-per-task=12 --mem=64G
#SBATCH --partition=fast   # the fast one
#SBATCH --output=%j.out
module load cuda
export NCCL_DEBUG=INFO
GPUS=8
MASTER=$(scontrol show hostnames | head -n 1)
cd /code
ARGS=(
  --epochs 3   # few
  --name "a b"
)
srun --ntasks=$SLURM_NNODES --label torchrun --nnodes $SLURM_NNODES --nproc_per_node=$GPUS \\
  --rdzv_endpoint $MASTER:29500 train.py "${ARGS[@]}" --out $HOME/x
"""


def test_a_script_for_sbatch_becomes_a_job() -> None:
    made = job(WHOLE)
    assert made["metadata"] == {"name": "big-run"}
    assert made["spec"]["runPolicy"] == {"activeDeadlineSeconds": 93_600}
    assert {name: size for name, size in worker(WHOLE).items() if name != "template"} == {
        "replicas": 4,
        "minReplicas": 2,
        "maxReplicas": 4,
    }
    assert main(WHOLE) == {
        "name": "main",
        "image": IMAGE,
        "command": [
            "sh",
            "-c",
            'exec elasticjob run --nproc-per-node 8 train.py --epochs 3 --name "a b" --out $HOME/x',
        ],
        "workingDir": "/code",
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
        "resources": {"requests": {"cpu": "12", "memory": "64Gi"}, "limits": {"nvidia.com/gpu": "8"}},
    }


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (2, "--nodes: kept (replicas of the role worker)"),
        (3, "-t: kept (runPolicy.activeDeadlineSeconds: 93600)"),
        (5, "--partition: dropped (write runPolicy.scheduling.queue with gang: volcano"),
        (6, "--output: dropped (elasticjob logs NAME shows the logs of all nodes)"),
        (7, "module load cuda: dropped (the image has it: docs/own-image.md)"),
        (8, "NCCL_DEBUG: kept (in the environment of the container)"),
        (10, "MASTER: dropped (its value is known only where the script runs"),
        (11, "cd /code: kept (workingDir of the container)"),
        (16, "torchrun --nnodes 4 --nproc_per_node=$GPUS"),
        (16, "--rdzv_endpoint: dropped (the job's master is the rendezvous"),
    ],
)
def test_each_line_is_told(line: int, note: str) -> None:
    made = converted(WHOLE, "train.sh")
    assert made.converted is not None
    told = [(each.line, str(each)) for each in made.converted.notes]
    assert any(at == line and text.startswith(note) for at, text in told), told


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("#SBATCH -N 2 --ntasks-per-node=4\nsrun python train.py", "--nproc-per-node 4 train.py"),
        ("#SBATCH -N2 -n8\nsrun -u python train.py --x $SLURM_NTASKS", "--nproc-per-node 4 train.py --x 8"),
        ("#SBATCH -N 2\nsrun bash -c 'torchrun --nproc_per_node 2 train.py'", "--nproc-per-node 2 train.py"),
        ("#SBATCH -N 2\nexport RUN=\"torchrun --nproc_per_node 2\"\nCMD=\"$RUN train.py\"\nsrun $CMD",
         "--nproc-per-node 2 train.py"),
        ("#SBATCH -N 2\n: \"${LR:=3}\"\nsrun torchrun t.py --lr $LR", "t.py --lr 3"),
        ("#SBATCH -N 2\nsrun numactl -N 0 torchrun train.py", "train.py"),
        ("#SBATCH -N 2\nsrun singularity exec --nv image.sif python train.py", "train.py"),
        ("#SBATCH -N 2\nsrun accelerate launch --num_processes $((SLURM_NNODES * 8)) --num_machines "
         "$SLURM_NNODES t.py",
         "--nproc-per-node 8 t.py"),
        ("#SBATCH -N 2\nLR=1\nsrun -N2 bash -c 'export A=1; torchrun t.py --lr '$LR", "t.py --lr 1"),
        ("#SBATCH -N 2\nsrun bash -c 'torchrun \"$@\" --n ${1}' _ train.py --lr 3",
         "train.py --lr 3 --n train.py"),
    ],
)  # fmt: skip
def test_what_srun_starts_is_run_by_each_node(script: str, command: str) -> None:
    assert main(f"#!/bin/bash\n{script}\n")["command"] == ["elasticjob", "run", *command.split()]
    assert worker(f"#!/bin/bash\n{script}\n")["replicas"] == 2


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        (
            "torchrun --nnodes 1:4 --nproc-per-node 2 train.py",
            {"replicas": 4, "minReplicas": 1, "maxReplicas": 4},
        ),
        ("deepspeed --num_gpus 2 train.py", {"replicas": 1}),
        ("PYTHONPATH=. dlrover-run --network-check --nnodes=2 train.py", {"replicas": 2}),
        ("python3 -m accelerate.commands.launch --num_machines 3 train.py", {"replicas": 3}),
    ],
)
def test_a_line_becomes_a_job(line: str, sizes: dict[str, int]) -> None:
    found = worker(line)
    assert {name: size for name, size in found.items() if name != "template"} == sizes
    assert job(line)["metadata"] == {"name": "train"}


def test_files_that_a_line_names_are_read() -> None:
    made = job("deepspeed --hostfile hosts train.py", hosts="a slots=2\nb slots=2\n")
    assert made["spec"]["replicaSpecs"]["worker"]["replicas"] == 2
    checked = job("PYTHONPATH=. dlrover-run --network-check train.py")
    assert checked["spec"]["nodeCheck"] == "ExcludeFaults"
    container = checked["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    assert container["env"] == [{"name": "PYTHONPATH", "value": "."}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/bash\n#SBATCH -N 2\necho hello\n",
         "no line starts a training: torchrun, accelerate launch, deepspeed, or srun python"),
        ("#SBATCH -N 2\nmpirun -np 8 ./all_reduce_perf -b 8\n",
         "mpirun -np 8 ./all_reduce_perf -b 8 starts ./all_reduce_perf, which is no Python script: only MPI "
         "starts it with its ranks. Keep the job as it is, or write a script that calls torch.distributed"),
        ("torchrun --nnodes 2\n", "torchrun names no script: write it behind the flags"),
        ("#SBATCH -N 2\nsrun torchrun \"$@\"\n",
         "torchrun starts \"$@\", and its value is known only where the script runs: write the script there"),
        ("#SBATCH -N 2\nfor seed in 1 2; do\n  srun torchrun t.py --seed $seed\ndone\n",
         f"line 3 is in the loop 'for seed in 1 2': {ONE_FOR_EACH}"),
        ("#SBATCH -N 2\nwhile read -r fold; do srun python t.py $fold; done < folds\n",
         f"line 2 is in the loop 'while read -r fold': {ONE_FOR_EACH}"),
    ],
)  # fmt: skip
def test_what_starts_no_training_is_refused(text: str, why: str) -> None:
    assert converted(text, "train.sh").refusal == why


@pytest.mark.parametrize(
    ("lines", "arguments", "told"),
    [
        (
            'if [ -z "$R" ]; then X=--fresh; else X=--resume; fi',
            "--fresh",
            "X: changed (is '--fresh' now, not '--resume'",
        ),
        ("X=1\nif [ $R ]\nthen\n  X=2\nelif [ $S ]\nthen\n  X=3\nfi", "2", "X: changed (is '2' now, not '1'"),
        ("case $USER in\n bob) X=1;;\n *) X=2;;\nesac", "1", "X: changed (is '1' now, not '2'"),
        ("[ $R ] && X=1 || X=2", "1", "X: changed (is '1' now, not '2'"),
        ('X=--a\nX="$X --b"', "--a --b", "image: changed"),
        ("X=$DATA/x", "$DATA/x", "$DATA: changed (the script does not set it"),
        ("X=$(date)", "$(date)", "$(date): changed (each node has its own value"),
        ("X=1\nif [ $R ]; then\ncd /a\nelse\ncd /b\nfi", "1", "cd /b: changed (workingDir is /a now"),
        ("echo a > config\nX=1", "1", "echo a: dropped (write it into the image"),
        (
            "X=1\nfor i in 0 1; do srun -N 1 torchrun --node_rank $i t.py $X & done",
            "1",
            "-N: changed (replicas is 2",
        ),
    ],
)
def test_what_a_line_of_ours_takes_is_told(lines: str, arguments: str, told: str) -> None:
    text = f"#SBATCH -N 2\n{lines}\nsrun torchrun t.py $X\n"
    found = converted(text, "train.sh").converted
    assert found is not None
    assert " ".join(main(text)["command"]).endswith(f"elasticjob run t.py {arguments}")
    assert any(note.lossy and str(note).startswith(told) for note in found.notes)


def test_other_texts_are_no_command_lines() -> None:
    assert converted("make all\n", "train.sh").system == ""


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("30", 1800), ("10:30", 630), ("02:00:00", 7200), ("1-12", 129_600), ("1-12:30", 131_400), ("0", None)],
)
def test_times_are_those_of_slurm(time: str, seconds: int | None) -> None:
    made = job(f"#SBATCH --time={time}\ntorchrun t.py\n")
    assert made["spec"].get("runPolicy", {}).get("activeDeadlineSeconds") == seconds


@pytest.mark.parametrize(
    "again", ["#SBATCH --requeue", "trap 'scontrol requeue $SLURM_JOB_ID' USR1\nscontrol requeue 1"]
)
def test_the_time_of_a_script_that_is_requeued_is_no_deadline(again: str) -> None:
    found = converted(
        f"#SBATCH --time=30\n{again}\nsrun torchrun t.py --id $SLURM_JOB_ID\n", "train.sh"
    ).converted
    assert found is not None
    assert "runPolicy" not in found.job["spec"]
    told = {note.field: note.why for note in found.notes if note.lossy}
    assert told["--time"].startswith("it is the limit of one run")
    assert told["SLURM_JOB_ID"].startswith("is not set here")


@given(
    st.lists(
        st.sampled_from(
            [*WHOLE.splitlines(), "fi", "srun", "'", "$(", "#SBATCH -N", "#SBATCH", "}", "srun -n"]
        )
    )
)
def test_no_script_is_too_odd(lines: list[str]) -> None:
    text = "\n".join(lines)
    for source in sources("train.sh", "#!/bin/bash\n" + text):
        made = outcome(source, SYSTEMS)
        assert made.refusal or not made.system or made.problems == ()
