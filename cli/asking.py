"""Asking Brain on the command line: its address, the token of readers, and errors as sentences."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from elasticjob.cli.errors import Exit, Failure

Url = Annotated[
    str,
    typer.Option(
        "--brain",
        envvar="ELASTICJOB_BRAIN_URL",
        help="The URL of Brain: ask it, not the API server.",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option(help="File with the token for reading, if Brain requires one.")
]
SECONDS = 10.0
ANSWERS: Final = {
    401: (Exit.REFUSED, "give --token-file"),
    404: (Exit.NOT_FOUND, "elasticjob top lists the jobs that it knows"),
}
"""Exit codes and next steps for what Brain answers."""


def ask_brain(url: str, token_file: Path | None, path: str) -> Any:
    """Return Brain's answer. Raises Failure."""
    headers = {"Authorization": f"Bearer {_token(token_file)}"} if token_file else {}
    return asyncio.run(_ask(url.rstrip("/") + path, headers))


def _token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (getattr(error, "strerror", None) or "it is no text").lower()
        step = "correct --token-file"
        raise Failure(f"{file} cannot be read: {why}", next_step=step, code=Exit.USAGE) from error


async def _ask(url: str, headers: dict[str, str]) -> Any:
    import aiohttp

    from elasticjob.kube.http.messages import in_words

    try:
        async with (
            asyncio.timeout(SECONDS),
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers) as answer,
        ):
            body = await answer.json(content_type=None)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        away = not isinstance(error, TimeoutError)
        why = in_words(error) if away else f"no answer within {SECONDS:g} s"
        step = "give --brain, or kubectl port-forward service/elasticjob-brain 8090"
        problem = f"Brain at {url} cannot be asked: {why}"
        raise Failure(problem, next_step=step, code=Exit.UNREACHABLE) from error
    if answer.status != 200:
        code, step = ANSWERS.get(answer.status, (Exit.FAILED, "elasticjob top lists the jobs that it knows"))
        raise Failure(f"Brain: {body.get('detail', answer.status)}", next_step=step, code=code)
    return body


def sizes(decided: dict[str, Any]) -> str:
    """Return the sizes of a decision in one line."""
    groups = [
        " ".join([role, *_count(group), *_amounts(group)])
        for role, group in decided.get("groups", {}).items()
    ]
    nodes = [f"{name} {_join(each)}" for name, each in decided.get("nodes", {}).items()]
    return "; ".join([*groups, *nodes])


def _count(group: dict[str, Any]) -> list[str]:
    return [] if group.get("count") is None else [f"×{group['count']}"]


def _amounts(group: dict[str, Any]) -> list[str]:
    return [f"{name} {amount}" for name, amount in group.get("resource", {}).items()]


def _join(resource: dict[str, str]) -> str:
    return " ".join(f"{name} {amount}" for name, amount in resource.items())
