"""The wheel and the sdist: every file of the package, nothing else, and the same bytes each time."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.specifiers import SpecifierSet

from elasticjob import __version__
from hack.releases.distributions import Distributions, build
from lab.archives import unpack
from lab.paths import ROOT

NOW = 1_700_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    return build(tmp_path_factory.mktemp("dist"), epoch=NOW)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packaged() -> Iterator[str]:
    """Yield the path in the wheel of each file of the package, those that git does not know yet included."""
    package = ROOT / "elasticjob"
    folders = {link.name for link in package.iterdir() if link.is_symlink()}
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\n"):
        path = Path(name)
        if path.parts and path.parts[0] in folders and (ROOT / path).is_file():
            yield f"elasticjob/{name}"
        elif path.parent == Path("elasticjob") and not (ROOT / path).is_symlink():
            yield name


def test_the_wheel_holds_the_package_and_nothing_else(built: Distributions) -> None:
    found = {name for name in contents(built.wheel) if ".dist-info/" not in name}
    assert found == {*packaged(), "elasticjob/commit.txt"}
    assert {"elasticjob/py.typed", "elasticjob/examples/digits/job.yaml"} <= found


def test_no_file_of_the_wheel_names_a_folder_of_this_machine(built: Distributions) -> None:
    here = re.compile("|".join(re.escape(str(each)) for each in (ROOT, Path.home())).encode() + rb"|/work/")
    assert [name for name, content in contents(built.wheel).items() if here.search(content)] == []


def test_the_metadata_are_what_an_index_accepts(built: Distributions) -> None:
    inside = contents(built.wheel)
    info = f"elasticjob-{__version__}.dist-info"
    metadata = Metadata.from_email(inside[f"{info}/METADATA"], validate=True)
    assert (metadata.name, str(metadata.version)) == ("elasticjob", __version__)
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.requires_python == SpecifierSet(">=3.11")
    assert metadata.description == (ROOT / "README.md").read_text()
    assert inside[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"elasticjob = elasticjob.cli.main:main" in inside[f"{info}/entry_points.txt"]
    assert b"[torchrun.handlers]" in inside[f"{info}/entry_points.txt"]


def test_the_sdist_is_enough_for_the_same_wheel_at_another_time_and_place(
    built: Distributions, tmp_path: Path
) -> None:
    with tarfile.open(built.sdist) as archive:
        names = [member.name for member in archive]
        unpack(archive, tmp_path)
    assert [name for name in names if "/tests/" in name or "__pycache__" in name] == []
    (unpacked,) = tmp_path.iterdir()
    for file in unpacked.rglob("*"):
        os.utime(file, (NOW + 9, NOW + 9))
        if file.is_file():
            file.chmod(0o600)
    again = build(tmp_path / "dist", unpacked, epoch=NOW)
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()


def test_the_demo_needs_no_other_framework(built: Distributions) -> None:
    metadata = Metadata.from_email(contents(built.wheel)[f"elasticjob-{__version__}.dist-info/METADATA"])
    wanted, waiting = set(), ["demo"]
    while waiting:
        extra = waiting.pop()
        for each in metadata.requires_dist or ():
            if each.marker and each.marker.evaluate({"extra": extra}) and "extra" in str(each.marker):
                waiting += [one for one in each.extras if each.name == "elasticjob"]
                wanted.add(each.name)
    assert "torch" in wanted
    assert wanted.isdisjoint({"tensorflow", "tensorflow-cpu", "transformers", "lightning", "accelerate"})
