"""Generated files: CRDs are up to date, small enough, and no change that breaks stored objects is written."""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest

from elasticjob.api import crds
from elasticjob.api.crds import DECLARATIONS
from elasticjob.kube.crd.embedded import Detail
from elasticjob.kube.objects.kinds import Manifest
from hack.generate import __main__ as generate
from hack.generate.__main__ import committed, crd_path, main, renew
from lab.paths import ROOT

crd_text, manifest = cache(generate.crd_text), cache(crds.manifest)


@pytest.fixture(autouse=True)
def generated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A definition takes a tenth of a second, and its YAML as long again."""
    monkeypatch.setattr(generate, "crd_text", crd_text)
    monkeypatch.setattr(generate, "manifest", manifest)


@pytest.mark.parametrize("detail", Detail)
def test_every_detail_fits_a_client_side_apply(detail: Detail) -> None:
    assert max(len(crd_text(declaration, detail)) for declaration in DECLARATIONS) < 250_000


def test_a_stale_file_is_shown_and_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stale = ROOT / "config" / "crd" / "scaleplans.yaml"
    before = stale.read_text()
    assert renew(stale, before + "more\n", checking=True) is True
    assert "+more" in capsys.readouterr().out
    assert stale.read_text() == before


@pytest.fixture
def with_one_field_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if the last commit's ScalePlans had a field that the models lack; files are written elsewhere."""

    def before(path: Path, revision: str) -> Manifest | None:
        found = deepcopy(manifest(next(one for one in DECLARATIONS if one.kind.plural == path.stem)))
        if path.stem == "scaleplans":
            schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema["properties"]["spec"]["properties"]["older"] = {"type": "string"}
        return found

    monkeypatch.setattr(generate, "committed", before)
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    strings = {crd_path(one): lambda one=one: crd_text(one) for one in DECLARATIONS}
    monkeypatch.setattr(generate, "outputs", lambda detail: strings)
    return tmp_path / "config" / "crd"


def test_a_breaking_change_is_told_and_not_written(
    with_one_field_more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 1
    output = capsys.readouterr()
    assert "breaking v1alpha1.spec.older: the field is gone" in output.out
    assert "stored objects: it is pruned when they are read, and lost with their next write" in output.out
    assert "breaking changes of ScalePlan: undo them, or say --allow-breaking" in output.err
    written = {path.stem for path in with_one_field_more.iterdir()}
    assert written == {"elasticjobs", "jobresources", "trainingjobs", "dijobs", "aggregatorconfigs"}


def test_a_breaking_change_is_written_where_it_is_allowed(with_one_field_more: Path) -> None:
    assert main(["--allow-breaking"]) == 0
    assert (with_one_field_more / "scaleplans.yaml").read_text() == crd_text(DECLARATIONS[2])


def test_what_breaks_since_a_release_fails_a_check(
    with_one_field_more: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--allow-breaking"])
    capsys.readouterr()
    assert main(["--check"]) == 0
    assert main(["--check", "--since", "v0.1"]) == 1
    assert "compared with v0.1" in capsys.readouterr().out


def test_a_crd_is_found_in_the_last_commit_and_not_before_it_was() -> None:
    found = committed(crd_path(DECLARATIONS[0]), "HEAD")
    assert found is not None
    assert found["metadata"]["name"] == "elasticjobs.elastic.iml.github.io"
    assert committed(crd_path(DECLARATIONS[0]).with_name("never.yaml"), "HEAD") is None


def test_a_git_that_cannot_tell_is_no_leave_to_break(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\necho \"fatal: invalid object name 'v9'.\" >&2\nexit 128\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SystemExit, match=r"cannot compare config/crd/.* with v9: fatal: invalid object"):
        committed(crd_path(DECLARATIONS[0]), "v9")
