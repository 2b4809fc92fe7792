"""The agent in an environment of a user's: an interpreter, torch at most, and nothing of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from elasticjob import __version__
from lab.archives import unpack
from lab.clusters.images import carried, images, interpreter
from lab.clusters.images.oci import write_layer

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
SCRIPT = """
import os, sys
import elasticjob, aiohttp
print("ran", os.environ["RANK"], elasticjob.__file__, aiohttp.__file__, flush=True)
"""
TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", int(total), flush=True)
"""


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the init container fills, for this Python alone."""
    folder = tmp_path_factory.mktemp("agent")
    required = images.requirements(images.project(), ())
    entries = {
        **carried.packages(required, folder / "cache", (HERE,)),
        **carried.starter(required),
        **carried.project(images.package(images.project(), __version__, bytecode=False)),
    }
    with (folder / "layer.tar").open("wb") as out:
        write_layer(entries, out)
    with tarfile.open(folder / "layer.tar") as archive:
        unpack(archive, folder / "image")
    volume = folder / "elasticjob"
    (volume / "lib" / "left by a container that was stopped").mkdir(parents=True)
    copy = (folder / "image" / "copy.py").read_text()
    copy = copy.replace('"/agent"', repr(str(folder / "image" / "agent")))
    subprocess.run([sys.executable, "-I", "-c", copy, str(volume)], check=True, capture_output=True)
    return volume


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An interpreter with no packages at all."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    return tmp_path / "venv" / "bin" / "python3"


def test_the_folder_tells_not_where_it_was_installed(brought: Path) -> None:
    files = [file.relative_to(brought) for file in brought.rglob("*") if file.is_file()]
    assert [str(file) for file in files if file.name == "RECORD" or "bin" in file.parts] == []
    assert "common/typer/main.py" in {str(file) for file in files}


def run(brought: Path, python: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a script under the agent as the main container of a pod does, in an empty folder."""
    folder = python.parents[2] / "work"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [str(brought / "run"), *options, "train.py"],
        cwd=folder,
        env={"PATH": f"{python.parent}:{os.defpath}", "HOME": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_script_runs_under_the_agent_where_nothing_is_installed(brought: Path, python: Path) -> None:
    done = run(brought, python, SCRIPT, "--nproc-per-node", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("ran ")[1].split() for line in done.stdout.splitlines() if "ran " in line]
    assert {line[0] for line in lines} == {"0", "1"}
    assert {line[1] for line in lines} == {str(brought / "path" / "elasticjob" / "__init__.py")}
    assert all(line[2].startswith(str(brought / "lib" / HERE)) for line in lines)


@pytest.mark.story
def test_workers_of_an_image_with_python_and_torch_alone_reduce_together(brought: Path, python: Path) -> None:
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    for distribution in interpreter.closure(["torch", "numpy"]):
        for top in {Path(str(file)).parts[0] for file in distribution.files or ()} - {".."}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    done = run(brought, python, TORCH, "--nproc-per-node", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("sum 2") == 2


@pytest.mark.parametrize(
    ("file", "before", "after", "sentence"),
    [
        ("run", "", "", f"this image has Python {HERE} ("),
        ("machine", "", "s390x", "the agent was brought for s390x: use an"),
        ("start.py", "CS_GNU_LIBC_VERSION", "CS_OTHER", "this image's C library is not glibc"),
    ],
)
def test_an_image_that_cannot_run_it_is_told_why(
    brought: Path, python: Path, tmp_path: Path, file: str, before: str, after: str, sentence: str
) -> None:
    copy = tmp_path / "elasticjob"
    (copy / "lib" / ("3.6" if file == "run" else HERE)).mkdir(parents=True)
    for name in ("run", "start.py", "machine"):
        shutil.copy(brought / name, copy)
    if after:
        (copy / file).write_text((copy / file).read_text().replace(before, after) if before else after)
    done = run(copy, python, SCRIPT)
    assert (done.returncode, sentence in done.stderr) == (78, True), done.stderr


def test_a_package_of_the_image_that_is_too_old_is_named(brought: Path, python: Path) -> None:
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    (site / "typer-0.4.1.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: typer\nVersion: 0.4.1\n"
    (site / "typer-0.4.1.dist-info" / "METADATA").write_text(metadata)
    done = run(brought, python, SCRIPT)
    assert done.returncode == 78
    assert "this image has typer 0.4.1, and elasticjob needs 0.15 or newer: pip install" in done.stderr
