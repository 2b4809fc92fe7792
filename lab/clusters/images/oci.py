"""OCI images without Docker: layers, a store of blobs, images, and archives for container runtimes.

The same entries give the same digest on every machine: a layer is an uncompressed tar, sorted, of user 0,
with times of 1970. Blobs live in a folder by their digest, so a layer that did not change is neither written
nor imported again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, cast

LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
EPOCH: Final = "1970-01-01T00:00:00Z"
MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class File:
    """A regular file: bytes, or a copy of a file of this machine.

    `known` tells its content from all others where that is known without reading it, wherever it lies.
    """

    content: bytes | Path
    mode: int = 0o644
    known: str = ""


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    to: str


@dataclass(frozen=True)
class Folder:
    """A folder; those above a file need not be named."""

    mode: int = 0o755


Entry = File | Link | Folder
Entries = Mapping[str, Entry]
"""The content of a layer, by absolute path."""


@dataclass(frozen=True)
class Descriptor:
    """A blob as other blobs name it."""

    digest: str
    size: int
    media_type: str

    def as_json(self) -> dict[str, Any]:
        """Return it as the specification writes it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Image:
    """An image of the store: its name, its manifest, and all its blobs, the manifest included."""

    name: str
    manifest: Descriptor
    blobs: tuple[Descriptor, ...]


@dataclass(frozen=True)
class Recipe:
    """The configuration of an image besides its layers."""

    name: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"

    def as_json(self) -> dict[str, Any]:
        """Return the `config` of the image's configuration."""
        return {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "User": self.user,
            "Env": [f"{name}={value}" for name, value in sorted(self.environment.items())],
            "Labels": dict(self.labels),
            "WorkingDir": self.folder,
        }


class Store:
    """A folder of blobs, with a cache of the layers' digests by their entries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = folder / "blobs" / "sha256"
        self._known = folder / "layers"
        self._images = folder / "images"
        for each in (self._blobs, self._known, self._images):
            each.mkdir(parents=True, exist_ok=True)

    def path(self, blob: Descriptor) -> Path:
        """Return the file of a blob."""
        return self._blobs / blob.digest.removeprefix("sha256:")

    def put(self, content: bytes, media_type: str) -> Descriptor:
        """Keep a small blob."""
        return self._keep(lambda file: file.write(content), media_type)

    def layer(self, entries: Entries) -> Descriptor:
        """Return the layer with these entries; one whose files look unchanged is not written again."""
        known = self._known / fingerprint(entries)
        if known.exists():
            blob = Descriptor(**json.loads(known.read_text()))
            if self.path(blob).exists():
                return blob
        blob = self._keep(lambda file: write_layer(entries, file), LAYER)
        known.write_text(json.dumps(vars(blob)))
        return blob

    def image(self, recipe: Recipe, layers: Collection[Descriptor]) -> Image:
        """Return the image of these layers, the lowest first."""
        machine = MACHINES.get(platform.machine(), platform.machine())
        config = {
            "architecture": machine,
            "os": "linux",
            "created": EPOCH,
            "config": recipe.as_json(),
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": EPOCH, "created_by": "hack/images"} for _ in layers],
        }
        described = self.put(_json(config), CONFIG)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described.as_json(),
            "layers": [layer.as_json() for layer in layers],
        }
        top = self.put(_json(manifest), MANIFEST)
        blobs = (top, described, *layers)
        record = self._images / recipe.name.replace("/", "_")
        record.write_text("\n".join(blob.digest for blob in blobs))
        return Image(recipe.name, top, blobs)

    def sweep(self, older_than: float) -> None:
        """Remove blobs, written before a Unix time, that no tagged image refers to."""
        kept = {line for record in self._images.iterdir() for line in record.read_text().splitlines()}
        for blob in self._blobs.iterdir():
            if f"sha256:{blob.name}" not in kept and blob.stat().st_mtime < older_than:
                blob.unlink()

    def _keep(self, write: Callable[[BinaryIO], object], media_type: str) -> Descriptor:
        """Keep what a function writes, under its digest."""
        with tempfile.NamedTemporaryFile(dir=self._blobs, delete=False) as file:
            write(cast(BinaryIO, file))
            file.seek(0)
            digest = hashlib.file_digest(cast(Any, file), "sha256").hexdigest()
            blob = Descriptor(f"sha256:{digest}", file.tell(), media_type)
        Path(file.name).replace(self.path(blob))
        return blob


def write_layer(entries: Entries, out: Any) -> None:
    """Write entries as a tar, in order of their paths, folders above them first."""
    with tarfile.TarFile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK) as archive:
        archive.copybufsize = CHUNK  # type: ignore[attr-defined]  # documented of TarFile's constructor only
        for path, entry in with_folders(entries):
            _add(archive, path.lstrip("/"), entry)


def with_folders(entries: Entries) -> Iterator[tuple[str, Entry]]:
    """Yield all entries in order, with their parent folders."""
    folders = {str(folder) for path in entries for folder in PurePosixPath(path).parents} - {"/"}
    yield from sorted({**dict.fromkeys(folders, Folder()), **entries}.items())


def write_archive(store: Store, image: Image, out: BinaryIO, without: Collection[str] = ()) -> None:
    """Write an image as an OCI archive; blobs whose digest is in `without` are left out."""
    named = image.manifest.as_json() | {
        "annotations": {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
        }
    }
    with tarfile.TarFile.open(fileobj=out, mode="w|", bufsize=CHUNK) as archive:
        archive.copybufsize = CHUNK  # type: ignore[attr-defined]  # as above
        _add(archive, "oci-layout", File(b'{"imageLayoutVersion":"1.0.0"}'))
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [named]}
        _add(archive, "index.json", File(_json(index)))
        for blob in {blob.digest: blob for blob in image.blobs if blob.digest not in without}.values():
            _add(archive, f"blobs/sha256/{blob.digest.removeprefix('sha256:')}", File(store.path(blob)))


def fingerprint(entries: Entries) -> str:
    """Return a fingerprint of entries without reading files: what is known of each, or where it is,
    its size and its time.
    """
    seen = hashlib.sha256()
    for path, entry in sorted(entries.items()):
        seen.update(repr((path, _look(entry))).encode())
    return seen.hexdigest()


def _look(entry: Entry) -> tuple[object, ...]:
    match entry:
        case File(_, mode, known) if known:
            return ("file", mode, known)
        case File(Path() as source, mode):
            status = source.stat()
            return ("file", mode, str(source), status.st_size, status.st_mtime_ns)
        case File(content, mode):
            return ("file", mode, content)
        case Link(to):
            return ("link", to)
        case Folder(mode):
            return ("folder", mode)


def _add(archive: tarfile.TarFile, path: str, entry: Entry) -> None:
    info = tarfile.TarInfo(path)
    match entry:
        case Folder(mode):
            info.type, info.mode = tarfile.DIRTYPE, mode
            archive.addfile(info)
        case Link(to):
            info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, to
            archive.addfile(info)
        case File(bytes() as content, mode):
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
        case File(Path() as source, mode):
            with source.open("rb") as file:
                info.size, info.mode = os.fstat(file.fileno()).st_size, mode
                archive.addfile(info, file)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
