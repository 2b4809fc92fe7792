"""Errors of HTTP requests as one line: the address, and why there is no connection or no answer."""

from __future__ import annotations

import os
import ssl

import aiohttp


def in_words(error: BaseException) -> str:
    """Return an error of aiohttp or of the system as one line, without the objects that its text may name."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return " ".join(str(error).split()) or type(error).__name__
    return f"{error.host}:{error.port}: {_cause(getattr(error, 'certificate_error', None) or error.os_error)}"


def _cause(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and (error.errno or 0) > 0:
        return os.strerror(error.errno or 0)
    return " ".join(str(getattr(error, "strerror", "") or error).split())
