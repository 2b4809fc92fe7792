"""OCI images: what is in a layer, when it is written again, and what an archive holds."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.clusters.images.oci import (
    Entries,
    File,
    Folder,
    Image,
    Link,
    Recipe,
    Store,
    fingerprint,
    with_folders,
    write_archive,
    write_layer,
)

NAME = "docker.io/elasticjob/some:1"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def tar_of(entries: Entries) -> bytes:
    out = io.BytesIO()
    write_layer(entries, out)
    return out.getvalue()


def read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def opened(content: bytes) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(content))


def test_a_layer_holds_files_links_and_folders_of_nobody_in_particular(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("from this machine")
    entries: Entries = {
        "/usr/bin/tool": File(source, 0o755),
        "/etc/name": File(b"value"),
        "/lib": Link("usr/lib"),
        "/tmp": Folder(0o1777),
    }
    with opened(tar_of(entries)) as archive:
        modes = [(member.name, oct(member.mode)[2:]) for member in archive]
        assert " ".join(f"{name}:{mode}" for name, mode in modes) == (
            "etc:755 etc/name:644 lib:777 tmp:1777 usr:755 usr/bin:755 usr/bin/tool:755"
        )
        assert {(one.mtime, one.uid, one.gid, one.uname) for one in archive} == {(0, 0, 0, "")}
        assert archive.getmember("lib").linkname == "usr/lib"
        assert read(archive, "usr/bin/tool") == b"from this machine"


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts) + "/file"
)


@given(st.dictionaries(PATHS, st.binary(max_size=9).map(File)))
def test_the_order_of_entries_does_not_matter(entries: dict[str, File]) -> None:
    backwards = dict(reversed(entries.items()))
    assert tar_of(entries) == tar_of(backwards)
    assert fingerprint(entries) == fingerprint(backwards)


@given(st.dictionaries(PATHS, st.binary(max_size=9).map(File)))
def test_every_folder_comes_before_what_is_in_it(entries: dict[str, File]) -> None:
    seen = {"/"}
    for path, _ in with_folders(entries):
        assert str(Path(path).parent) in seen
        seen.add(path)


def test_a_layer_is_written_again_when_a_file_changed(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("one")
    first = store.layer({"/file": File(source)})
    store.path(first).write_bytes(b"left alone")
    assert store.layer({"/file": File(source)}) == first
    assert store.path(first).read_bytes() == b"left alone"
    source.write_text("two")
    os.utime(source, ns=(0, 1))
    second = store.layer({"/file": File(source)})
    assert second.digest != first.digest
    assert second.digest == f"sha256:{hashlib.sha256(store.path(second).read_bytes()).hexdigest()}"
    store.path(second).unlink()
    assert store.layer({"/file": File(source)}) == second
    assert store.path(second).exists()


def image_of(store: Store) -> Image:
    layers = [store.layer({"/a": File(b"a")}), store.layer({"/b": File(b"b")})]
    recipe = Recipe(NAME, ("tool",), ("--help",), "65532:65532", {"B": "2", "A": "1"}, {"title": "some"})
    return store.image(recipe, layers)


def test_the_configuration_says_what_runs_and_names_the_layers(store: Store, tmp_path: Path) -> None:
    image = image_of(store)
    assert image == image_of(Store(tmp_path / "elsewhere"))
    manifest = json.loads(store.path(image.manifest).read_text())
    config = json.loads(store.path(image.blobs[1]).read_text())
    assert manifest["config"]["digest"] == image.blobs[1].digest
    assert [layer["digest"] for layer in manifest["layers"]] == config["rootfs"]["diff_ids"]
    assert config["config"] == {
        "Entrypoint": ["tool"],
        "Cmd": ["--help"],
        "User": "65532:65532",
        "Env": ["A=1", "B=2"],
        "Labels": {"title": "some"},
        "WorkingDir": "/",
    }


def test_an_archive_holds_every_blob_but_those_that_are_there_already(store: Store) -> None:
    image = image_of(store)
    out = io.BytesIO()
    write_archive(store, image, out, without={image.blobs[2].digest})
    with opened(out.getvalue()) as archive:
        (named,) = json.loads(read(archive, "index.json"))["manifests"]
        blobs = {name.rpartition("/")[2] for name in archive.getnames() if name.startswith("blobs/")}
    assert named["digest"] == image.manifest.digest
    assert named["annotations"]["io.containerd.image.name"] == NAME
    assert blobs == {image.blobs[at].digest.removeprefix("sha256:") for at in (0, 1, 3)}


def test_what_the_last_image_of_a_name_has_is_kept_and_nothing_older(store: Store) -> None:
    old, new = (store.layer({"/file": File(text)}) for text in (b"old", b"new"))
    store.image(Recipe(NAME), [old])
    image = store.image(Recipe(NAME), [new])
    store.sweep(older_than=0.0)
    assert store.path(old).exists()
    store.sweep(older_than=store.path(new).stat().st_mtime + 1)
    assert not store.path(old).exists()
    assert all(store.path(blob).exists() for blob in image.blobs)
