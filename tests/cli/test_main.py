"""The program: what it lists, what it imports, and how it fails."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from elasticjob.cli.errors import Failure
from elasticjob.cli.main import COMMANDS, application, guarded, missing

HEAVY = (
    "torch",
    "numpy",
    "elasticjob.kube",
    "elasticjob.api.v1alpha1",
    "kubernetes_asyncio",
    "yaml",
    "aiohttp",
)


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(application(arguments), list(arguments))
    return result.exit_code, result.stdout, result.stderr


def program(command: object) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command("it")(guarded(command))  # type: ignore[arg-type]  # any callable is a command
    return app


def test_help_lists_every_command_with_its_sentence() -> None:
    code, shown, _ = invoke("--help")
    assert code == 0
    assert [row.name for row in COMMANDS if row.name not in shown] == []


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_help_of_each_command_has_an_example(row: object) -> None:
    name = row.name  # type: ignore[attr-defined]
    code, shown, errors = invoke(name, "--help")
    assert code == 0, errors
    explained = shown.split("Usage:", 1)[1].split("\n", 1)[1]
    assert re.search(r"elasticjob [a-z-]+ [-|.\w]", explained), shown


def test_unknown_command_is_wrong_usage_and_names_the_nearest() -> None:
    code, _, errors = invoke("versoin")
    assert code == 2
    assert "version" in errors


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


def test_missing_package_is_named_with_the_way_to_get_it() -> None:
    result = CliRunner().invoke(program(missing("operator", "pydantic")), [])
    assert result.exit_code == 1
    assert "needs the package pydantic" in result.stderr
    assert "pip install 'elasticjob[" in result.stderr


def test_version_as_json_names_what_it_runs_on() -> None:
    code, shown, _ = invoke("version", "--output", "json")
    assert code == 0
    assert '"python": "3.' in shown
