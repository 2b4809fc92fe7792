"""Locate the binaries of a cluster, and build missing ones from the Go module proxy.

Searched in $KUBEBUILDER_ASSETS first, then in a cache outside of the tree,
`$XDG_CACHE_HOME/elasticjob/kube/VERSION`. With KUBE=1.37 set, the programs of the server are those of
that version, and all others as ever. Standard library only, because `hack/kube-binaries` runs before there is
a virtual environment.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = Path(__file__).with_name("versions.toml")
KUBE = "KUBE"
"""The environment variable that chooses another server, one of `[servers]`, by its minor version."""
SOURCES = VERSIONS.parent
"""Programs whose `main` is ours: a folder of their name, with a main.go."""
Say = Callable[[str], None]


class Missing(RuntimeError):
    """A required program is missing; the message says which, for what, and how to get it."""


class BuildFailed(RuntimeError):
    """Go could not build a program; the compiler's output is on the terminal."""


@dataclass(frozen=True)
class Program:
    """One binary: its version, the Go module that it is in, and its command there; or some of its `files`.

    `unlisted` are modules that it needs and that Go's checksum database does not know (GONOSUMDB).
    """

    name: str
    version: str
    module: str
    command: str = ""
    files: tuple[str, ...] = ()
    unlisted: str = ""


@dataclass(frozen=True)
class Catalog:
    """The content of `versions.toml`; `server` is the version of the API server that is chosen."""

    version: str
    server: str
    go: str
    programs: Mapping[str, Program]
    sets: Mapping[str, tuple[str, ...]]
    needed_by: Mapping[str, str]
    debian: Mapping[str, str]
    plugins: Mapping[str, str]

    def chosen(self, words: Iterable[str]) -> tuple[Program, ...]:
        """The programs of sets and of single names, each once. Raises KeyError for an unknown word."""
        names = [name for word in words for name in self.sets.get(word, (word,))]
        return tuple(self.programs[name] for name in dict.fromkeys(names))

    def users_of(self, missing: Iterable[Program]) -> str:
        """The features that need a program."""
        names = {program.name for program in missing}
        return "; ".join(users for word, users in self.needed_by.items() if names & {*self.sets[word]})


def catalog(path: Path = VERSIONS, environ: Mapping[str, str] = os.environ) -> Catalog:
    """The versions to use. Raises Missing for a server that is not listed."""
    found = tomllib.loads(path.read_text())
    servers, asked = found["servers"], environ.get(KUBE) or ""
    if asked and asked not in servers:
        raise Missing(f"{KUBE}={asked}: there is no such server; write one of: {', '.join(servers)}")
    found["server"] = servers[asked] if asked else found["kubernetes"]
    programs = {name: _program(name, found[row["version"]], row) for name, row in found["programs"].items()}
    sets = {name: tuple(names) for name, names in found["sets"].items()}
    return Catalog(
        found["kubernetes"],
        found["server"],
        found["go"],
        programs,
        sets,
        found["needed-by"],
        found["debian"],
        found["plugins"],
    )


def _program(name: str, version: str, row: Mapping[str, Any]) -> Program:
    files = tuple(row.get("files", ()))
    return Program(name, version, row["module"], row.get("command", ""), files, row.get("unlisted", ""))


@dataclass(frozen=True)
class Places:
    """The folders that may hold binaries; what is built goes into `cache`, `usual` is only looked in."""

    assets: Path | None
    cache: Path
    usual: Path | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ, version: str | None = None) -> Places:
        home = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or Path.home(), ".cache")
        assets = environ.get("KUBEBUILDER_ASSETS")
        known = catalog(environ=environ)
        version, folder = version or known.server, Path(home, "elasticjob", "kube")
        usual = folder / known.version if version == known.server != known.version else None
        return cls(Path(assets).expanduser() if assets else None, folder / version, usual)

    def find(self, program: Program) -> Path | None:
        """The binary, if one is there. In the cache only the version that is asked for counts."""
        if self.assets and os.access(own := self.assets / program.name, os.X_OK):
            return own
        folders = filter(None, (self.cache, self.usual))
        return next((folder / program.name for folder in folders if _has(folder, program)), None)

    def missing(self, programs: Iterable[Program]) -> tuple[Program, ...]:
        return tuple(program for program in programs if not self.find(program))

    def stamp(self, program: Program) -> Path:
        """The file beside the cached binary that holds its version."""
        return _stamp(self.cache, program)


def _stamp(folder: Path, program: Program) -> Path:
    return folder / ".versions" / program.name


def _has(folder: Path, program: Program) -> bool:
    """Whether a cache has this version of a program, whole."""
    stamp = _stamp(folder, program)
    whole = stamp.is_file() and stamp.read_text().strip() == program.version
    return whole and os.access(folder / program.name, os.X_OK)


def require(*words: str, environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The paths of the programs of those sets and names. Raises Missing; builds nothing."""
    known = catalog(environ=environ)
    places = Places.of(environ)
    programs = known.chosen(words)
    if missing := places.missing(programs):
        how = f"run hack/kube-binaries {' '.join(words)}, which builds what is missing where there is Go"
        raise Missing(
            f"{what(missing)} not found; {how}, or set KUBEBUILDER_ASSETS to a folder that has them"
        )
    return {program.name: path for program in programs if (path := places.find(program))}


def what(programs: Sequence[Program]) -> str:
    """In words: `etcd 3.6.5, kwok 0.8.0`."""
    return ", ".join(f"{program.name} {program.version}" for program in programs)


@dataclass(frozen=True)
class Go:
    """A Go toolchain."""

    path: str
    version: str


def toolchain(environ: Mapping[str, str] = os.environ) -> Go | None:
    """The `go` on PATH."""
    path = shutil.which("go", path=environ.get("PATH"))
    if not path:
        return None
    done = subprocess.run([path, "version"], capture_output=True, text=True, check=True, env=dict(environ))
    found = re.search(r"go(\d+(\.\d+)+)", done.stdout)
    return Go(path, found[1] if found else "0")


def refusal(missing: Sequence[Program], go: Go | None, known: Catalog) -> str:
    """Why they cannot be built, and the two ways to get them; "" if they can."""
    if go and _numbers(go.version) >= _numbers(known.go):
        return ""
    reason = f"the Go here, {go.path}, is {go.version}" if go else "there is no Go on PATH"
    return "\n".join(
        (
            f"missing: {what(missing)}",
            f"needed by: {known.users_of(missing)}",
            f"cannot build: {reason}, and Go {known.go} or newer is needed",
            f"either install Go {known.go} or newer and run this again,",
            "or set KUBEBUILDER_ASSETS to a folder that has these programs",
        )
    )


@dataclass(frozen=True)
class Builder:
    """Builds programs into the cache: those of one module in one command, two modules at a time.

    One command compiles what its programs share once, and links one while it compiles another; a second
    module fills the seconds in which the first downloads or links.
    """

    go: Go
    cache: Path
    environ: Mapping[str, str]
    say: Say

    def build(self, programs: Iterable[Program], places: Places) -> None:
        """Build those that are not there yet. Raises BuildFailed."""
        with _alone(self.cache, self.say):
            modules: dict[tuple[str, bool], list[Program]] = {}
            for program in places.missing(programs):  # another run may have been first
                modules.setdefault((program.module, bool(program.files)), []).append(program)
            largest_first = sorted(modules.values(), key=len, reverse=True)
            with ThreadPoolExecutor(2) as pool:
                for _ in pool.map(lambda group: self._build_module(group, places), largest_first):
                    pass  # raises what a build raised

    def _build_module(self, programs: Sequence[Program], places: Places) -> None:
        began = time.monotonic()
        self.say(f"building {what(programs)}")
        if programs[0].files:
            for program in programs:
                self._copy(program, places)
            return
        self._into_place(programs, places)
        sizes = "; ".join(
            f"{one.name}: {(self.cache / one.name).stat().st_size >> 20} MiB" for one in programs
        )
        self.say(f"built {sizes} in {time.monotonic() - began:.0f} s")

    def _into_place(self, programs: Sequence[Program], places: Places) -> None:
        """Each binary appears whole, its version after it."""
        first = programs[0]
        module = self.cache / ".build" / first.module.replace("/", "_")
        built = module / "built"
        built.mkdir(parents=True, exist_ok=True)
        (module / "go.mod").write_text(self._go_mod(first))
        if (source := SOURCES / first.name / "main.go").is_file():
            shutil.copy(source, module)
        out = f"{built}/" if len(programs) > 1 else str(built / first.name)
        flags = ["-trimpath", "-gcflags=all=-dwarf=false", f"-ldflags={' '.join(linked(first))}", "-o", out]
        commands = (program.command for program in programs)
        self._go("build", *flags, *commands, folder=module, unlisted=first.unlisted)
        for program in programs:
            stamp = places.stamp(program)
            stamp.parent.mkdir(exist_ok=True)
            stamp.unlink(missing_ok=True)
            (built / program.name).replace(self.cache / program.name)
            stamp.write_text(f"{program.version}\n")

    def _copy(self, program: Program, places: Places) -> None:
        """Files of a module, in a folder of the program's name."""
        folder, stamp = self.cache / program.name, places.stamp(program)
        folder.mkdir(exist_ok=True)
        stamp.parent.mkdir(exist_ok=True)
        module = Path(self._downloaded(program)["Dir"])
        for path in (path for pattern in program.files for path in module.glob(pattern)):
            shutil.copyfile(path, folder / path.name)
        stamp.write_text(f"{program.version}\n")

    def _downloaded(self, program: Program) -> dict[str, str]:
        wanted = f"{program.module}@v{program.version}"
        told = self._go("mod", "download", "-json", wanted, folder=self.cache, unlisted=program.unlisted)
        found: dict[str, str] = json.loads(told)
        return found

    def _go_mod(self, program: Program) -> str:
        return go_mod(program, Path(self._downloaded(program)["GoMod"]).read_text())

    def _go(self, *arguments: str, folder: Path, unlisted: str = "") -> str:
        settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false", "GOWORK": "off"}
        listed_nowhere = ",".join(filter(None, (self.environ.get("GONOSUMDB", ""), unlisted)))
        environ = {**self.environ, **settings, "GONOSUMDB": listed_nowhere}
        command = [self.go.path, *arguments]
        done = subprocess.run(
            command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            output = f": {done.stdout.strip()}" if done.stdout.strip() else "; see above"
            raise BuildFailed(f"`{' '.join(command)}` failed with {done.returncode} in {folder}{output}")
        return done.stdout


def go_mod(program: Program, published: str) -> str:
    """A module that requires the program's, with the same `replace` lines; pure.

    Replacements by folders of the module's own tree (`./staging/src/k8s.io/api` of Kubernetes) become those
    by the modules that are published from them, v0.35.4 for v1.35.4.
    """
    go = re.search(r"^go .*$", published, re.MULTILINE)
    staged = re.findall(r"^\s*(?:replace\s+)?(\S+) => \./staging\S*", published, re.MULTILINE)
    version = "v0." + program.version.partition(".")[2]
    replaced = "".join(f"replace {module} => {module} {version}\n" for module in staged)
    required = f"require {program.module} v{program.version}"
    return f"module built\n\n{go[0] if go else ''}\n\n{required}\n\n{replaced}"


def linked(program: Program) -> list[str]:
    """Flags of the linker: no symbols, and the version of Kubernetes that its own programs and Helm tell."""
    major, minor, _ = catalog().version.split(".")
    if program.name == "helm":  # `helm template` takes that for the cluster's version
        there = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
        return ["-s", "-w", f"-X {there}Major={major}", f"-X {there}Minor={minor}"]
    if program.module != "k8s.io/kubernetes":
        return ["-s", "-w"]
    major, minor, _ = program.version.split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": f"v{program.version}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/component-base/version.gitTreeState": "clean",
        "k8s.io/client-go/pkg/version.gitVersion": f"v{program.version}",
    }
    return ["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())]


@contextmanager
def _alone(cache: Path, say: Say) -> Iterator[None]:
    """A lock on the cache: a second build waits, and reuses the first one's results."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build in {cache}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))
