"""kubectl, as a user of the node would type it."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class CommandFailed(AssertionError):
    """A command ended with another exit code than it should; the message is what it printed."""


@dataclass(frozen=True)
class Kubectl:
    """A kubectl with a kubeconfig, in a namespace if it has one; a command is words, or all of it in one.

    With `errors`, what it prints to stderr is returned as well.
    """

    program: Path
    kubeconfig: Path
    namespace: str = ""
    errors: bool = False

    def line(self, *words: str) -> list[str]:
        """Return the whole command line."""
        place = ["-n", self.namespace] if self.namespace else []
        flags = [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.kubeconfig.with_name('cache')}"]
        return [str(self.program), *flags, *place, *(words if len(words) > 1 else words[0].split(" "))]

    def run(self, *words: str, given: str = "", code: int = 0) -> str:
        """Run a command, `given` on its stdin, and return what it prints. Raises CommandFailed."""
        stderr = subprocess.STDOUT if self.errors else subprocess.PIPE
        done = subprocess.run(
            self.line(*words), input=given, stdout=subprocess.PIPE, stderr=stderr, text=True, check=False
        )
        if done.returncode != code:
            raise CommandFailed(f"kubectl {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    async def __call__(self, *words: str, given: str = "", code: int = 0) -> str:
        """`run`, while other things go on."""
        return await asyncio.to_thread(self.run, *words, given=given, code=code)

    async def apply(self, *manifests: dict[str, Any]) -> None:
        """kubectl apply -f - of some objects."""
        await self("apply", "-f", "-", given=yaml.safe_dump_all(manifests))

    async def names(self, kinds: str, namespace: str) -> set[str]:
        """Return kind/name of all objects of some kinds."""
        return {*(await self("-n", namespace, "get", kinds, "-o", "name")).split()}
