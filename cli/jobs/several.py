"""Several jobs at once, by name or label: each is tried, errors are told, and one exit code is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elasticjob.cli.errors import Exit, Failure, code_of, expected
from elasticjob.cli.output import say, say_error

if TYPE_CHECKING:
    from elasticjob.client import Client


class Several:
    """The jobs that a command is given, and what failed with which of them.

    for name in await several.find(client):
        with several.trying(name):
            await client.suspend(name)
    return several.code("are suspended")
    """

    def __init__(self, names: Sequence[str] | None, labels: str, *, ignore_not_found: bool = False) -> None:
        """Raise Failure where jobs are neither named nor selected, or both."""
        if bool(names) == bool(labels):
            problem = "jobs are named and selected by --selector" if names else "no job is named"
            raise Failure(problem, next_step="give names, or --selector", code=Exit.USAGE)
        self.names = list(dict.fromkeys(names or ()))
        self._labels = labels
        self._ignore_not_found = ignore_not_found
        self._codes: dict[str, Exit] = {}

    @property
    def left(self) -> list[str]:
        """The jobs with which nothing has failed."""
        return [name for name in self.names if name not in self._codes]

    async def find(self, client: Client) -> list[str]:
        """Return their names."""
        if self._labels:
            self.names = [job["metadata"]["name"] for job in await client.manifests(labels=self._labels)]
            if not self.names:
                say(f"no jobs with labels {self._labels} in namespace {client.namespace()}", err=True)
        return self.names

    @contextmanager
    def trying(self, name: str) -> Iterator[None]:
        """Tell an error, and go on with the next job; without an answer of the cluster none goes on."""
        try:
            yield
        except expected() as error:
            code = code_of(error)
            if code is Exit.UNREACHABLE:
                raise
            self._codes[name] = code
            if code is Exit.NOT_FOUND and self._ignore_not_found:
                self._codes[name] = Exit.DONE
                return
            say_error(error)

    async def wait(self, client: Client, until: Sequence[str], timeout: float | None, done: str) -> None:
        """Wait for all that are left at once, and say of each that it is `done`."""

        async def one(name: str) -> None:
            with self.trying(name):
                for each in until:
                    await client.wait(name, each, timeout=timeout)
                say(f"{name}{done}")

        await asyncio.gather(*map(one, self.left))

    def code(self, done: str) -> Exit:
        """Return the exit code: that of all errors, 1 where they differ. Say how many of several are done."""
        codes = {*self._codes.values()} - {Exit.DONE}
        if codes and len(self.names) > 1:
            say(f"{len(self.left)} of {len(self.names)} jobs {done}", err=True)
        return Exit.FAILED if len(codes) > 1 else next(iter(codes), Exit.DONE)
