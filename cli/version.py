"""`elasticjob version`: print installed versions."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from typing import Annotated

import typer

import elasticjob
from elasticjob.cli.output import Output

PACKAGES = ("torch", "aiohttp", "msgspec", "pydantic", "scikit-learn")


def version(
    output: Annotated[Output, typer.Option("--output", "-o", help="What to print.")] = Output.TEXT,
) -> None:
    """Print the version of elasticjob and of the software it runs on.

    Example: [bold]elasticjob version --output json[/]
    """
    found = versions()
    if output is Output.JSON:
        typer.echo(json.dumps(found, indent=2))
        return
    typer.echo(f"elasticjob {found['elasticjob']} (Python {found['python']}, {found['platform']})")


def versions() -> dict[str, str]:
    """Return the versions of elasticjob, Python, this platform and the main dependencies."""
    return {
        "elasticjob": elasticjob.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{package: installed(package) for package in PACKAGES},
    }


def installed(package: str) -> str:
    """Return the version of an installed package, or 'not installed'."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
