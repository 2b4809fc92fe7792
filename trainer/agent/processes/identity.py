"""What a --rdzv-id stands for: the job's name, which pages show, and its bearer token, which none shows.

Each node derives both from the id. Neither leads back to the id, nor from one to the other.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

TOKEN: Final = b"elasticjob token"
NAME: Final = b"elasticjob name"


def token_of(run_id: str) -> str:
    """Return the bearer token of the job with this id."""
    return blake2b(run_id.encode(), key=TOKEN, digest_size=32).hexdigest()


def name_of(run_id: str) -> str:
    """Return the job's name for logs and pages."""
    return f"run-{blake2b(run_id.encode(), key=NAME, digest_size=4).hexdigest()}" if run_id else "local"
