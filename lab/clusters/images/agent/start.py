"""Starts `elasticjob` by an image's own Python, with the packages that were brought along.

The image's own packages come first: of those here only what the image lacks is imported. This file runs in
older Pythons than ours, so that they can say what is wrong.
"""

import os
import platform
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
EXIT_CONFIG = 78  # sysexits.h
LEAST: "dict[str, str]" = {}  # the versions of packages that ours needs; written by hack/images


def problem() -> str:
    """Return why this Python cannot run what is here, or ""."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    brought = sorted(os.listdir(os.path.join(HERE, "lib")), key=numbers)
    with open(os.path.join(HERE, "machine")) as file:
        machine = file.read().strip()
    if version not in brought:
        return (
            f"this image has Python {version} ({sys.executable}), and the agent was brought for "
            f"{', '.join(brought)}: use an image with one of those, or name another with ELASTICJOB_PYTHON"
        )
    if not gnu():
        return (
            "this image's C library is not glibc, which the agent's packages and PyTorch's wheels need "
            "(Alpine's is musl): use an image of Debian, Ubuntu or Red Hat"
        )
    if platform.machine() != machine:
        return (
            f"this node is {platform.machine()}, and the agent was brought for {machine}: "
            f"use an image elasticjob/agent of {platform.machine()}"
        )
    return too_old()


def gnu() -> bool:
    """Tell whether the C library is glibc."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError, AttributeError):
        return False


def too_old() -> str:
    """Return which package of the image is older than what ours needs, or ""."""
    from importlib import metadata

    for name, least in sorted(LEAST.items()):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if numbers(found) < numbers(least):
            return (
                f"this image has {name} {found}, and elasticjob needs {least} or newer: "
                f"pip install '{name}>={least}' in the image"
            )
    return ""


def numbers(version: str) -> "list[int]":
    """Return the first two numbers of a version, by which it is compared."""
    digits = ["".join(filter(str.isdigit, part)) for part in version.split(".")[:2]]
    return [int(each or 0) for each in digits]


def start() -> None:
    """Become `elasticjob`, or tell what is wrong."""
    wrong = problem()
    if wrong:
        sys.stderr.write(f"error: {wrong}\n")
        sys.exit(EXIT_CONFIG)
    path = [os.path.join(HERE, "path"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "elasticjob.cli", *sys.argv[1:]])


if __name__ == "__main__":
    start()
