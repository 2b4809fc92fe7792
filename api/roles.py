"""The names of roles that all programs know."""

from __future__ import annotations

from typing import Final

WORKER: Final = "worker"
PS: Final = "ps"
CHIEF: Final = "chief"
EVALUATOR: Final = "evaluator"
MASTER: Final = "dlrover-master"
"""The role of the job's master; users may write `master` instead."""
MASTER_ALIAS: Final = "master"


def is_master(role: str) -> bool:
    """Whether a role name means the job's master."""
    return role in (MASTER, MASTER_ALIAS)
