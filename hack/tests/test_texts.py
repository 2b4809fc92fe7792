"""The version in texts, the changelog's section, the chart's archive, the list of parts."""

from __future__ import annotations

import json
import subprocess
import tarfile
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path

import pytest

from elasticjob import __version__
from hack.generate.chart import CHART
from hack.releases import command
from hack.releases.artifacts import SUMS, checked, digest, packaged_chart, wheel_parts
from hack.releases.texts import dated, parsed, section, versioned
from lab.paths import ROOT

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n- A thing.\n\n## 0.1.0 - 2026-01-02\n\n- Before.\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('__version__ = "0.1.0"', '__version__ = "0.2.0"'),
        ("image: elasticjob/trainer:0.1.0\n", "image: elasticjob/trainer:0.2.0\n"),
        ("registry.local/elasticjob/agent:0.1.0, and", "registry.local/elasticjob/agent:0.2.0, and"),
        ("    newTag: 0.1.0\n", "    newTag: 0.2.0\n"),
        ("elasticjob/trainer:0.1.0-next", "elasticjob/trainer:0.2.0-next"),
        ("gym-notices==0.1.0", "gym-notices==0.1.0"),
        ("elasticjob/trainer:0.1.01", "elasticjob/trainer:0.1.01"),
        ("since 0.1.0", "since 0.1.0"),
    ],
)
def test_the_version_is_written_where_it_is_ours(old: str, new: str) -> None:
    assert versioned(old, "0.1.0", "0.2.0") == new


def test_every_place_of_the_version_is_one_that_is_written_or_generated() -> None:
    words = f"git grep -lIF elasticjob/operator:{__version__} -- *.yaml *.md Dockerfile*"
    listed = subprocess.run(words.split(), cwd=ROOT, capture_output=True, text=True, check=False).stdout
    found = [name for name in listed.split() if not name.startswith(("charts/", "docs/", "CHANGELOG"))]
    assert found
    texts = {name: versioned((ROOT / name).read_text(), __version__, "9.9.9") for name in found}
    assert [name for name, text in texts.items() if __version__ in text] == []


def test_the_unreleased_part_gets_version_and_date_once() -> None:
    made = dated(CHANGELOG, "0.2.0", date(2026, 12, 1))
    assert section(made, "0.2.0").strip() == "### Added\n- A thing."
    assert section(made, "Unreleased").strip() == ""
    assert "## 0.2.0 - 2026-12-01\n" in made
    assert section(made, "0.1.0") == section(CHANGELOG, "0.1.0")
    assert dated(made, "0.2.0", date(2026, 12, 2)) == made


def test_nothing_to_release_and_no_version_are_refused() -> None:
    with pytest.raises(ValueError, match="says nothing under '## Unreleased'"):
        dated("# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-01-02\n- x\n", "0.2.0", date(2026, 12, 1))
    with pytest.raises(ValueError, match="'next' is not a version: write it as"):
        parsed("next")
    assert parsed("1.2.0-rc1") == "1.2.0rc1"


def test_the_charts_archive_is_the_same_each_time() -> None:
    first = packaged_chart(1_700_000_000)
    assert first == packaged_chart(1_700_000_000)
    with tarfile.open(fileobj=BytesIO(first)) as archive:
        names = archive.getnames()
        assert {member.mtime for member in archive} == {1_700_000_000}
    assert names[0].startswith("elasticjob/")
    assert f"{CHART.name}/Chart.yaml" in names


@pytest.mark.story
def test_parts_are_valid_cyclonedx_and_the_same_each_time() -> None:
    # A story, and imported here: the import compiles 38 grammars, five CPU seconds.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    when = datetime.fromtimestamp(1_700_000_000, UTC)
    text = wheel_parts(when)
    assert text == wheel_parts(when)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = json.loads(text)
    names = {each["name"].lower(): each for each in found["components"]}
    assert {"aiohttp", "msgspec", "pydantic", "sqlalchemy"} <= names.keys()
    assert names["aiohttp"]["purl"] == f"pkg:pypi/aiohttp@{names['aiohttp']['version']}"
    assert names["msgspec"]["licenses"]


def test_only_files_with_their_digest_count_as_built(tmp_path: Path) -> None:
    (tmp_path / "whole").write_text("a")
    (tmp_path / "cut").write_text("b")
    sums = "".join(f"{digest(tmp_path / name)}  {name}\n" for name in ("whole", "cut"))
    (tmp_path / SUMS).write_text(sums + f"{'0' * 64}  missing\n")
    (tmp_path / "cut").write_text("")
    assert checked(tmp_path) == {"whole"}


def repository(folder: Path) -> Path:
    """A checkout of one package."""
    (folder / "elasticjob").mkdir(parents=True)
    (folder / "elasticjob" / "__init__.py").write_text('__version__ = "0.1.0"\n')
    (folder / "CHANGELOG.md").write_text(CHANGELOG)
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "One")):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    return folder


def test_a_dry_run_tells_the_steps_and_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path / "checkout")
    assert command.main(["0.2.0", "--dry-run", "--images", "operator"], root) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()[:6]] == ["would"] * 6
    assert "docker://REGISTRY/elasticjob/operator:0.2.0" in said
    assert (root / "elasticjob" / "__init__.py").read_text() == '__version__ = "0.1.0"\n'
    assert not (root / "dist").exists()


@pytest.mark.parametrize(
    ("version", "change", "sentence"),
    [
        ("0.0.9", "", "0.0.9 is older than 0.1.0"),
        ("0.2.0", "edited", "the checkout is not clean (CHANGELOG.md)"),
        ("0.1.0", "other", "the checkout is not clean (elasticjob/__init__.py)"),
        ("0.2.0", "tagged", "v0.2.0 is the tag of another commit"),
        ("0.2.0 --images no", "", "there is no image no: operator"),
    ],
)
def test_what_stands_in_the_way_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: str, change: str, sentence: str
) -> None:
    root = repository(tmp_path / "checkout")
    if change == "edited":
        (root / "CHANGELOG.md").write_text(CHANGELOG + "more\n")
    if change == "other":
        with (root / "elasticjob" / "__init__.py").open("a") as file:
            file.write("AN_EDIT = 1\n")
    if change == "tagged":
        subprocess.run(["git", "tag", "v0.2.0"], cwd=root, check=True)
    assert command.main([*version.split(), "--dry-run"], root) == 1
    assert sentence in capsys.readouterr().err
