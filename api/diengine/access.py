"""The token with which the pods of one job call di-server; operator and di-server share the key."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

PURPOSE: Final = b"di-server of "


def token_of(key: bytes, uid: str) -> str:
    """Return the token of the job with this uid, 64 hexadecimal digits."""
    return hmac.new(key, PURPOSE + uid.encode(), hashlib.sha256).hexdigest()


def is_token_of(key: bytes, uid: str, sent: str) -> bool:
    """Whether a token is that of a job; compared in constant time."""
    return hmac.compare_digest(token_of(key, uid).encode(), sent.encode(errors="backslashreplace"))
