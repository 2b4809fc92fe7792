"""`elasticjob convert`: ElasticJobs from manifests and command lines of other systems."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options
from elasticjob.cli.jobs.options import Namespace
from elasticjob.cli.options import Context, Kubeconfig
from elasticjob.cli.output import hand_over, say

if TYPE_CHECKING:
    from elasticjob.cli.convert.conversion import Outcome
    from elasticjob.cli.convert.system import Source
    from elasticjob.client import Client

NAMED: Final = re.compile(r"(?<!\S)(?:--config[-_]file|--hostfile|-H)[= ]+([^\s'\"=$`]+)")
"""Where a launcher's line names a file that says more."""
LARGEST_NAMED: Final = 64 * 1024


def convert(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Manifests (YAML or JSON) and scripts; - or nothing: standard input.", show_default=False
        ),
    ] = None,
    command: Annotated[
        str, typer.Option("--command", "-c", help="A command line in place of files: 'torchrun train.py'.")
    ] = "",
    from_cluster: Annotated[
        str,
        typer.Option(help="KIND/NAME of an object in the cluster in place of files: pytorchjob/digits."),
    ] = "",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit code 1 if a field was changed, or dropped with a loss."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="List only fields changed, or dropped with a loss.")
    ] = False,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Make an ElasticJob of a manifest or command line of another system, on standard output.

    Standard error has a line for each field: kept (perhaps in another form), changed (another value or
    meaning, and why), or dropped (and the next step). Exit code 1: a document cannot be converted, or
    admission would refuse the result.

    Example: [bold]elasticjob convert pytorchjob.yaml > elasticjob.yaml[/], or
    [bold]elasticjob convert --from-cluster pytorchjob/digits -n team[/], or
    [bold]elasticjob convert -- torchrun --nnodes 2:4 train.py[/]
    """
    from elasticjob.cli.convert.conversion import outcome
    from elasticjob.cli.convert.scripts import is_a_command
    from elasticjob.cli.convert.system import Source
    from elasticjob.cli.convert.systems import SYSTEMS

    if sum(map(bool, (files, command, from_cluster))) > 1:
        raise Failure(
            "files, --command and --from-cluster exclude each other", next_step="give one", code=Exit.USAGE
        )
    if not command and files and not Path(files[0]).exists() and is_a_command(files):
        command, files = shlex.join(files), None
    if command:
        found = [Source("command", text=command, files=_named_files(command))]
    elif from_cluster:
        found = [options.run(_fetch(options.client(namespace, kubeconfig, context), from_cluster))]
    else:
        found = list(_read(files or ["-"]))
    return report([outcome(each, SYSTEMS) for each in found], strict=strict, quiet=quiet)


def report(outcomes: list[Outcome], *, strict: bool, quiet: bool) -> int:
    """Print the jobs and the report on their fields, and return the exit code."""
    from elasticjob.cli.convert.conversion import lines
    from elasticjob.cli.jobs.options import Format
    from elasticjob.cli.jobs.table import dump

    for line in lines(outcomes, quiet=quiet):
        say(line, err=True)
    made = [
        manifest
        for each in outcomes
        if each.converted is not None
        for manifest in (*each.converted.others, each.converted.job)
    ]
    hand_over("---\n".join(dump(each, Format.YAML) for each in made), nl=False)
    if not any(each.system for each in outcomes):
        raise Failure(
            "there is nothing that can be converted",
            next_step="docs/convert.md lists the systems",
            code=Exit.USAGE,
        )
    failed = any(each.is_refusal or (strict and each.lossy) for each in outcomes)
    return Exit.FAILED if failed else Exit.DONE


def _read(files: list[str]) -> Iterator[Source]:
    from elasticjob.cli.convert.reading import sources

    for file in files:
        try:
            text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            why = (getattr(error, "strerror", None) or "it is no text").lower()
            step = "give a file; a command line follows --command" if " " in file else "correct its name"
            raise Failure(f"{file} cannot be read: {why}", next_step=step, code=Exit.USAGE) from error
        yield from (replace(each, files=_named_files(each.text)) for each in sources(file, text))


def _named_files(text: str) -> dict[str, str]:
    """Return the configurations and hostfiles that a line or a script names, as far as they are here."""
    found = {}
    for path in NAMED.findall(text):
        with suppress(OSError, UnicodeDecodeError):
            if Path(path).is_file():
                with Path(path).open(encoding="utf-8") as file:
                    found[path] = file.read(LARGEST_NAMED)
    return found


async def _fetch(connection: Client, wanted: str) -> Source:
    """Return an object by the first of the kinds that its word may mean. Raises Failure."""
    from elasticjob.cli.convert.system import Source
    from elasticjob.cli.convert.systems import kinds_and_name
    from elasticjob.client.errors import about
    from elasticjob.kube.errors import NotFound

    kinds, name = kinds_and_name(wanted)
    served = ""
    async with connection as client:
        place = client.namespace()
        for kind in kinds:
            with about(f"{kind.name} {place}/{name}"):
                try:
                    return Source(wanted, await client.kube.get(kind, name, place))
                except NotFound as error:
                    served = served or (kind.name if error.details.get("name") else "")
    what = (
        f"{served} {place}/{name} does not exist"
        if served
        else f"the cluster has no kind {kinds[0].resource}"
    )
    step = f"kubectl get {kinds[0].resource} -A" if served else "kubectl api-resources lists its kinds"
    raise Failure(what, next_step=step, code=Exit.NOT_FOUND)
