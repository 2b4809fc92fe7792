"""Who may ask Brain: a master for its own job, and people who read."""

from __future__ import annotations

import hmac
import logging
from base64 import b64decode
from binascii import Error
from dataclasses import dataclass
from pathlib import Path

from elasticjob.api.rpc.brain import job_token

log = logging.getLogger("elasticjob.brain")


@dataclass(frozen=True)
class Access:
    """The key of the masters' tokens, and the token of readers. The files are read for each request, so that
    a Secret can be changed while Brain runs."""

    key_file: Path | None = None
    reading_file: Path | None = None

    def is_master_of(self, uid: str, header: str) -> bool:
        """Whether an Authorization header is that of the master of the job with this uid."""
        key = _read(self.key_file) if self.key_file else b""
        return bool(key) and _same(header, f"Bearer {job_token(key, uid)}")

    def may_read(self, header: str) -> bool:
        """Whether a header is that of a reader: a bearer token, or a password, as browsers send it."""
        if self.reading_file is None:
            return True
        token = _read(self.reading_file).decode(errors="replace")
        return bool(token) and _same(_password(header) or header.removeprefix("Bearer "), token)


def _read(file: Path) -> bytes:
    """Return a secret; without its file all are refused."""
    try:
        return file.read_bytes().strip()
    except OSError as error:
        log.warning("all that need a token are refused: it cannot be read", extra={"error": str(error)})
        return b""


def _password(header: str) -> str:
    """Return the password of Basic authentication; "" if the header is not of that kind."""
    if not header.startswith("Basic "):
        return ""
    try:
        return b64decode(header.removeprefix("Basic "), validate=True).decode().partition(":")[2]
    except (Error, UnicodeDecodeError):
        return ""


def _same(sent: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(sent.encode(errors="surrogateescape"), expected.encode())
