"""What a release consists of, built into one folder: wheel, sdist, chart, images, lists of parts, digests.

hack/release runs it, once the version is committed.
What is there already with the digest of SHA256SUMS is not built again. The same commit gives the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from elasticjob import __version__
from hack.generate.chart import CHART
from hack.releases import distributions, parts
from lab.clusters.images import images, interpreter
from lab.clusters.images.oci import File, Image, Store, write_archive

SUMS: Final = "SHA256SUMS"
CHUNK: Final = 1 << 20
MB: Final = 1_000_000


class TooLarge(Exception):
    """An image is above its budget."""


def build(
    out: Path, names: Sequence[str], commit: str, epoch: int, say: Callable[[str], None] = print
) -> None:
    """Build what is missing of a release into a folder, and write the digests of all of it."""
    out.mkdir(parents=True, exist_ok=True)
    known = checked(out)
    when = datetime.fromtimestamp(epoch, UTC)
    wheel, sdist = f"elasticjob-{__version__}-py3-none-any.whl", f"elasticjob-{__version__}.tar.gz"
    if not {wheel, sdist} <= known:
        distributions.build(out, epoch=epoch)
        (out / f"{wheel}.cdx.json").write_text(wheel_parts(when))
    chart = out / f"elasticjob-{__version__}.tgz"
    if chart.name not in known:
        chart.write_bytes(packaged_chart(epoch))
    store = Store(images.cache())
    for name in names:
        archive = out / f"{name}-{__version__}.oci.tar"
        if archive.name not in known:
            image = images.build(name, store, __version__, commit=commit)
            say(within_budget(name, image))
            with archive.open("wb") as file:
                write_archive(store, image, file)
            (out / f"{name}-{__version__}.cdx.json").write_text(image_parts(name, image, when))
    lines = [f"{digest(file)}  {file.name}\n" for file in sorted(out.iterdir()) if file.name != SUMS]
    (out / SUMS).write_text("".join(lines))
    say(f"{len(lines)} files and {SUMS} in {out}")


def checked(out: Path) -> set[str]:
    """Return the files of a folder that are as its SHA256SUMS says."""
    if not (out / SUMS).exists():
        return set()
    lines = (line.split("  ") for line in (out / SUMS).read_text().splitlines())
    return {name for sha, name in lines if (out / name).exists() and digest(out / name) == sha}


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def within_budget(name: str, image: Image) -> str:
    """Return a line with the size of an image. Raises TooLarge above its budget."""
    size, most = sum(blob.size for blob in image.blobs) / MB, images.PRODUCTS[name].megabytes
    line = f"{image.name}  {image.manifest.digest}  {size:,.0f} MB of {most:,} MB"
    if size > most:
        raise TooLarge(f"{line}: make it smaller, or raise its budget in lab/clusters/images/images.py")
    return line


def packaged_chart(epoch: int) -> bytes:
    """Return the chart as `helm package` would write it, with one time for all files."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in sorted(file for file in CHART.rglob("*") if file.is_file()):
            content = file.read_bytes()
            info = tarfile.TarInfo(f"{CHART.name}/{file.relative_to(CHART).as_posix()}")
            info.size, info.mode, info.mtime = len(content), 0o644, epoch
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def wheel_parts(when: datetime) -> str:
    """Return the parts that an installation of the wheel had here, with the extras of people and programs."""
    required = images.requirements(images.project(), ("brain", "devcluster", "gpu"))
    found = (parts.distribution(each) for each in interpreter.closure(required))
    return parts.parts(parts.package(__version__), found, when)


def image_parts(name: str, image: Image, when: datetime) -> str:
    """Return the parts of an image: our package, the interpreter, distributions, Debian's libraries."""
    found = [
        parts.package(__version__),
        parts.python(),
        *parts.debian({**interpreter.system(), **interpreter.interpreter()}),
        *(parts.distribution(each) for each in _distributions(name)),
    ]
    return parts.parts(parts.image(name, __version__, image.manifest.digest), found, when)


def _distributions(name: str) -> Iterator[Distribution]:
    required = images.requirements(images.project(), images.PRODUCTS[name].extras)
    closure = interpreter.closure(required)  # the agent's are of the same versions for each Python
    if not any(each.name.startswith(images.GPU_ONLY) for each in closure):
        yield from closure
        return
    entries = interpreter.distributions(required, images.GPU_ONLY).values()
    there = {entry.content for entry in entries if isinstance(entry, File)}
    for each in closure:
        files = (Path(str(each.locate_file(file))) for file in each.files or ())
        if not each.name.startswith(images.GPU_ONLY) or not there.isdisjoint(files):
            yield each


def main() -> int:
    """Build, or check what is there; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hack.releases.artifacts", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("images", nargs="*")
    parser.add_argument("--commit", required=True, help="what version and labels say")
    parser.add_argument("--epoch", type=int, required=True, help="the time of all files, since 1970")
    parser.add_argument("--check", action="store_true", help="exit 1 if a file is missing or changed")
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
