"""The versions of elasticjob and of the software it runs on."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import elasticjob

PACKAGES = ("torch", "aiohttp", "msgspec", "pydantic", "scikit-learn")


def versions() -> dict[str, str]:
    """Return the versions of elasticjob, Python, this platform and the main dependencies."""
    return {
        "elasticjob": elasticjob.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        **{package: version_of(package) for package in PACKAGES},
    }


def commit() -> str:
    """Return the commit that a wheel or an image was built from; a checkout does not say its own."""
    written = Path(elasticjob.__file__).with_name("commit.txt")
    return written.read_text().strip() if written.exists() else "checkout"


def version_of(package: str) -> str:
    """Return the version of an installed package, or 'not installed'."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
