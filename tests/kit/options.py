"""The suite's command line options, a plugin (`-p` in pyproject.toml).

In a conftest they would be unknown where one of their values is also the name of a folder here: pytest looks
for its first conftests beside whatever may be a path.
"""

from __future__ import annotations

import os

import pytest

from lab.waiting import slowness

TEST = 300
"""Seconds after which a test has hung, on an idle machine."""
os.environ.setdefault("PYTEST_TIMEOUT", f"{TEST * slowness():.0f}")  # pytest-timeout's own variable


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kube",
        choices=("devcluster", "real"),
        default="devcluster",
        help="what integration tests run on; real needs the binaries of hack/kube-binaries control-plane",
    )
    parser.addoption(
        "--node",
        action="store_true",
        help="run the tests that need a whole node, or other projects' programs",
    )
    parser.addoption(
        "--kills",
        type=int,
        default=4,
        help="how often tests/e2e/test_dijob_kills kills di-server or operator",
    )
    parser.addoption(
        "--on",
        choices=("node", "kind"),
        default="node",
        help="whose node that is: hack/node's, which needs root, or kind's, which needs Docker",
    )
