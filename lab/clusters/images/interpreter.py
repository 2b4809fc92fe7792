"""Files of this machine's Python for an image: interpreter, shared libraries, installed distributions.

Everything lands below /usr/local, as in the official Python images, and shared libraries beside the C
library, where the loader finds them without a cache. Bytecode is included in the unchecked form, so that a
container with a read-only root starts fast.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lab.clusters.images.oci import Entries, Entry, File, Folder, Link

PREFIX: Final = "/usr/local"
VERSION: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE: Final = f"{PREFIX}/lib/{VERSION}/site-packages"
PROGRAM: Final = f"{PREFIX}/bin/python3"
NOBODY: Final = 65532
LEFT_OUT: Final = re.compile(
    r"(^|/)(__pycache__|test|tests|idlelib|tkinter|ensurepip|turtledemo|site-packages|config-3[^/]*)(/|$)"
    r"|(_test\w*|_tkinter|xxlimited\w*)\.[^/]*so$"
)
"""Parts of the standard library that containers do not need."""
SYSTEM_LIBRARIES: Final = (
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
    "libstdc++.so.6",
    "libutil.so.1",
    "libz.so.1",
)
"""Libraries that wheels may expect of the system (the manylinux policy), and those of the C library."""


class Missing(Exception):
    """A file for an image is missing on this machine. The message says what to install."""


def system() -> Entries:
    """Return the files that every program expects: users, name service, places to mount and to write."""
    nonroot = f"nonroot:x:{NOBODY}:{NOBODY}:nonroot:/home/nonroot:/sbin/nologin"
    users = f"root:x:0:0:root:/root:/sbin/nologin\n{nonroot}\n"
    folders = dict.fromkeys(("/dev", "/home", "/proc", "/root", "/run", "/sys", "/var"), Folder())
    return {
        **folders,
        "/home/nonroot": Folder(0o755),
        "/tmp": Folder(0o1777),
        "/var/tmp": Folder(0o1777),
        "/lib": Link("usr/lib"),
        "/lib64": Link("usr/lib64"),
        "/usr/lib64": Folder(),
        "/etc/passwd": File(users.encode()),
        "/etc/group": File(f"root:x:0:\nnonroot:x:{NOBODY}:\n".encode()),
        "/etc/nsswitch.conf": File(b"passwd: files\ngroup: files\nhosts: files dns\n"),
    }


def interpreter() -> Entries:
    """Return this interpreter, its standard library and the shared libraries of both."""
    standard = Path(sysconfig.get_path("stdlib"))
    entries: dict[str, Entry] = {
        f"{PREFIX}/bin/{VERSION}": File(Path(sys.executable).resolve(), 0o755),
        PROGRAM: Link(VERSION),
        f"{PREFIX}/bin/python": Link(VERSION),
        SITE: Folder(),
        f"{PREFIX}/lib/python3/dist-packages": Link(f"../{VERSION}/site-packages"),  # where Debian's looks
    }
    extensions = [Path(sys.executable).resolve()]
    for source in _files(standard):
        inside = source.relative_to(standard).as_posix()
        if LEFT_OUT.search(inside):
            continue
        entries |= installed(source, f"{PREFIX}/lib/{VERSION}/{inside}")
        extensions += [source] if source.suffix == ".so" else []
    return {**entries, **shared_libraries(extensions)}


def shared_libraries(programs: Iterable[Path]) -> Entries:
    """Return the libraries that programs are linked against, and those that wheels may expect."""
    linked = _linked(programs)
    loader, library = linked.pop("loader"), linked["libc.so.6"].parent
    beside = [(library / name, name) for name in SYSTEM_LIBRARIES]
    found = linked | {name: path for path, name in beside if path.exists()}
    place = "/usr" + str(library).removeprefix("/usr")
    entries: dict[str, Entry] = {
        f"{place}/{name}": File(path.resolve(), 0o755) for name, path in found.items()
    }
    entries["/usr" + str(loader).removeprefix("/usr")] = File(loader.resolve(), 0o755)
    return entries


def distributions(requirements: Iterable[str], left_out: tuple[str, ...] = ()) -> Entries:
    """Return the files of installed distributions, and of all that they require. Raises Missing.

    Of those whose names begin with a word in `left_out` only the libraries come that the others are linked
    against, where programs cannot be loaded without them.
    """
    entries: dict[str, Entry] = {}
    spared: dict[Path, tuple[str, str]] = {}
    for distribution in closure(requirements):
        for place, source, known in _files_of(distribution):
            if distribution.name.startswith(left_out):
                spared[source.resolve()] = (place, known)
            else:
                entries |= installed(source, place, known)
    needed = {path.resolve() for path in _linked(_extensions(entries)).values()} if spared else set()
    return entries | {
        place: File(path, known=known) for path, (place, known) in spared.items() if path in needed
    }


def closure(requirements: Iterable[str]) -> list[importlib.metadata.Distribution]:
    """Return the installed distributions that satisfy requirements, with all that they require themselves."""
    found: dict[str, importlib.metadata.Distribution] = {}
    asked: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found[name] = found.get(name) or _distribution(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in asked:
                asked.add((name, wanted))
                waiting += [(Requirement(text), wanted) for text in found[name].requires or ()]
    return [found[name] for name in sorted(found)]


def bytecode(source: Path) -> bytes | None:
    """Return the bytecode that lies beside a source file, in the form that is always valid; None if stale."""
    cached = Path(importlib.util.cache_from_source(str(source)))
    return _unchecked(cached.read_bytes(), source) if cached.exists() else None


def compiled(package: Path, place: str) -> Entries:
    """Return a package with fresh bytecode, the same on each run: where files are is not in it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, package.name)
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        flags = ["-q", "--invalidation-mode", "unchecked-hash", "-s", folder, "-p", str(Path(place).parent)]
        environ = {**os.environ, "PYTHONHASHSEED": "0"}  # decides the order of constant sets
        subprocess.run([sys.executable, "-m", "compileall", *flags, str(copy)], env=environ, check=True)
        return {
            f"{place}/{file.relative_to(copy).as_posix()}": File(file.read_bytes()) for file in _files(copy)
        }


def plain(package: Path, place: str) -> Entries:
    """Return a package without bytecode, for any Python."""
    files = (file for file in _files_below(package) if "__pycache__" not in file.parts)
    return {f"{place}/{file.relative_to(package).as_posix()}": File(file.read_bytes()) for file in files}


def _unchecked(compiled: bytes, source: Path) -> bytes | None:
    """Return bytecode that was valid by time and size in the form that is always valid (PEP 552)."""
    status = source.stat()
    flags, time, size = (int.from_bytes(compiled[at : at + 4], "little") for at in (4, 8, 12))
    stale = (flags, time, size) != (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    if stale or not compiled.startswith(importlib.util.MAGIC_NUMBER):
        return None
    digest = importlib.util.source_hash(source.read_bytes())
    return compiled[:4] + (1).to_bytes(4, "little") + digest + compiled[16:]


def _files_of(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path, str]]:
    """Yield what a distribution put into site-packages: its place in an image, where it is, its digest.

    Its RECORD has the digests of all others. So the same versions are the same layer in each
    checkout; a file that was edited after it was installed is not noticed.
    """
    for file in distribution.files or ():
        source = Path(str(distribution.locate_file(file)))
        if ".." not in file.parts and "__pycache__" not in file.parts and source.exists():
            known = f"{file.hash.mode}:{file.hash.value}" if file.hash else ""
            if file.name == "RECORD":
                known = f"the record of {distribution.name} {distribution.version}"
            yield f"{SITE}/{file.as_posix()}", source, known


def _extensions(entries: Entries) -> list[Path]:
    """Return the modules among files that pull in most of the others: extensions of packages' own folders."""
    files = (entry.content for entry in entries.values() if isinstance(entry, File))
    return [file for file in files if isinstance(file, Path) and ".cpython-" in file.name]


def installed(source: Path, place: str, known: str = "") -> Entries:
    """Return a file at its place, `known` if so by its digest, and the bytecode that belongs to it."""
    file = File(source, 0o755 if source.stat().st_mode & 0o100 else 0o644, known)
    code = bytecode(source) if source.suffix == ".py" else None
    if code is None:
        return {place: file}
    return {
        place: file,
        importlib.util.cache_from_source(place): File(code, known=known and f"bytecode of {known}"),
    }


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield files of a folder, those behind links to folders too, in order."""
    for root, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        yield from (Path(root, name) for name in sorted(names))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _linked(programs: Iterable[Path]) -> dict[str, Path]:
    """Return the libraries that `ldd` names: their names and where they are; "loader" is the loader."""
    if not (ldd := shutil.which("ldd")):
        raise Missing("ldd is not on PATH: it tells which shared libraries Python needs (package libc-bin)")
    text = subprocess.run([ldd, *map(str, programs)], capture_output=True, text=True, check=True).stdout
    found = {name: Path(path) for name, path in re.findall(r"(\S+) => (/\S+) \(0x", text)}
    loaders = re.findall(r"^\s+(/\S+) \(0x", text, re.MULTILINE)
    return found | {"loader": Path(loaders[0])}


def _distribution(name: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise Missing(
            f"{name} is not installed: run `make demo` or `make test` once, or hack/setup"
        ) from None
