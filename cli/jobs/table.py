"""Jobs as rows, as `kubectl get` shows them: columns are those of the definition of ElasticJobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from elasticjob.api.escapes import as_line
from elasticjob.cli.jobs.options import Format
from elasticjob.cli.output import hand_over, say

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from elasticjob.kube.crd.model import Column
    from elasticjob.kube.objects.kinds import Manifest

WIDE: Final = 500
"""Columns of an output that is no terminal: whatever reads it gets whole names."""
COLOURS: Final[Mapping[str, str]] = {
    "Running": "green",
    "Succeeded": "green",
    "Failed": "red",
    "Restarting": "yellow",
    "Pending": "yellow",
    "Scaling": "cyan",
    "Suspended": "dim",
}
"""Of phases, on a terminal."""


def console() -> Console:
    """Return where tables go: colours on a terminal only, and not where NO_COLOR is set."""
    from rich.console import Console

    found = Console(highlight=False, soft_wrap=False)
    return found if found.is_terminal else Console(width=WIDE, highlight=False)


def print_jobs(
    jobs: Sequence[Manifest], format: Format, *, everywhere: bool = False, single: bool = False
) -> None:
    """Print jobs; `single`: as one object in YAML and JSON, not as a List."""
    match format:
        case Format.YAML | Format.JSON:
            whole: Manifest = {"apiVersion": "v1", "kind": "List", "items": list(jobs)}
            hand_over(dump(jobs[0] if single else whole, format), nl=False)
        case Format.NAME:
            for job in jobs:
                say(f"elasticjob.elastic.iml.github.io/{job['metadata']['name']}")
        case Format.TABLE | Format.WIDE:
            console().print(table(jobs, datetime.now(UTC), wide=format is Format.WIDE, everywhere=everywhere))


def dump(object: Manifest, format: Format) -> str:
    """Return an object as YAML or JSON."""
    if format is Format.JSON:
        return json.dumps(object, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.dump(object, Dumper=_dumper(), sort_keys=False, width=120, allow_unicode=True))


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.CSafeDumper):
        """YAML without anchors, and with texts of several lines as blocks: scripts can be read."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return Dumper


def table(jobs: Iterable[Manifest], now: datetime, *, wide: bool = False, everywhere: bool = False) -> Table:
    """Return jobs as a table."""
    from rich.table import Table
    from rich.text import Text

    columns = chosen(wide)
    made = Table(box=None, header_style="bold", pad_edge=False)
    for name in header(columns, everywhere):
        made.add_column(name, no_wrap=True)
    for job in jobs:
        cells = row(job, columns, now, everywhere)
        made.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in cells))
    return made


def chosen(wide: bool) -> Sequence[Column]:
    """Return the columns that are shown."""
    from elasticjob.api.v1alpha1.elasticjob import DECLARATION

    return [column for column in DECLARATION.columns if wide or not column.wide]


def header(columns: Iterable[Column], everywhere: bool) -> list[str]:
    """Return the names of the columns."""
    names = ["NAMESPACE"] if everywhere else []
    return [*names, "NAME", *(column.name.upper() for column in columns)]


def row(job: Manifest, columns: Sequence[Column], now: datetime, everywhere: bool) -> list[str]:
    """Return the cells of a job."""
    from elasticjob.client.goals import value_at

    about = job["metadata"]
    names = [about.get("namespace", "")] if everywhere else []
    values = {column.name: value_at(job, column.path) for column in columns}
    if values.get("Reason") == "MasterUnreachable":  # its last word is old
        values["Speed"] = None
    cells = (cell(values[column.name], column.type, now) for column in columns)
    return [*names, about["name"], *cells]


def cell(value: Any, type_: str, now: datetime) -> str:
    """Return a value as kubectl shows it."""
    if value is None:
        return ""
    if type_ == "date":
        return age(datetime.fromisoformat(str(value)), now)
    return f"{value:.3g}" if isinstance(value, float) else as_line(str(value))


def age(began: datetime, now: datetime) -> str:
    """Return how long ago something was, as kubectl says it."""
    seconds = max(0, int((now - began).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
