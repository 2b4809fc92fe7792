"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from elasticjob.api.logs import Format
from elasticjob.cli.errors import Exit, Failure

if TYPE_CHECKING:
    from pydantic_settings import BaseSettings

S = TypeVar("S", bound="BaseSettings")

Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="The kubeconfig. Default: KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount."),
]
ListenPort = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="The port to listen on; 0 for any.")
]
Context = Annotated[str | None, typer.Option(help="The context of the kubeconfig. Default: the current one.")]


def _format(given: str | Format) -> Format:
    """Return the format of a flag's word; console is another word for people's."""
    if given not in (*Format, "console"):
        raise typer.BadParameter(f"{given!r} is neither people nor json")
    return Format.PEOPLE if given == "console" else Format(given)


LogFormat = Annotated[
    Format | None,
    typer.Option(
        parser=_format,
        metavar="people|json",
        help="The form of log lines. Default: ELASTICJOB_LOG_FORMAT, else people.",
    ),
]


@dataclass(frozen=True)
class Group:
    """A command that has commands of its own, by name."""

    help: str
    commands: Mapping[str, Callable[..., Any]]


def settings_of(kind: type[S], given: Mapping[str, Any]) -> S:
    """Return the settings from flags (None: not given) and environment. Failure names an invalid field."""
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    try:
        return kind(**{name: value for name, value in given.items() if value is not None})
    except SettingsError as error:
        raise Failure(str(error), next_step="write it as JSON", code=Exit.USAGE) from error
    except ValidationError as error:
        message = "; ".join(f"{_origin(kind, each['loc'], given)}{each['msg']}" for each in error.errors())
        raise Failure(message, next_step="correct it", code=Exit.USAGE) from error


def _origin(kind: type[BaseSettings], field: tuple[int | str, ...], given: Mapping[str, Any]) -> str:
    """Return the flag that a field comes from, or its variable; nothing where several are meant."""
    if not field:
        return ""
    name, *more = map(str, field)
    variable = kind.model_config.get("env_prefix", "") + name
    flag = f"--{name.replace('_', '-')}" if given.get(name) is not None else variable.upper()
    return ".".join([flag, *more]) + ": "
