"""Paths of volumes: processes have no mounts of their own, so mount paths in their configuration are
rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True)
class Mount:
    """The mount path `path` is `folder` (or a file) on this machine."""

    path: str
    folder: Path


def rewrite(text: str, mounts: Sequence[Mount]) -> str:
    """`text` with every mount path replaced, the longest first.

    Only whole path components count: with a mount at `/data`, `/data/x` and `--to=/data` change; `/database`,
    `/my/data` and `s3://data` do not.
    """
    folders = {mount.path.rstrip("/"): str(mount.folder) for mount in mounts if mount.path.rstrip("/")}
    if not folders:
        return text
    paths = "|".join(re.escape(path) for path in sorted(folders, key=len, reverse=True))
    before = r"(?:(?<![\w./~$})-])|(?<=\bfile://))"
    pattern = rf"{before}(?:{paths})(?![\w.-]*[\w-])"
    return re.sub(pattern, lambda found: folders[found.group()], text)


def rewrite_all(strings: Iterable[str], mounts: Sequence[Mount]) -> tuple[str, ...]:
    """Each text rewritten."""
    return tuple(rewrite(text, mounts) for text in strings)
