"""The log of this process, which programs configure as theirs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def restored() -> Iterator[None]:
    """Put the log of this process back as it was, so that other tests see what they would see alone."""
    root = logging.getLogger()
    before, level, disabled = list(root.handlers), root.level, root.manager.disable
    root.handlers.clear()
    try:
        yield
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers, root.level, root.manager.disable = before, level, disabled
