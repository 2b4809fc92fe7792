"""How a command reads its line, and shows in its help what is written there: DURATION, text|json, FILE."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from typer.core import TyperArgument, TyperCommand, TyperGroup

METAVARS: Final[Mapping[str, str]] = {
    "ARGUMENT": "arguments",
    "CLAIM:PATH": "checkpoint volume",
    "DURATION": "timeout deadline ttl since",
    "FOLDER": "state log_dir",
    "HOST:PORT": "probes rdzv_endpoint",
    "KEY=VALUE,…": "rdzv_conf",
    "KIND/NAME": "from_cluster",
    "LABELS": "selector",
    "MODE": "redirects tee",
    "NAME": "job names",
    "NAME=AMOUNT": "capacity",
    "NAME=VALUE": "env label",
    "NAME… SIZE": "words",
    "N|MIN:MAX": "workers nnodes",
    "N|auto|cpu|gpu": "nproc_per_node",
    "OUT": "out",
    "SCRIPT": "script",
    "SECONDS": "grace shutdown_timeout monitor_interval",
    "SIGNALS": "signals_to_handle",
    "URL": "url brain prometheus",
    "WHAT": "until",
}
"""What stands for a value, by the parameters whose type and last word say less."""


class _Shown:
    """Shows each value in a help as a person writes it."""

    callback: Any

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, with what stands for their values."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]  # of a command
        hints = get_type_hints(self.callback) if self.callback else {}
        for each in found:
            if each.metavar is None:
                each.metavar = metavar(each.name, hints.get(each.name, bool))
            if isinstance(each, TyperArgument):  # its type would stand behind it
                each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
        return found


class Command(_Shown, TyperCommand):
    """A command that reads --dry-run alone as client, as kubectl does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read a line."""
        if any("--dry-run" in each.opts for each in self.params):
            own = args.index("--") if "--" in args else len(args)
            alone = ["--dry-run=client" if word == "--dry-run" else word for word in args[:own]]
            args = alone + args[own:]
        return super().parse_args(ctx, args)


class Commands(_Shown, TyperGroup):
    """A command that has commands of its own."""


def metavar(name: str, kind: Any) -> str:
    """Return what stands for a value: "" for a flag, the choices, a word for the parameter, FILE, N."""
    while get_args(kind):  # list[str] | None
        kind = get_args(kind)[0]
    if issubclass(kind, StrEnum):
        return "|".join(kind)
    if kind is bool:
        return ""
    own = next((shown for shown, names in METAVARS.items() if name in names.split()), "")
    return own or {Path: "FILE", int: "N"}.get(kind, name.rpartition("_")[2].upper())
