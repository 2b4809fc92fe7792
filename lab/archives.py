"""Archives of the project, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive of the project's own; Python before 3.11.4 knows no filters."""
    archive.extraction_filter = getattr(tarfile, "tar_filter", None)
    archive.extractall(folder)
