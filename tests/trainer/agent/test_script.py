"""What the agent learns before it starts anything: the script's imports, the pod, the flags."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from elasticjob.trainer.agent.processes.environ import one_device, with_defaults
from elasticjob.trainer.agent.script import (
    Script,
    Unusable,
    check,
    imports,
    is_elastic,
    preloads,
    shareable,
    why_cold,
)
from elasticjob.trainer.agent.settings import modules_from, place_from, worker_count
from elasticjob.trainer.link.channel import LIMIT, Lines
from elasticjob.trainer.usage.cores import limit

FSDP = "torch.distributed.fsdp"
OURS = "elasticjob.trainer.integrations"


@pytest.mark.parametrize(
    ("source", "elastic"),
    [
        ("from elasticjob.trainer.torch import Elastic\nElastic(model)", True),
        ("from elasticjob.trainer.torch import *\nElastic(model)", True),
        ("from elasticjob.trainer.torch import Elastic as E\ntrain(E)", True),
        ("import elasticjob.trainer.torch as ej\nej.Elastic(model)", True),
        ("import elasticjob.trainer.torch\nelasticjob.trainer.torch.Elastic(model)", True),
        ("def main():\n    from elasticjob.trainer.torch import Elastic\n    Elastic(model)", True),
        ("from elasticjob.trainer.torch import Elastic", False),
        ("import elasticjob.trainer.torch as ej", False),
        ("from elasticjob.trainer.jax import Dataset, Elastic\nElastic({}, 3)", True),
        ("from elasticjob.trainer.jax import Dataset", False),
        ("from elasticjob.trainer.torch import saved\nsaved.read('/mnt/run')", False),
        (
            "try:\n    from elasticjob.trainer.torch import Elastic\nexcept ImportError:\n    Elastic = None",
            False,
        ),
        ("from elasticjob.trainer.torch.records.data import Loader", False),
        ("import torch  # elasticjob.trainer.torch", False),
        ("this is not Python", False),
    ],
)
def test_imports_tell_whether_a_script_is_elastic(tmp_path: Path, source: str, elastic: bool) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert is_elastic(imports(Script(str(script)))) is elastic


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (
            "import os\nos.environ['OMP_NUM_THREADS'] = '3'\nimport torch",
            "train.py sets OMP_NUM_THREADS before",
        ),
        (
            "from os import environ\nenviron.setdefault('MKL_NUM_THREADS', '3')",
            "train.py sets MKL_NUM_THREADS before",
        ),
        (
            "import os\nos.environ.update({'TORCH_LOGS': 'dynamo'}, A='1')\nimport torch",
            "train.py sets TORCH_LOGS before",
        ),
        (
            "import os\nos.environ.update(TORCHINDUCTOR_FX_GRAPH_CACHE='1')",
            "train.py sets TORCHINDUCTOR_FX_GRAPH",
        ),
        ("import os\nos.environ |= {'OMP_NUM_THREADS': '3'}\nimport torch", "train.py sets OMP_NUM_THREADS"),
        ("import settings\nimport torch", "settings.py sets OMP_NUM_THREADS"),
        ("import more\nimport torch", "settings.py sets OMP_NUM_THREADS"),
        ("import torch\nimport settings", ""),
        ("import os, torch\nos.environ['OMP_NUM_THREADS'] = '3'", ""),  # too late with python, too
        ("import os\nprint(os.environ['OMP_NUM_THREADS'])\nimport torch", ""),
        ("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport torch", ""),  # read when CUDA is used
        ("config['OMP_NUM_THREADS'] = 3\nimport torch", ""),
    ],
)
def test_a_script_that_sets_what_torch_reads_at_its_import_starts_cold(
    tmp_path: Path, source: str, why: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    (tmp_path / "settings.py").write_text("import os, more\nos.environ['OMP_NUM_THREADS'] = '3'")
    (tmp_path / "more.py").write_text("import settings")
    assert why_cold(Script(str(script))).startswith(why)
    assert bool(why_cold(Script(str(script)))) is bool(why)


@pytest.mark.parametrize(
    ("given", "workers", "cpus", "threads"),
    [
        ({}, 1, None, None),  # as torchrun
        ({}, 2, None, "1"),
        ({}, 1, 4.0, "4"),
        ({}, 2, 7.5, "3"),
        ({}, 4, 0.5, "1"),
        ({"OMP_NUM_THREADS": "6"}, 2, 4.0, "6"),
    ],
)
def test_workers_share_the_cores_of_their_container(
    given: dict[str, str], workers: int, cpus: float | None, threads: str | None
) -> None:
    assert with_defaults(given, workers, cpus).get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize(
    ("files", "given", "cores"),
    [
        ({}, {}, None),
        ({"cpu.max": "150000 100000"}, {}, 1.5),
        ({"cpu.max": "max 100000"}, {}, None),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, {}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, {}, None),
        ({"cpu.max": "max 100000"}, {"ELASTICJOB_CPUS": "2.5"}, 2.5),
    ],
)
def test_the_operator_or_the_cgroup_says_how_many_cores_there_are(
    tmp_path: Path, files: dict[str, str], given: dict[str, str], cores: float | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert limit(given, tmp_path) == cores


def test_what_cannot_be_read_is_not_elastic(tmp_path: Path) -> None:
    assert imports(Script(str(tmp_path / "absent.py"))) == frozenset()
    assert imports(Script("no.such.module", module=True)) == frozenset()
    assert imports(Script("/bin/true", python=False)) == frozenset()


def test_modules_are_found_like_files() -> None:
    assert "asyncio" in imports(Script("elasticjob.trainer.link.master", module=True))


def test_module_is_found_from_here_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pack = tmp_path / "somepack"
    pack.mkdir()
    (pack / "__init__.py").write_text("raise SystemExit('imported')")
    (pack / "train.py").write_text("import torch")
    (pack / "__main__.py").write_text("import numpy")
    assert Script("somepack.train", module=True).source() == pack / "train.py"
    assert Script("somepack", module=True).source() == pack / "__main__.py"


def files(folder: Path) -> None:
    """Scripts of all kinds."""
    (folder / "good.py").write_text("import torch\nprint('\\d')")
    (folder / "bad.py").write_text("import torch\nfor x im y:\n    pass")
    (folder / "null.py").write_bytes(b"x = 1\0")
    (folder / "empty").mkdir()
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text("")
    with zipfile.ZipFile(folder / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", "")


@pytest.mark.parametrize(
    "script",
    [
        Script("good.py"),
        Script("app"),
        Script("app.pyz"),
        Script("good", module=True),
        Script("json.tool", module=True),
        Script("sh", python=False),
    ],
    ids=lambda script: script.name,
)
def test_script_that_can_run_is_let_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    check(script)


@pytest.mark.parametrize(
    ("script", "sentence", "missing"),
    [
        (Script("absent.py"), "the script absent.py cannot be read: no such file or directory", True),
        (Script("empty"), "the script empty cannot be read: is a directory", True),
        (Script("bad.py"), "bad.py, line 2: invalid syntax: for x im y:", False),
        (Script("null.py"), "null.py", False),
        (Script("absent.module", module=True), "there is no module 'absent.module' in ", True),
        (Script("json.absent", module=True), "there is no module 'json.absent' in ", True),
        (Script("bad", module=True), "bad.py, line 2: invalid syntax: for x im y:", False),
        (Script("absent-program", python=False), "there is no program 'absent-program'", True),
    ],
    ids=lambda value: value.name if isinstance(value, Script) else None,
)
def test_script_that_cannot_run_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: Script, sentence: str, missing: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    files(tmp_path)
    with pytest.raises(Unusable) as caught:
        check(script)
    assert sentence in str(caught.value)
    assert caught.value.missing is missing


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "import os, ray\nfrom sklearn.datasets import load_digits\nfrom torch.nn import Linear",
            {"sklearn.datasets", "sklearn.datasets.load_digits", "torch.nn"},
        ),
        ("from torch.distributed.fsdp import fully_shard", {"torch._dynamo", FSDP, f"{FSDP}.fully_shard"}),
        ("from transformers import Trainer", {"transformers", "transformers.Trainer"}),
        ("import transformers\ntransformers.Trainer(model)", {"transformers", "transformers.Trainer"}),
        ("import lightning as L\nL.Trainer()", {"lightning"}),
        ("from pytorch_lightning import Trainer", {"pytorch_lightning"}),
        (f"from {OURS}.huggingface import ElasticCallback", {f"{OURS}.huggingface"}),
        (f"from {OURS} import lightning", {f"{OURS}.lightning"}),
        ("import os\nos.environ['HF_HOME'] = '/hub'\nimport transformers", set()),
        (
            f"os.environ |= dict(TRANSFORMERS_OFFLINE='1')\nimport {OURS}.huggingface, lightning, numpy",
            {"numpy"},
        ),
    ],
)
def test_warm_process_imports_what_is_slow_and_harmless(
    tmp_path: Path, source: str, expected: set[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    assert set(preloads(imports(Script(str(script))))) == expected | {"torch"}


@pytest.mark.parametrize(
    ("variable", "source", "expected"),
    [
        (None, "import numpy", {"numpy", "torch"}),
        ("tensorflow", "import numpy", {"numpy", "tensorflow"}),
        ("tensorflow", "import os\nos.environ['TF_CONFIG']", {"tensorflow"}),
        ("tensorflow", "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'", set()),
        ("jax,tensorflow", "import os\nos.environ.setdefault('XLA_FLAGS', '')", {"tensorflow"}),
        ("", "import os", set()),
    ],
)
def test_warm_process_imports_what_the_framework_says(
    tmp_path: Path, variable: str | None, source: str, expected: set[str]
) -> None:
    script = Script(str(tmp_path / "train.py"))
    Path(script.name).write_text(source)
    modules = modules_from({} if variable is None else {"ELASTICJOB_MODULES": variable})
    assert set(preloads(imports(script), shareable(script, modules))) == expected


def test_pod_environment_tells_the_place(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    place = place_from(
        {
            "ELASTICJOB_NAME": "digits",
            "ELASTICJOB_NODE": "digits-worker-4",
            "ELASTICJOB_ROLE": "worker",
            "ELASTICJOB_INDEX": "4",
            "ELASTICJOB_MASTER": "10.96.0.9:50001",
            "ELASTICJOB_TOKEN_FILE": str(token),
            "POD_IP": "10.1.2.3",
            "POD_NAME": "digits-worker-4-1",
        }
    )
    assert (place.node, place.index, place.pod, place.address) == (
        "digits-worker-4",
        4,
        "digits-worker-4-1",
        "10.1.2.3",
    )
    assert (place.master, place.token) == ("10.96.0.9:50001", "secret")


def test_dlrovers_names_are_understood() -> None:
    place = place_from(
        {"ELASTIC_JOB_NAME": "old", "NODE_TYPE": "chief", "NODE_RANK": "2", "DLROVER_MASTER_ADDR": "m:1"}
    )
    assert (place.node, place.role, place.index, place.master) == ("old-chief-2", "chief", 2, "m:1")


def test_number_of_workers_is_checked() -> None:
    assert worker_count("3") == 3
    assert worker_count("cpu") >= 1
    for wrong in ("0", "-1", "many"):
        with pytest.raises(ValueError, match="--nproc-per-node"):
            worker_count(wrong)


def test_lines_are_cut_wherever_the_stream_was() -> None:
    lines = Lines()
    assert list(lines.feed(b'{"a"')) == []
    assert list(lines.feed(b':1}\n{}\n{"b"')) == [b'{"a":1}', b"{}"]
    with pytest.raises(ValueError, match="longer than"):
        list(lines.feed(b"x" * LIMIT))


def test_importing_the_trainer_loads_neither_torch_nor_the_network() -> None:
    code = "import sys, elasticjob.trainer; print({'torch', 'aiohttp', 'pydantic'} & {*sys.modules})"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"CUDA_VISIBLE_DEVICES": "4, 6"}, {"CUDA_VISIBLE_DEVICES": "6"}),
        ({"HIP_VISIBLE_DEVICES": "4,6"}, {"HIP_VISIBLE_DEVICES": "6", "CUDA_VISIBLE_DEVICES": "6"}),
    ],
)
def test_virtual_local_rank_leaves_a_worker_its_own_device(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert one_device(given, 1) == {"LOCAL_RANK": "0", **expected}
