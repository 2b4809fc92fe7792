"""What is in our images: this interpreter, what is required, the project; and that it runs by itself."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import packaging
import pytest
import yaml

from elasticjob import __version__
from lab.archives import unpack
from lab.clusters.images import images, interpreter
from lab.clusters.images.interpreter import Missing, bytecode, closure
from lab.clusters.images.oci import Entries, File, Link, fingerprint, write_layer
from lab.paths import ROOT

EXTRAS = {"more": ["thing[torch,web]", "extra>=3"], "torch": ["torch>=2"], "web": ["aiohttp"]}
PROJECT = {"name": "thing", "dependencies": ["base>=1"], "optional-dependencies": EXTRAS}


def test_extras_that_name_extras_are_followed() -> None:
    assert sorted(images.requirements(PROJECT, ("more",))) == ["aiohttp", "base>=1", "extra>=3", "torch>=2"]
    assert images.requirements(PROJECT, ()) == ["base>=1"]


def test_requirements_bring_their_own_and_markers_are_heeded() -> None:
    names = {one.name.lower() for one in closure(["aiohttp>=3", "colorama; sys_platform == 'win32'"])}
    assert {"aiohttp", "yarl", "multidict"} <= names
    assert "colorama" not in names
    with pytest.raises(Missing, match="no-such-thing is not installed: run"):
        closure(["no-such-thing"])


def test_the_same_versions_are_the_same_layer_wherever_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = interpreter.distributions(["packaging"])
    site = Path(packaging.__file__).parents[1]
    for folder in (site / "packaging", *site.glob("packaging-*")):
        shutil.copytree(folder, tmp_path / folder.name)
    monkeypatch.syspath_prepend(tmp_path)
    there = interpreter.distributions(["packaging"])
    contents = [{one.content for one in found.values() if isinstance(one, File)} for found in (here, there)]
    assert tmp_path / "packaging" / "tags.py" in contents[1] - contents[0]
    assert fingerprint(here) == fingerprint(there)
    version = importlib.metadata.version("packaging")
    record = tmp_path / f"packaging-{version}.dist-info" / "RECORD"
    record.write_text(record.read_text().replace("packaging/tags.py,sha256=", "packaging/tags.py,sha256=0"))
    assert fingerprint(here) != fingerprint(interpreter.distributions(["packaging"]))


def installed_in(folder: Path, entries: Entries) -> None:
    """Unpack a layer, as a container runtime does."""
    with (folder / "layer.tar").open("wb") as out:
        write_layer(entries, out)
    with tarfile.open(folder / "layer.tar") as archive:
        unpack(archive, folder / "root")


def test_the_project_is_complete_in_its_layer(tmp_path: Path) -> None:
    installed_in(tmp_path, images.package(images.project(), __version__))
    site = tmp_path / "root" / interpreter.SITE.lstrip("/")
    environ = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    script = (
        "import elasticjob.cli.main as m, importlib.metadata as i; print(m.__file__, i.version('elasticjob'))"
    )
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(site / "elasticjob" / "cli" / "main.py"), __version__]
    command_line = tmp_path / "root" / "usr/local/bin/elasticjob"
    assert command_line.read_text().startswith("#!/usr/local/bin/python3\n")
    assert os.access(command_line, os.X_OK)


def test_fresh_bytecode_beside_its_source_is_used_and_is_valid_without_it(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("ANSWER = 42\n")
    assert bytecode(source) is None
    py_compile.compile(str(source), doraise=True)
    code = bytecode(source) or b""
    assert code[4:8] == (1).to_bytes(4, "little")  # PEP 552: by hash, unchecked
    assert code[8:16] == importlib.util.source_hash(source.read_bytes())
    source.write_text("ANSWER = 'another'\n")
    assert bytecode(source) is None  # stale


def test_a_package_is_compiled_to_the_same_bytes_wherever_it_is(tmp_path: Path) -> None:
    found = []
    for name in ("here", "there"):
        package = tmp_path / name / "thing"
        package.mkdir(parents=True)
        (package / "module.py").write_text("KNOWN = {'a', 'b', 'c'}\nprint('x' in {'p', 'q', 'r', 's'})\n")
        found.append(interpreter.compiled(package, "/site/thing"))
    here, there = found
    assert here == there
    assert here.keys() == {"/site/thing/module.py", importlib.util.cache_from_source("/site/thing/module.py")}


def test_programs_bring_the_libraries_that_they_are_linked_against() -> None:
    found = interpreter.shared_libraries([Path(sys.executable).resolve()])
    names = {Path(path).name for path in found}
    assert {"libc.so.6", "libm.so.6"} <= names
    assert any(name.startswith("ld-linux") for name in names)
    assert all(path.startswith("/usr/lib") for path in found)
    assert all(isinstance(entry, File) and entry.mode == 0o755 for entry in found.values())


def test_config_names_every_crd_and_the_version_of_this_checkout() -> None:
    config = ROOT / "config"
    kustomization = yaml.safe_load((config / "kustomization.yaml").read_text())
    crds = {f"crd/{file.name}" for file in (config / "crd").glob("*.yaml")}
    assert crds <= {*kustomization["resources"]}
    assert all((config / resource).exists() for resource in kustomization["resources"])
    assert kustomization["images"] == [{"name": "elasticjob/operator", "newTag": __version__}]


def test_pythons_of_debian_look_where_packages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_files", lambda _: ())  # the standard library is large
    found = interpreter.interpreter()["/usr/local/lib/python3/dist-packages"]
    assert found == Link(f"../{interpreter.VERSION}/site-packages")
