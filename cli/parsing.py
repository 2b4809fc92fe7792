"""How a command reads its line, and shows in its help what is written there: DURATION, text|json, FILE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from typer.core import TyperArgument, TyperCommand, TyperGroup

METAVARS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("timeout", "deadline", "ttl", "since"), "DURATION"),
    **dict.fromkeys(("env", "label"), "NAME=VALUE"),
    **dict.fromkeys(("checkpoint", "volume"), "CLAIM:PATH"),
    **dict.fromkeys(("workers", "nnodes"), "N|MIN:MAX"),
    **dict.fromkeys(("grace", "shutdown_timeout", "monitor_interval"), "SECONDS"),
    **dict.fromkeys(("probes", "rdzv_endpoint"), "HOST:PORT"),
    **dict.fromkeys(("state", "log_dir"), "FOLDER"),
    **dict.fromkeys(("url", "brain", "prometheus"), "URL"),
    "arguments": "ARGUMENT",
    "capacity": "NAME=AMOUNT",
    "files": "FILE",
    "from_cluster": "KIND/NAME",
    "job": "NAME",
    "names": "NAME",
    "nproc_per_node": "N|auto|cpu|gpu",
    "out": "OUT",
    "rdzv_conf": "KEY=VALUE,…",
    "redirects": "MODE",
    "script": "SCRIPT",
    "selector": "LABELS",
    "signals_to_handle": "SIGNALS",
    "tee": "MODE",
    "until": "WHAT",
    "words": "NAME… SIZE",
}
"""Of parameters whose own name says too little."""


class Command(TyperCommand):
    """A command in whose help each value is shown as a person writes it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, named for people."""
        return as_written(super().get_params(ctx), self.callback)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read a line, in which --dry-run alone means client, as with kubectl."""
        if any("--dry-run" in each.opts for each in self.params):
            own = args.index("--") if "--" in args else len(args)
            alone = ["--dry-run=client" if word == "--dry-run" else word for word in args[:own]]
            args = alone + args[own:]
        return super().parse_args(ctx, args)


class Commands(TyperGroup):
    """The same of a command that has commands of its own."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, named for people."""
        return as_written(super().get_params(ctx), self.callback)


def as_written(params: list[Any], function: Callable[..., Any] | None) -> list[Any]:
    """Return parameters with what stands for their values in a help."""
    hints = get_type_hints(function) if function else {}
    for each in params:
        if each.metavar is None:
            each.metavar = metavar(each.name, hints.get(each.name, bool))
        if isinstance(each, TyperArgument):  # its type would stand behind it
            each.display_type_rich = lambda ctx: None  # type: ignore[method-assign]
    return params


def metavar(name: str, kind: Any) -> str:
    """Return what stands for a value of a type: "" for a flag, the choices, FILE, N, else its own name."""
    while get_args(kind):  # list[str] | None
        kind = get_args(kind)[0]
    if issubclass(kind, StrEnum):
        return "|".join(kind)
    if kind is bool:
        return ""
    return METAVARS.get(name) or {Path: "FILE", int: "N"}.get(kind, name.rpartition("_")[2].upper())
