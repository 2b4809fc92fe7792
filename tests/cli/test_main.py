"""The program: what it lists, what it imports, and how it fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from elasticjob.cli.errors import Failure
from elasticjob.cli.main import COMMANDS, Row, guard
from tests.kit.commands import invoke

HEAVY = (
    "torch",
    "numpy",
    "elasticjob.kube",
    "elasticjob.api.v1alpha1",
    "kubernetes_asyncio",
    "yaml",
    "aiohttp",
)


def program(command: object) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    row = Row("it", "", "", extra="some")
    app.command("it")(guard(command, row))  # type: ignore[arg-type]  # any callable is a command
    return app


def test_help_lists_every_command_with_its_sentence() -> None:
    found = invoke("--help")
    assert found.exit_code == 0
    assert [row.name for row in COMMANDS if row.name not in found.stdout] == []


def test_unknown_command_is_wrong_usage_and_names_the_nearest() -> None:
    found = invoke("versoin")
    assert found.exit_code == 2
    assert "version" in found.stderr


@pytest.mark.parametrize("command", ["--help", "run --help"])
def test_light_commands_import_nothing_heavy(command: str) -> None:
    code = (
        f"import sys; sys.argv = ['elasticjob', *{command!r}.split()]\n"
        "from elasticjob.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_expected_error_is_one_line_with_the_next_step() -> None:
    def command() -> None:
        raise Failure("the cluster is gone", next_step="start it again")

    result = CliRunner().invoke(program(command), [])
    assert (result.exit_code, result.stderr) == (1, "error: the cluster is gone; start it again\n")


def test_interrupt_exits_with_130() -> None:
    def command() -> None:
        raise KeyboardInterrupt

    assert CliRunner().invoke(program(command), []).exit_code == 130


def test_unexpected_error_keeps_its_traceback() -> None:
    def command() -> None:
        raise ZeroDivisionError

    assert isinstance(CliRunner().invoke(program(command), []).exception, ZeroDivisionError)


@pytest.mark.parametrize("code", [0, 3, 130])
def test_integer_that_a_command_returns_is_its_exit_code(code: int) -> None:
    assert CliRunner().invoke(program(lambda: code), []).exit_code == code


BASE = """
import json, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from typer.testing import CliRunner
from elasticjob.cli.main import application
for words in WORDS:
    found = CliRunner().invoke(application(words), words)
    print(json.dumps([found.exit_code, found.stderr, repr(found.exception)]))
"""
IN_EXTRAS = (
    "aiosqlite alembic asyncpg cel_expr_python cryptography fsspec google jsonpatch kubernetes_asyncio numpy "
    "pynvml re2 scipy sklearn sqlalchemy torch yaml"
)
"""The modules of packages that the base installation lacks."""
LACKING = {
    "operator": "operator",
    "operator --install": "operator",
    "crds": "operator",
    "crds --apply": "operator",
    "brain": "brain",
    "brain --no-cluster": "brain",
    "devcluster": "devcluster",
    "devcluster --operator -- true": "devcluster",
    "demo": "demo",
    "checkpoint show /tmp/none": "torch",
}


def test_the_base_names_the_extra_that_each_command_needs() -> None:
    calls = [line.split() for line in LACKING]
    code = f"HIDDEN, WORDS = set({IN_EXTRAS!r}.split()), {calls!r}{BASE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(LACKING)
    for (line, extra), answer in zip(LACKING.items(), lines, strict=True):
        code_, shown, exception = json.loads(answer)
        wanted = (
            rf"error: 'elasticjob {line.split()[0]}' needs the package \w+, which is not installed; "
            rf"install the extra that has it: pip install 'elasticjob\[{extra}\]'\n"
        )
        assert code_ == 1, (line, shown, exception)
        assert re.fullmatch(wanted, shown), (line, shown, exception)


def test_the_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {row.extra for row in COMMANDS} <= project["optional-dependencies"].keys()


def test_a_module_of_ours_that_is_missing_keeps_its_traceback() -> None:
    def command() -> None:
        raise ModuleNotFoundError("No module named 'elasticjob.gone'", name="elasticjob.gone")

    assert isinstance(CliRunner().invoke(program(command), []).exception, ModuleNotFoundError)


def test_a_pipe_gets_no_escapes_and_one_that_is_closed_is_no_error() -> None:
    command = [sys.executable, "-m", "elasticjob.cli"]
    shown = subprocess.run([*command, "crds", "--help"], capture_output=True, check=True)
    assert (b"\x1b" in shown.stdout, shown.stderr) == (False, b"")
    read, write = os.pipe()
    os.close(read)
    closed = subprocess.run([*command, "version"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (closed.returncode, closed.stderr) == (1, b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a PID namespace")
def test_the_first_process_of_a_container_ends_by_sigterm_while_it_still_starts() -> None:
    starts = "import elasticjob.cli, signal; print('starts', flush=True); signal.pause()"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", starts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outside:
        try:
            assert outside.stdout is not None
            assert outside.stdout.readline() == "starts\n"
            [first] = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert outside.wait(30) == 128 + signal.SIGTERM
        finally:
            outside.kill()
