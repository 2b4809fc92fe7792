"""The archives of a release, from the command line: what hack/release runs once the version is committed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from elasticjob import __version__
from hack.releases.artifacts import TooLarge, build, checked
from lab.clusters.images import interpreter


def main() -> int:
    """Build, or check what is there; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.releases.artifacts_command", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder")
    parser.add_argument("images", nargs="*", help="which images")
    parser.add_argument("--commit", required=True, help="what version and labels say")
    parser.add_argument(
        "--epoch", type=int, required=True, help="the time of all files, in seconds since 1970"
    )
    parser.add_argument(
        "--check", action="store_true", help="build nothing; exit 1 if a file is missing or changed"
    )
    asked = parser.parse_args()
    if asked.check:
        wanted = {f"elasticjob-{__version__}{end}" for end in ("-py3-none-any.whl", ".tar.gz", ".tgz")}
        wanted |= {f"{name}-{__version__}.oci.tar" for name in asked.images}
        return int(not wanted <= checked(asked.out))
    try:
        build(asked.out, asked.images, asked.commit, asked.epoch)
    except (TooLarge, interpreter.Missing) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
