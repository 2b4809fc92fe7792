"""Cheap collection, a plugin (`-p` in pyproject.toml): each process of pytest-xdist collects all tests."""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
COLD: Final = pytest.StashKey[bool]()
FIRST: Final = "compiles the tests"
"""Of what pytest-xdist tells its processes: whether pytest has compiled no test yet, as in a fresh clone."""


def pytest_configure(config: pytest.Config) -> None:
    """Look before the first process begins."""
    config.stash[COLD] = not any(TESTS.glob("*/__pycache__/test_*-pytest-*.pyc"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of pytest-xdist."""
    node.workerinput[FIRST] = node.config.stash[COLD]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without a search for garbage: what tests import stays, and it was a third of the cost."""
    cold = getattr(session.config, "workerinput", {}).get(FIRST, False)
    gc.disable()
    try:
        with after_the_first() if cold else nullcontext():
            return (yield)
    finally:
        gc.enable()


@contextmanager
def after_the_first() -> Iterator[None]:
    """Let one process collect alone, then the others side by side: at once, each would compile all tests."""
    folder = os.open(TESTS, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(folder)
