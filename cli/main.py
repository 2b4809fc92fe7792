"""The program `elasticjob`: a table of commands; only the chosen one is imported.

`elasticjob run` starts in every training container, so it must not import Pydantic, the Kubernetes client or
torch, and `elasticjob --help` must be fast. Each row therefore names its module as a string.
"""

from __future__ import annotations

import functools
import importlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from elasticjob.cli.errors import Exit, Failure, code_of, expected
from elasticjob.cli.jobs import completion
from elasticjob.cli.options import Group
from elasticjob.cli.output import say_error
from elasticjob.cli.parsing import Command, Commands

ABOUT = """Elastic distributed training: jobs that survive, grow and shrink while they train.

Start with [bold]elasticjob demo[/]: a whole job on this machine, nothing else needed. Every command
explains itself, with an example, under [bold]--help[/].
"""

Function = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """One command: its name, its help line, and its function (`module:function`)."""

    name: str
    summary: str
    target: str
    panel: str = "Programs"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the parser, such as leaving the flags of a started program unparsed."""
    extra: str = "operator"
    """The extra of the package that has what the command imports, where the base does not."""


PASSES_ARGUMENTS_ON = {"allow_interspersed_args": False, "ignore_unknown_options": False}
ANYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}
AS_TORCHRUN = {**PASSES_ARGUMENTS_ON, "help_option_names": ["-h", "--help"]}

COMMANDS: tuple[Row, ...] = (
    Row(
        "demo",
        "Run one job from start to end on this machine, and write a report.",
        "elasticjob.cli.commands.demo:demo",
        "Start here",
        extra="demo",
    ),
    Row(
        "run",
        "Run a training script; takes torchrun's flags.",
        "elasticjob.cli.commands.run:run",
        "Start here",
        AS_TORCHRUN,
        extra="torch",
    ),
    Row(
        "devcluster",
        "Run Kubernetes in one process, for kubectl and tests.",
        "elasticjob.cli.commands.devcluster:devcluster",
        "Start here",
        PASSES_ARGUMENTS_ON,
        extra="devcluster",
    ),
    Row(
        "submit",
        "Run a training script on a cluster.",
        "elasticjob.cli.commands.jobs.submit:submit",
        "Jobs",
    ),
    Row("list", "List the jobs of a namespace.", "elasticjob.cli.commands.jobs.listing:get", "Jobs"),
    Row("get", "Show jobs by name.", "elasticjob.cli.commands.jobs.listing:get", "Jobs"),
    Row(
        "describe",
        "Show a job's training, conditions, ScalePlans, pods and events.",
        "elasticjob.cli.commands.jobs.describe:describe",
        "Jobs",
    ),
    Row(
        "top",
        "Show jobs and their speeds, refreshed until Ctrl-C.",
        "elasticjob.cli.commands.top:top",
        "Jobs",
    ),
    Row(
        "explain",
        "Show why a job has its size and its state.",
        "elasticjob.cli.commands.explain:explain",
        "Jobs",
    ),
    Row(
        "logs",
        "Show the logs of all nodes of a job as one stream, through relaunches.",
        "elasticjob.cli.commands.logs:logs",
        "Jobs",
    ),
    Row(
        "doctor",
        "Say what is wrong with the cluster or with a job, and what mends it.",
        "elasticjob.cli.commands.doctor:doctor",
        "Jobs",
    ),
    Row(
        "dashboard",
        "Show jobs, speeds, plans, pods and logs on a live page; needs no Brain.",
        "elasticjob.cli.commands.dashboard:dashboard",
        "Jobs",
    ),
    Row("scale", "Change the number of nodes.", "elasticjob.cli.commands.jobs.change:scale", "Jobs"),
    Row(
        "suspend",
        "Stop the pods of jobs, until they are resumed.",
        "elasticjob.cli.commands.jobs.change:suspend",
        "Jobs",
    ),
    Row("resume", "Start suspended jobs again.", "elasticjob.cli.commands.jobs.change:resume", "Jobs"),
    Row("wait", "Wait until something is true of a job.", "elasticjob.cli.commands.jobs.wait:wait", "Jobs"),
    Row("delete", "Delete jobs.", "elasticjob.cli.commands.jobs.change:delete", "Jobs"),
    Row(
        "operator",
        "Run the operator: controllers and admission webhooks.",
        "elasticjob.cli.commands.operator:operator",
    ),
    Row(
        "di-server",
        "Run di-server: replicas for the coordinators of DIJobs.",
        "elasticjob.cli.commands.di_server:di_server",
    ),
    Row(
        "brain",
        "Run Brain: the history of jobs, and an autoscaler that learns from it.",
        "elasticjob.cli.commands.brain:brain",
        extra="brain",
    ),
    Row(
        "master",
        "Run the master of one job: rendezvous, health, scaling.",
        "elasticjob.cli.commands.master:master",
    ),
    Row(
        "agent",
        "Run the workers of one pod: the same program as run.",
        "elasticjob.cli.commands.run:run",
        settings=AS_TORCHRUN,
        extra="torch",
    ),
    Row(
        "checkpoint",
        "Show what a checkpoint holds, or export it: torch, safetensors, dcp.",
        "elasticjob.cli.commands.checkpoint:checkpoint",
        "Look up",
        extra="torch",
    ),
    Row(
        "crds",
        "Print the CustomResourceDefinitions, or apply them.",
        "elasticjob.cli.commands.crds:crds",
        "Look up",
    ),
    Row(
        "convert",
        "Make an ElasticJob of a manifest or command line of another system.",
        "elasticjob.cli.commands.convert:convert",
        "Look up",
    ),
    Row("version", "Print the version.", "elasticjob.cli.commands.version:version", "Look up"),
)


def main() -> None:
    """Run the command in sys.argv, and exit with its code; or complete what a shell has of one."""
    open_what_is_closed()
    name = Path(sys.argv[0]).name
    application(completion.words() or sys.argv[1:])(prog_name=PLUGINS.get(name, name))


def open_what_is_closed() -> None:
    """Have each standard stream: what is opened next would be taken for one that the user has closed."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 (open until the process ends)


def complete() -> None:
    """Print what may follow the words in sys.argv, as kubectl asks `kubectl_complete-ej`: lines, then `:4`.

    The last word is the one to complete, perhaps empty; 4 tells the shell not to offer files.
    """
    words = ["elasticjob", *sys.argv[1:]]
    asked = shlex.join(words[:-1]) + " " + (shlex.quote(words[-1]) if words[-1] else "")
    os.environ |= {
        "_ELASTICJOB_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": asked,
    }
    with suppress(SystemExit):
        application(completion.words())(prog_name="elasticjob")
    print(":4")


PLUGINS: Final = {"kubectl-ej": "kubectl ej", "kubectl-elasticjob": "kubectl elasticjob"}
"""What a user types to run a program of another name."""


def application(arguments: Sequence[str]) -> typer.Typer:
    """Return the program with every command listed and only the one named by `arguments` loaded."""
    app = typer.Typer(
        name="elasticjob",
        cls=Commands,
        help=ABOUT,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    for row in COMMANDS:
        loaded, settings = load(row) if row.name == named else placeholder, row.settings
        if isinstance(loaded, ModuleNotFoundError):
            loaded, settings = raising(loaded), ANYTHING
        if isinstance(loaded, Group):
            app.add_typer(group(loaded, row), name=row.name, rich_help_panel=row.panel)
            continue
        function = guard(loaded, row) if row.name == named else loaded
        summary = None if row.name == named else row.summary
        app.command(
            row.name,
            cls=Command,
            help=summary,
            short_help=row.summary,
            rich_help_panel=row.panel,
            context_settings=dict(settings),
        )(function)
    return app


def print_version(asked: bool) -> None:
    """Print the version, and end."""
    if asked:
        from elasticjob.cli.commands.version import version

        version()
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """Do nothing: a command follows."""


def group(group: Group, row: Row) -> typer.Typer:
    """Return a command with all of its own."""
    app = typer.Typer(cls=Commands, help=group.help, no_args_is_help=True, rich_markup_mode="rich")
    for name, command in group.commands.items():
        app.command(name, cls=Command)(guard(command, row))
    return app


def load(row: Row) -> Function | Group | ModuleNotFoundError:
    """Return the function of a command, or the error where its module needs a package that is not there."""
    module, _, name = row.target.partition(":")
    try:
        loaded: Function | Group = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        return error
    return loaded


def raising(error: Exception) -> Function:
    """Return a command that fails."""

    def fails() -> None:
        raise error

    return fails


def missing_package(row: Row, error: ModuleNotFoundError) -> Failure:
    """Return the error of a command that imports a package that is not installed: which, and how to have it.

    Raises `error` itself for a module of our own, which is missing for another reason.
    """
    package = (error.name or "elasticjob").partition(".")[0]
    if package == "elasticjob":
        raise error
    return Failure(
        f"'elasticjob {row.name}' needs the package {package}, which is not installed",
        next_step=f"install the extra that has it: pip install 'elasticjob[{row.extra}]'",
    )


def placeholder() -> None:
    """A placeholder for a command that was not chosen: it is listed and never called."""


def guard(command: Function, row: Row) -> Function:
    """Return `command` with expected errors shown as one line on stderr, and exit codes as in `Exit`.

    An integer that the command returns is its exit code. Other exceptions keep their traceback.
    """

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            code = command(*args, **options)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except ModuleNotFoundError as error:
            fail(missing_package(row, error))
        except expected() as error:
            fail(error)
        raise typer.Exit(code if isinstance(code, int) else Exit.DONE)

    return run


def fail(error: Exception) -> NoReturn:
    """Show an expected error as one line on stderr, and exit with its code."""
    say_error(error)
    raise typer.Exit(code_of(error)) from None
