"""`hack/images`: the images of operator and trainer, from the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from elasticjob import __version__
from lab.clusters import binaries
from lab.clusters.images import images, interpreter
from lab.clusters.images.containers import Containerd, ImportFailed
from lab.clusters.images.oci import Image, Store, write_archive
from lab.clusters.node.place import Place, default_folder

MB: Final = 1_000_000
AN_HOUR: Final = 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return its exit code."""
    asked = _parser().parse_args(arguments)
    store = Store(asked.cache)
    try:
        for name in asked.names or images.PRODUCTS:
            image = _build(name, store, asked)
            if asked.output:
                _write(image, store, asked.output / f"{name}.tar")
            if asked.load:
                loaded = Containerd(Place(asked.folder.absolute()).socket).load(image, store)
                print(f"  {'loaded into' if loaded else 'was already on'} the node")
        store.sweep(time.time() - AN_HOUR)  # another build may be at work on what no image has yet
    except (interpreter.Missing, binaries.Missing, ImportFailed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _build(name: str, store: Store, asked: argparse.Namespace) -> Image:
    began = time.monotonic()
    image = images.build(name, store, asked.tag, gpu=asked.gpu)
    size = sum(blob.size for blob in image.blobs) / MB
    print(
        f"{image.name}  {image.manifest.digest}  {size:,.0f} MB in {time.monotonic() - began:.1f} s",
        flush=True,
    )
    return image


def _write(image: Image, store: Store, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as out:
        write_archive(store, image, out)
    print(f"  written to {file}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/images",
        description="Builds OCI images from this checkout and its virtual environment, without Docker.",
    )
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(images.PRODUCTS)} (all by default)")
    parser.add_argument("--tag", default=__version__, help="the tag of the images (%(default)s)")
    parser.add_argument(
        "--output", type=Path, help="a folder for archives that any container runtime imports"
    )
    parser.add_argument("--load", action="store_true", help="have them on the node of hack/node")
    parser.add_argument(
        "--gpu", action="store_true", help="with the libraries that only GPUs use (twice the size)"
    )
    parser.add_argument(
        "--cache", type=Path, default=images.cache(), help="where layers are kept (%(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="the node's folder (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
