"""kubectl, as a user of the node would type it."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class CommandFailed(AssertionError):
    """A command ended with another exit code than 0; the message is what it printed."""


@dataclass(frozen=True)
class Kubectl:
    """A kubectl with a kubeconfig."""

    program: Path
    kubeconfig: Path

    def run(self, *words: str, given: str = "") -> str:
        """Run a command, `given` on its stdin, and return its stdout. Raises CommandFailed."""
        done = subprocess.run(
            [str(self.program), f"--kubeconfig={self.kubeconfig}", *words],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CommandFailed(f"kubectl {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    async def __call__(self, *words: str, given: str = "") -> str:
        """`run`, while other things go on."""
        return await asyncio.to_thread(self.run, *words, given=given)

    async def apply(self, *manifests: dict[str, Any]) -> None:
        """kubectl apply -f - of some objects."""
        await self("apply", "-f", "-", given=yaml.safe_dump_all(manifests))

    async def names(self, kinds: str, namespace: str) -> set[str]:
        """Return kind/name of all objects of some kinds."""
        return {*(await self("-n", namespace, "get", kinds, "-o", "name")).split()}
