"""`hack/release 0.2.0`: from a clean checkout to a tagged commit with all archives in dist/0.2.0/.

Each step looks first whether its result is there, so that a release that was interrupted goes on where it
was. Nothing leaves this machine: what is left for a person is printed at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

from elasticjob import __version__
from hack.releases.texts import dated, parsed, versioned
from lab.clusters.images import images
from lab.paths import ROOT

BINARY: Final = frozenset({".png", ".svg", ".woff2"})
PUBLISH: Final = """left for a person, after a look at {out}:
  git push {remote} HEAD {tag}
  twine upload {out}/elasticjob-{version}-py3-none-any.whl {out}/elasticjob-{version}.tar.gz
  helm push {out}/elasticjob-{version}.tgz oci://REGISTRY/charts
{copies}"""
COPY: Final = (
    "  skopeo copy oci-archive:{out}/{name}-{version}.oci.tar docker://REGISTRY/elasticjob/{name}:{version}"
)


class Refused(Exception):
    """The release cannot go on; the message says what to do."""


@dataclass(frozen=True)
class Release:
    """A version that is released from a checkout."""

    root: Path
    version: str
    names: tuple[str, ...]
    day: str

    @property
    def tag(self) -> str:
        """The tag of the commit."""
        return f"v{self.version}"

    @property
    def out(self) -> Path:
        """The folder of the archives."""
        return self.root / "dist" / self.version

    @property
    def subject(self) -> str:
        """The subject of the commit."""
        return f"Release {self.version}"

    def git(self, *words: str) -> str:
        """Return what git prints. Raises Refused with what it complains of."""
        done = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(f"git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.rstrip()

    def committed(self) -> bool:
        """Tell whether HEAD is the release's commit."""
        return self.git("log", "-1", "--format=%s") == self.subject

    def tagged(self) -> bool:
        """Tell whether the tag is there. Raises Refused if it is on another commit."""
        if not self.git("tag", "--list", self.tag):
            return False
        if self.git("rev-list", "-n1", self.tag) != self.git("rev-parse", "HEAD"):
            raise Refused(f"{self.tag} is the tag of another commit: choose the next version")
        return True


def main(arguments: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Do what the command line says; return the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        names = tuple(name for name in asked.images.split(",") if name)
        release = Release(
            root or ROOT,
            parsed(asked.version),
            names,
            asked.date or datetime.now(UTC).date().isoformat(),
        )
        begin(release)
        for title, is_done, do in STEPS:
            done = is_done(release)
            print("done  " if done else "would " if asked.dry_run else "doing ", title, flush=True)
            if not done and not asked.dry_run:
                do(release)
    except (Refused, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    about = {"out": release.out, "version": release.version, "tag": release.tag}
    copies = "\n".join(COPY.format(name=name, **about) for name in release.names)
    remote = (release.git("remote").splitlines() or ["REMOTE"])[0]
    print(PUBLISH.format(remote=remote, copies=copies, **about))
    return 0


def begin(release: Release) -> None:
    """Check that the checkout may be released as this version. Raises Refused."""
    if unknown := sorted(set(release.names) - set(images.PRODUCTS)):
        raise Refused(f"there is no image {unknown[0]}: {', '.join(images.PRODUCTS)}")
    written = _written(release)
    if Version(release.version) < Version(written):
        raise Refused(f"{release.version} is older than {written}, the version of this checkout")
    if release.committed():
        return
    changed = [line[3:] for line in release.git("status", "--porcelain").splitlines()]
    interrupted = written == release.version
    if interrupted and _version(release.git("show", "HEAD:elasticjob/__init__.py")) == written:
        changed = [name for name in changed if name != "CHANGELOG.md"]  # the one that we have changed then
        interrupted = False
    if changed and not interrupted:
        raise Refused(f"the checkout is not clean ({', '.join(changed[:5])}): commit or remove what changed")
    if not interrupted and release.git("tag", "--list", release.tag):
        raise Refused(f"{release.tag} is the tag of another commit: choose the next version")


def _written(release: Release) -> str:
    return _version((release.root / "elasticjob" / "__init__.py").read_text())


def _version(text: str) -> str:
    return text.split('__version__ = "')[1].split('"')[0]


def _is_written(release: Release) -> bool:
    return _written(release) == release.version


def _write(release: Release) -> None:
    old = _written(release)
    for name in release.git("ls-files").splitlines():
        file = release.root / name
        if file.is_symlink() or file.suffix in BINARY or name.startswith(("CHANGELOG.md", "docs/design/")):
            continue
        text = file.read_text(encoding="utf-8")
        if (new := versioned(text, old, release.version)) != text:
            file.write_text(new, encoding="utf-8")


def _is_generated(release: Release) -> bool:
    return _is_written(release) and _generate(release, "--check") == 0


def _generate(release: Release, *flags: str) -> int:
    done = _run(release, "hack.generate", *flags, capture_output=bool(flags))
    if done.returncode and not flags:
        raise Refused("the files cannot be generated: see above")
    return done.returncode


def _run(release: Release, module: str, *words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a module in a process of its own: this one has imported what the steps before have changed."""
    environment = os.environ | {"PYTHONPATH": str(release.root)}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, cwd=release.root, env=environment, check=False, **how)


def _has_section(release: Release) -> bool:
    return f"\n## {release.version} " in (release.root / "CHANGELOG.md").read_text()


def _date(release: Release) -> None:
    file = release.root / "CHANGELOG.md"
    file.write_text(dated(file.read_text(), release.version, datetime.fromisoformat(release.day).date()))


def _commit(release: Release) -> None:
    release.git("commit", "--quiet", "--all", "--message", release.subject)


def _is_built(release: Release) -> bool:
    return release.committed() and (release.out / "SHA256SUMS").exists() and _build(release, "--check") == 0


def _build(release: Release, *flags: str) -> int:
    commit, epoch = release.git("log", "-1", "--format=%H %ct").split()
    about = ("--commit", commit, "--epoch", epoch, *flags)
    done = _run(release, "hack.releases.artifacts", *about, str(release.out), *release.names)
    if done.returncode and not flags:
        raise Refused("the archives are not complete: see above")
    return done.returncode


def _tag(release: Release) -> None:
    release.git("tag", "--annotate", release.tag, "--message", release.subject)


STEPS: Final[Sequence[tuple[str, Callable[[Release], bool], Callable[[Release], object]]]] = (
    ("write the version: package, images in texts", _is_written, _write),
    ("generate: chart, tables, examples", _is_generated, _generate),
    ("give the changelog's section its version and date", _has_section, _date),
    ("commit", Release.committed, _commit),
    ("build wheel, sdist, chart, images, lists of parts, SHA256SUMS", _is_built, _build),
    ("tag", lambda release: release.committed() and release.tagged(), _tag),
)
"""Steps: what each does, whether that is done, and the doing."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hack/release", description=__doc__)
    parser.add_argument("version", help=f"the new version; this checkout is {__version__}")
    parser.add_argument("--dry-run", action="store_true", help="tell which steps are done, change nothing")
    parser.add_argument("--images", default=",".join(images.PRODUCTS), help="by commas (%(default)s)")
    parser.add_argument("--date", default="", help="the date in the changelog (today)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
