"""Where binaries are found, what is said of those that are missing, and what is built."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lab.clusters import obtain
from lab.clusters.binaries import (
    Go,
    Missing,
    Places,
    Program,
    catalog,
    go_mod,
    linked,
    refusal,
    require,
    toolchain,
)

KNOWN = catalog()
ETCD = KNOWN.programs["etcd"]
APISERVER = KNOWN.programs["kube-apiserver"]
PUBLISHED = """\
module k8s.io/kubernetes

go 1.25.0

require (
	k8s.io/api v0.0.0
	example.com/other v1.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/client-go => ./staging/src/k8s.io/client-go
)
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "assets", tmp_path / "cache")


def put(folder: Path, name: str, text: str = "#!/bin/sh\n", mode: int = 0o755) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return path


def cached(places: Places, program: Program) -> Path:
    path = put(places.cache, program.name)
    put(places.stamp(program).parent, program.name, f"{program.version}\n")
    return path


def test_assets_come_before_the_cache(places: Places) -> None:
    assert places.find(ETCD) is None
    mine = cached(places, ETCD)
    assert places.find(ETCD) == mine
    assert places.assets is not None
    theirs = put(places.assets, "etcd")
    assert places.find(ETCD) == theirs


def test_a_cached_binary_of_another_version_does_not_count(places: Places) -> None:
    cached(places, ETCD)
    assert places.find(replace(ETCD, version="9.9.9")) is None


def test_what_cannot_be_run_or_was_not_finished_does_not_count(places: Places) -> None:
    put(places.cache, "etcd")
    assert places.find(ETCD) is None
    cached(places, ETCD).chmod(0o644)
    assert places.find(ETCD) is None


def test_folders_come_from_the_environment(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": "/c", "KUBEBUILDER_ASSETS": "/k/bin", "HOME": "/h"}
    assert Places.of(environ, "1.2.3") == Places(Path("/k/bin"), Path("/c/elasticjob/kube/1.2.3"))
    assert Places.of({"HOME": "/h"}, "1.2.3") == Places(None, Path("/h/.cache/elasticjob/kube/1.2.3"))


def test_another_server_has_a_folder_of_its_own_and_shares_the_rest(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "KUBE": "1.37"}
    other, places = catalog(environ=environ), Places.of(environ)
    server = other.programs["kube-apiserver"]
    assert server.version == other.server != other.version == KNOWN.version
    assert other.programs["etcd"] == ETCD
    assert places.cache.name == server.version
    usual = Places.of({"XDG_CACHE_HOME": str(tmp_path)})
    etcd, _ = cached(usual, ETCD), cached(usual, KNOWN.programs["kube-apiserver"])
    assert places.missing([server, ETCD]) == (server,)
    assert places.find(ETCD) == etcd
    cached(places, server)
    assert require("kube-apiserver", environ=environ) == {"kube-apiserver": places.cache / "kube-apiserver"}


def test_a_server_that_is_not_listed_is_refused_with_those_that_are() -> None:
    with pytest.raises(Missing, match=r"KUBE=1\.12: there is no such server; write one of: 1\.37"):
        catalog(environ={"KUBE": "1.12"})


def test_what_is_required_is_found_or_named(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "KUBEBUILDER_ASSETS": str(tmp_path / "assets")}
    for name in ("etcd", "kube-apiserver", "kubectl"):
        put(tmp_path / "assets", name)
    assert require("etcd", environ=environ) == {"etcd": tmp_path / "assets" / "etcd"}
    missing = f"kube-controller-manager {KNOWN.version}, kube-scheduler {KNOWN.version} not found"
    with pytest.raises(Missing, match=missing) as error:
        require("control-plane", environ=environ)
    assert "run hack/kube-binaries control-plane" in str(error.value)
    assert "set KUBEBUILDER_ASSETS" in str(error.value)


def test_sets_name_programs_and_programs_name_themselves() -> None:
    assert [program.name for program in KNOWN.chosen(["kwok", "etcd", "kwok"])] == ["kwok", "etcd"]
    built = ["control-plane", "kwok", "node", "chart", "kueue"]
    everything = [program.name for program in KNOWN.chosen(built)]
    assert sorted(everything) == sorted(KNOWN.sets["all"])
    beside = [program.name for program in KNOWN.chosen(["peers-of-queue"])]  # minutes each: not in CI
    assert sorted(everything + beside) == sorted(KNOWN.programs)
    with pytest.raises(KeyError, match="kubelets"):
        KNOWN.chosen(["kubelets"])


@pytest.mark.parametrize(
    ("go", "reason"),
    [
        (None, "there is no Go on PATH, and Go 1.25 or newer is needed"),
        (Go("/usr/bin/go", "1.19.8"), "the Go here, /usr/bin/go, is 1.19.8, and Go 1.25"),
        (Go("/usr/bin/go", "1.25"), ""),
        (Go("/usr/bin/go", "1.26.1"), ""),
    ],
)
def test_without_go_it_says_what_is_missing_and_for_what(go: Go | None, reason: str) -> None:
    message = refusal([ETCD, KNOWN.programs["kwok"]], go, replace(KNOWN, go="1.25"))
    assert reason in message
    assert bool(message) is ("make bench-scale" in message) is bool(reason)


def test_the_go_of_the_path_is_asked_for_its_version(tmp_path: Path) -> None:
    assert toolchain({"PATH": str(tmp_path)}) is None
    put(tmp_path, "go", "#!/bin/sh\necho go version go1.25.3 linux/amd64\n")
    assert toolchain({"PATH": str(tmp_path)}) == Go(str(tmp_path / "go"), "1.25.3")


def test_staged_modules_become_published_ones() -> None:
    assert go_mod(replace(APISERVER, version="1.35.4"), PUBLISHED) == (
        "module built\n\ngo 1.25.0\n\nrequire k8s.io/kubernetes v1.35.4\n\n"
        "replace k8s.io/api => k8s.io/api v0.35.4\nreplace k8s.io/client-go => k8s.io/client-go v0.35.4\n"
    )


def test_kubernetes_programs_are_told_their_version() -> None:
    flags = linked(replace(APISERVER, version="1.35.4"))
    assert "-X k8s.io/component-base/version.gitVersion=v1.35.4" in flags
    assert linked(ETCD) == ["-s", "-w"]
    assert "-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=35" in linked(KNOWN.programs["helm"])


FAKE_GO = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
match sys.argv[1:]:
    case ["version"]:
        print("go version go99.1 linux/amd64")
    case ["mod", "download", "-json", module]:
        Path("published.mod").write_text("module x\\n\\ngo 1.25\\n")
        for file in ("config/components/crd/bases/a.yaml", "config/components/webhook/manifests.yaml"):
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            Path(file).write_text("a: file")
        print(json.dumps({{"GoMod": str(Path("published.mod").absolute()), "Dir": str(Path().absolute())}}))
    case ["build", *words] if "FAILS" not in words[-1]:
        out, *commands = words[words.index("-o") + 1 :]
        for command in commands:
            path = Path(out, command.rpartition("/")[2]) if out.endswith("/") else Path(out)
            beside = os.environ.get("GONOSUMDB", "")
            path.write_text("#!/bin/sh\\necho built " + command + " 7.7.7 " + beside + "\\n")
            path.chmod(0o755)
    case _:
        print("no such package", file=sys.stderr)
        raise SystemExit(1)
"""


def with_go(folder: Path, go: str = FAKE_GO) -> dict[str, str]:
    """An environment with this Go, and a cache that is empty."""
    put(folder / "bin", "go", go)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(folder / "cache")}


def test_what_is_missing_is_built_once_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = with_go(tmp_path)
    assert obtain.main(["etcd", "kwok"], environ) == 0
    output = capsys.readouterr().out
    assert f"building etcd {ETCD.version}" in output
    assert "built kwok" in output
    assert obtain.main(["etcd", "kwok"], environ) == 0
    assert capsys.readouterr().out == ""
    assert obtain.main(["--list", "etcd", "helm"], environ) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1][:3] == ["etcd", ETCD.version, "7.7.7"]
    assert rows[2] == ["helm", KNOWN.programs["helm"].version, "missing", "-"]


def test_programs_of_one_module_are_built_by_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = with_go(tmp_path)
    assert obtain.main(["kubelet", "kube-proxy", "coredns"], environ) == 0
    said = capsys.readouterr().out
    assert f"building kubelet {KNOWN.version}, kube-proxy {KNOWN.version}" in said
    found = require("kubelet", "kube-proxy", "coredns", environ=environ)
    assert "k8s.io/kubernetes/cmd/kube-proxy" in found["kube-proxy"].read_text()
    assert (found["coredns"].parent / ".build/github.com_coredns_coredns/main.go").is_file()


def test_a_module_gives_a_program_and_files_from_several_folders(tmp_path: Path) -> None:
    environ = with_go(tmp_path) | {"GONOSUMDB": "example.com/mine"}
    assert obtain.main(["kueue"], environ) == 0
    found = require("kueue", environ=environ)
    assert "example.com/mine,sigs.k8s.io/scheduler-library" in found["kueue"].read_text()
    assert {file.name for file in found["kueue-definitions"].iterdir()} == {"a.yaml", "manifests.yaml"}


def test_a_build_that_fails_leaves_nothing_half_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = with_go(tmp_path, FAKE_GO.replace("FAILS", "kwok"))
    assert obtain.main(["kwok"], environ) == 1
    assert "sigs.k8s.io/kwok/cmd/kwok` failed with 1" in capsys.readouterr().err
    with pytest.raises(Missing, match="kwok"):
        require("kwok", environ=environ)


def test_a_word_nobody_knows_is_answered_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert obtain.main(["kubelets"], {"HOME": "/nowhere"}) == 2
    assert (
        "there is no set or program 'kubelets'; write one of: control-plane, kwok" in capsys.readouterr().err
    )
