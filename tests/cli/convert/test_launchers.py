"""Launchers' lines: what they ask for, what becomes of each flag, and the line of elasticjob run."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.cli.convert.launchers.containers import in_script, rewritten
from elasticjob.cli.convert.launchers.launch import Launch, words_of
from elasticjob.cli.convert.launchers.shell import calls, words
from elasticjob.cli.convert.launchers.table import found_in
from elasticjob.cli.convert.launchers.torchrun import ELASTICJOB_RUN
from elasticjob.cli.convert.launchers.variables import expand
from elasticjob.cli.convert.system import Verdict
from tests.kit.commands import click_command

HOSTS = "a slots=4\nb slots=4  # the second\n\n"
CONFIG = """
distributed_type: FSDP
machine_rank: 0
num_machines: 2
num_processes: 8
mixed_precision: 'bf16'
use_cpu: false
fsdp_config: {fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: true}
"""


def file(path: str) -> str | None:
    return {"hosts": HOSTS, "config.yaml": CONFIG}.get(path)


def launch(line: str) -> Launch:
    found = found_in(words_of(shlex.split(line)), file=file)
    assert found is not None
    return found.launch


@pytest.mark.parametrize(
    ("line", "ours", "sizes"),
    [
        ("torchrun --nnodes 1:4 --nproc_per_node=2 --rdzv-backend c10d t.py --x 1",
         "--nproc-per-node 2 t.py --x 1", (4, 1, 4)),
        ("torchrun --standalone --nproc-per-node=1 t.py", "t.py", ()),
        ("torchrun --nproc-per 8 -m pkg.train", "--nproc-per-node 8 --module pkg.train", ()),
        ("torchrun --max-restarts=3 --tee 3 --log_dir /l -- t.py -h",
         "--max-restarts 3 --tee 3 --log-dir /l t.py -h",
         ()),
        ("torchrun --no-python bash go.sh", "--no-python bash go.sh", ()),
        ("python -u -m torch.distributed.launch --use_env --nproc_per_node 2 t.py",
         "--nproc-per-node 2 t.py", ()),
        ("/opt/bin/python3.10 -m torch.distributed.run t.py", "t.py", ()),
        ("FOO=1 exec torchrun --rdzv-conf join_timeout=60,last_call_timeout=5 t.py",
         "--rdzv-conf join_timeout=60 t.py", ()),
        ("dlrover-run --network-check --nnodes=1:2 --nproc_per_node=8 t.py", "--nproc-per-node 8 t.py",
         (2, 1, 2)),
        ("hyperpodrun --nnodes=4 --nproc-per-node=8 --server-port 8080 t.py", "--nproc-per-node 8 t.py",
         (4,)),
        ("elasticjob run --recovery restart --nproc-per-node 2 t.py",
         "--nproc-per-node 2 --recovery restart t.py", ()),
        ("accelerate launch --num_processes 16 --num_machines 2 --multi_gpu t.py",
         "--nproc-per-node 8 t.py", (2,)),
        ("accelerate launch --config_file config.yaml t.py", "--nproc-per-node 4 t.py", (2,)),
        ("accelerate launch --config_file config.yaml --num_processes 4 t.py", "--nproc-per-node 2 t.py",
         (2,)),
        ("deepspeed --num_nodes 4 --min_elastic_nodes 1 --max_elastic_nodes 8 --num_gpus 2 t.py -d x",
         "--nproc-per-node 2 t.py -d x", (4, 1, 8)),
        ("deepspeed --hostfile=hosts t.py", "--nproc-per-node 4 t.py", (2,)),
        ("deepspeed --hostfile hosts --num_nodes 1 --num_gpus 2 t.py", "--nproc-per-node 2 t.py", (1,)),
        ("mpirun -np 8 --allow-run-as-root -mca pml ob1 -map-by ppr:4:node python -u t.py",
         "--nproc-per-node 4 t.py",
         ()),
        ("mpirun -np 4 -H a:2,b:2 -x A=1 ./program x", "--nproc-per-node 2 --no-python ./program x", (2,)),
        ("horovodrun -np 4 --min-np 2 --max-np 6 --host-discovery-script d.sh python t.py", "t.py",
         (6, 2, 6)),
        ("horovodrun -np 8 --min-np 4 --max-np 8 --slots-per-host 4 python t.py", "--nproc-per-node 4 t.py",
         (2, 1, 2)),
    ],
)  # fmt: skip
def test_a_line_becomes_one_of_ours(line: str, ours: str, sizes: tuple[int, ...]) -> None:
    found = launch(line)
    assert shlex.join(found.command()) == f"elasticjob run {ours}"
    assert tuple(found.sizes().values()) == sizes


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("torchrun --rdzv-endpoint a:1 t.py",
         "--rdzv-endpoint: dropped (the job's master is the rendezvous, and pods find it by themselves)"),
        ("torchrun --nnodes $N t.py",
         "--nnodes: dropped (its value is known only where the line runs: write minReplicas, replicas and "
         "maxReplicas of the role worker)"),
        ("torchrun --nnodes 4:2 t.py",
         "--nnodes: dropped ('4:2' is no size: write minReplicas, replicas and "
         "maxReplicas of the role worker)"),
        ("torchrun --nproc-per-node -5 t.py",
         "--nproc-per-node: dropped ('-5' is no size: write --nproc-per-node NUMBER, or auto for all GPUs)"),
        ("torchrun --frobnicate 5 t.py",
         "--frobnicate: dropped (torchrun has no such flag: check its purpose)"),
        ("torchrun --numa-binding node t.py",
         "--numa-binding: dropped (workers fork from one process that is bound to no node; "),
        ("torchrun --rdzv-conf lively=1 t.py",
         "--rdzv-conf: dropped (--rdzv-conf has 'lively=1'; give KEY=VALUE with "),
        ("dlrover-run --exclude-straggler t.py", "--exclude-straggler: kept (nodeCheck: ExcludeStragglers)"),
        ("accelerate launch --mixed_precision fp16 t.py",
         "--mixed_precision: kept (ACCELERATE_MIXED_PRECISION=fp16 in the environment)"),
        ("accelerate launch --config_file config.yaml t.py",
         "config.yaml: fsdp_sharding_strategy: kept (FSDP_SHARDING_STRATEGY=FULL_SHARD in the environment)"),
        ("accelerate launch --config_file away.yaml t.py",
         "--config_file: dropped (run elasticjob convert where the file is: its processes and "
         "precision are unknown)"),
        ("accelerate launch --fsdp_offload_params true t.py",
         "--fsdp_offload_params: kept (FSDP_OFFLOAD_PARAMS=true in the environment)"),
        ("python -m torch.distributed.launch t.py",
         "torch.distributed.launch: changed (scripts get LOCAL_RANK in the environment, and no argument "
         "--local_rank: read it there)"),
        ("deepspeed --hostfile away t.py",
         "--hostfile: dropped (nodes are pods of the job: write replicas of the role worker, "
         "one for each host)"),
        ("mpirun -x LD_LIBRARY_PATH python t.py", "-x: dropped (workers have LD_LIBRARY_PATH of their pod)"),
    ],
)  # fmt: skip
def test_each_flag_is_told(line: str, note: str) -> None:
    assert any(str(each).startswith(note) for each in launch(line).notes), launch(line).notes


def test_environments_are_those_that_the_launcher_sets() -> None:
    assert launch(
        "accelerate launch --config_file config.yaml --use_deepspeed --zero_stage 3 t.py"
    ).environment == {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
        "FSDP_OFFLOAD_PARAMS": "true",
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
    }
    assert launch("mpirun -genv A 1 -x B=2 python t.py").environment == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    "line",
    ["python train.py", "accelerate config", "sleep 5", "elasticjob submit x", "pip install torchrun", "A=1"],
)
def test_other_commands_are_no_launchers(line: str) -> None:
    assert found_in(words_of(shlex.split(line))) is None


def test_the_flags_of_elasticjob_run_are_all_there() -> None:
    for option in click_command("run").params:
        for name in option.opts if option.param_type_name == "option" else ():
            key = name.lstrip("-").replace("_", "-")
            if key not in ("help", "h"):
                assert ELASTICJOB_RUN[key].values == int(not option.is_flag), name


def test_each_line_of_ours_is_one_that_elasticjob_run_takes() -> None:
    parser = click_command("run")
    for line in (
        "torchrun --nproc-per-node 2 --max-restarts 3 --role a --log-dir l -r 3 -t 3 --local-ranks-filter 0 "
        "--signals-to-handle SIGTERM --start-method spawn --shutdown-timeout 5 "
        "--virtual-local-rank t.py --nnodes 9",
        "torchrun --rdzv-conf join_timeout=60 -m pkg --x",
        "accelerate launch --num_processes 4 --no_python prog -x",
        "mpirun -np 4 ./prog -np 3",
    ):
        words = launch(line).command()[2:]
        context = parser.make_context("run", list(words), resilient_parsing=False)
        assert context.params["script"] in ("t.py", "pkg", "prog", "./prog")
        assert context.params["arguments"] == words[words.index(context.params["script"]) + 1 :]


@pytest.mark.parametrize(
    ("script", "ours"),
    [
        ("cd /code && torchrun --nproc_per_node=$GPUS t.py $ARGS > log 2>&1\necho end\n",
         "cd /code && elasticjob run --nproc-per-node 4 t.py $ARGS > log 2>&1\necho end\n"),
        ("N=2\ntorchrun --nproc_per_node=$((N * 4)) \\\n  t.py \"$A b\" 'c d'; exit",
         "N=2\nelasticjob run --nproc-per-node 8 t.py \"$A b\" 'c d'; exit"),
        ("if true; then exec $(which deepspeed) t.py; fi", "if true; then exec elasticjob run t.py; fi"),
        ("cat > f <<EOF\ntorchrun not.py\nEOF\ntorchrun t.py",
         "cat > f <<EOF\ntorchrun not.py\nEOF\nelasticjob run t.py"),
        ("# torchrun not.py\necho 'torchrun not.py'\nA=1 torchrun t.py",
         "# torchrun not.py\necho 'torchrun not.py'\n"
         "A=1 elasticjob run t.py"),
    ],
)  # fmt: skip
def test_a_line_is_replaced_within_its_script(script: str, ours: str) -> None:
    assert in_script(script, {"GPUS": "4"})[0] == ours


def test_a_script_without_launcher_stays() -> None:
    script = 'while read line; do echo "$line"; done < file # torchrun t.py'
    assert in_script(script, {}) == (script, None)


@pytest.mark.parametrize(
    ("container", "ours"),
    [
        ({"command": ["torchrun"], "args": ["t.py", "a b"]}, {"command": ["elasticjob", "run", "t.py",
         "a b"]}),
        ({"args": ["torchrun", "t.py"]}, {"args": ["elasticjob", "run", "t.py"]}),
        ({"command": ["sh", "-c"], "args": ["torchrun t.py"]}, {"command": ["sh", "-c",
         "elasticjob run t.py"]}),
        ({"command": ["bash", "-lc", "torchrun --nproc_per_node=$N t.py"], "env": [{"name": "N",
         "value": "2"}]},
         {"command": ["bash", "-lc", "elasticjob run --nproc-per-node 2 t.py"], "env": [{"name": "N",
          "value": "2"}]}),
        ({"command": ["accelerate", "launch", "--cpu", "t.py"], "env": [{"name": "A", "value": "1"}]},
         {"command": ["elasticjob", "run", "t.py"],
          "env": [{"name": "A", "value": "1"}, {"name": "ACCELERATE_USE_CPU", "value": "true"}]}),
        ({"command": ["python", "t.py"]}, {"command": ["python", "t.py"]}),
        ({}, {}),
    ],
)  # fmt: skip
def test_a_container_runs_elasticjob(container: dict[str, Any], ours: dict[str, Any]) -> None:
    assert rewritten(container).container == ours


def test_python_that_has_its_rank_from_the_system_is_run_by_ours() -> None:
    made = rewritten({"command": ["python", "-u", "t.py"]}, plainly=True, defaults=Launch("", processes="8"))
    assert made.container["command"] == ["elasticjob", "run", "t.py"]
    code = rewritten({"command": ["python3", "-c", "print(1)"]}, plainly=True)
    assert code.container["command"] == ["elasticjob", "run", "--no-python", "python3", "-c", "print(1)"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$A", "2"),
        ("${A}x", "2x"),
        ("${B:-7}", "7"),
        ("$B", "$B"),
        ("$((A * 4))", "8"),
        ("$((A*4 - 1))", "7"),
        ("$((B * 4))", "$((B * 4))"),
        ("$((1 / 0))", "$((1 / 0))"),
        ("none", "none"),
    ],
)
def test_known_variables_and_sums_are_put_in(text: str, value: str) -> None:
    assert expand(text, {"A": "2"}) == value


@given(
    st.lists(st.sampled_from(["a", "'b c'", '"d $E"', "\\ ", "$(f g)", "${H}", "`i j`", "--k=l"]), min_size=1)
)
def test_words_are_found_as_they_are_written(parts: list[str]) -> None:
    assert [word.raw for word in words(" ".join(parts))] == parts


@given(st.text(alphabet="ab '\"\\$(){}<>;&|#\n`=-", max_size=40))
def test_any_script_is_read_to_its_end(script: str) -> None:
    for call in calls(script):
        assert 0 <= call.starts[0] <= call.end <= len(script)
        for start, word in zip(call.starts, call.words, strict=True):
            assert script.startswith(word.raw, start)


@given(
    st.lists(st.sampled_from(["--nnodes", "2", "-m", "--x", "a=b", "--", "-np", "t.py", "--config_file", ""]))
)
@pytest.mark.parametrize(
    "name", ["torchrun", "accelerate launch", "deepspeed", "mpirun", "horovodrun", "dlrover-run"]
)
def test_no_line_is_too_odd(name: str, rest: list[str]) -> None:
    found = launch(shlex.join([*name.split(), *rest]))
    assert all(note.verdict in Verdict and note.why for note in found.notes)
