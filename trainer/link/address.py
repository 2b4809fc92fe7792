"""The way from a worker process to its job's master, in a file that the agent keeps for its workers.

The file names the address and the file with the token: neither is in the environment of a user's code, and
in a pod the token stays in the volume of its Secret. Only the agent's user can read it. The agent writes it
anew when the master has moved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from elasticjob.api.rpc import environment as names
from elasticjob.api.rpc.message import decode_as

FILE: Final = "ELASTICJOB_MASTER_FILE"
SLOT: Final = "ELASTICJOB_SLOT"  # the worker's number on its node, for as long as the agent lives


class NoMaster(Exception):
    """This process was not started by an agent, and was given no master."""


class Way(msgspec.Struct, frozen=True, omit_defaults=True):
    """The master's address, the file with the job's token, and the node as the master knows it."""

    address: str
    token_file: str = ""
    node: str = ""
    incarnation: str = ""

    def token(self) -> str:
        """Return the job's token."""
        return Path(self.token_file).read_text().strip() if self.token_file else ""


def way_from(environment: Mapping[str, str]) -> Way:
    """Return the way to the master of the agent that started this process; NoMaster without one."""
    path = environment.get(FILE)
    if not path:
        raise NoMaster(
            "no agent started this process: start the script by `elasticjob run`, or give way=Way(…)"
        )
    return decode_as(Path(path).read_bytes(), Way)


def write(path: Path, way: Way) -> None:
    """Replace the file in one go."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(msgspec.json.encode(way))
    new.replace(path)


def token_file(environment: Mapping[str, str], token: str, folder: Path) -> Path:
    """Return the file that holds `token`: that of the pod's Secret, else a new one in the agent's folder."""
    mounted = Path(environment.get(names.TOKEN_FILE) or names.TOKEN_PATH)
    if mounted.is_file() and mounted.read_text().strip() == token:
        return mounted
    own = folder / "token"
    with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(token)
    return own
