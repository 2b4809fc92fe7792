"""The version in texts: where it is written, and the section of the changelog. Pure."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from packaging.version import InvalidVersion, Version

UNRELEASED: Final = "## Unreleased"
WRITTEN: Final = r"(__version__ = \"|elasticjob/(?:operator|brain|trainer|agent):|newTag: ){}(?![\w.])"
"""Where a version stands in tracked files that nothing generates: the package, images in texts, kustomize."""


def parsed(version: str) -> str:
    """Return a version in its normal form. Raises ValueError with the next step."""
    try:
        return str(Version(version))
    except InvalidVersion:
        raise ValueError(f"{version!r} is not a version: write it as 1.2.0 or 1.2.0rc1") from None


def versioned(text: str, old: str, new: str) -> str:
    """Return a text with a new version where the old one stands."""
    return re.sub(WRITTEN.format(re.escape(old)), rf"\g<1>{new}", text)


def dated(changelog: str, version: str, day: date) -> str:
    """Return the changelog with its unreleased part under a version; one that has it already is unchanged.

    ValueError if nothing is there to be released.
    """
    if f"\n## {version} " in changelog:
        return changelog
    head, found, rest = changelog.partition(f"{UNRELEASED}\n")
    if not found or not section(changelog, "Unreleased").strip():
        raise ValueError(f"CHANGELOG.md says nothing under {UNRELEASED!r}: add what a user could notice")
    return f"{head}{UNRELEASED}\n\n## {version} - {day.isoformat()}\n{rest}"


def section(changelog: str, version: str) -> str:
    """Return what the changelog says of a version."""
    parts = re.split(r"^## (.*)\n", changelog, flags=re.MULTILINE)
    return next(
        (text for title, text in zip(parts[1::2], parts[2::2], strict=True) if title.split()[0] == version),
        "",
    )
