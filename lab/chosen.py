"""The command line of a suite whose rows are chosen by their names."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from lab.processes import end_on_sigterm


def chosen(about: str | None, known: Collection[str]) -> list[str]:
    """Return the names that the command line gives, all that are known without any; the rest is an error."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("name", nargs="*", help="what is played; default: everything")
    given: list[str] = parser.parse_args().name
    if unknown := [name for name in given if name not in known]:
        parser.error(f"{', '.join(unknown)} is none of: {'; '.join(known)}")
    end_on_sigterm()
    return given or [*known]
