"""The small pure parts of the kubelet: paths, environment, volumes, images, addresses, logs."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.devcluster.node.addresses import PODS, Addresses
from elasticjob.devcluster.node.container import volumes
from elasticjob.devcluster.node.container.environment import (
    Sources,
    Surroundings,
    Unready,
    argv,
    environment,
    expand,
    references,
    rewritten,
)
from elasticjob.devcluster.node.container.identity import Server, kubeconfig, write
from elasticjob.devcluster.node.container.logs import Selection, last_words, select
from elasticjob.devcluster.node.container.mounts import Mount, rewrite
from elasticjob.devcluster.node.images import Image, find
from elasticjob.devcluster.server.kinds.services import RANGE
from elasticjob.kube.objects.views import CONFIG_MAP, POD, SECRET, Pod

MOUNTS = [Mount("/data", Path("/real/d")), Mount("/data/deep", Path("/real/deep"))]


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("/data", "/real/d"),
        ("/data/", "/real/d/"),
        ("/data/x.txt", "/real/d/x.txt"),
        ("--to=/data/x", "--to=/real/d/x"),
        ("cat /data/a > /data/b; ls /data.", "cat /real/d/a > /real/d/b; ls /real/d."),
        ("/data/deep/x", "/real/deep/x"),
        ("a:/data:b", "a:/real/d:b"),
        ("file:///data/x", "file:///real/d/x"),
        ("'/data'", "'/real/d'"),
        ("/database", "/database"),
        ("/data-2", "/data-2"),
        ("/data.old", "/data.old"),
        ("/my/data", "/my/data"),
        ("s3://data/x", "s3://data/x"),
        ("$HOME/data", "$HOME/data"),
        ("${ROOT}/data", "${ROOT}/data"),
    ],
)
def test_rewrite(text: str, rewritten: str) -> None:
    assert rewrite(text, MOUNTS) == rewritten


def test_mounts_at_the_root_rewrite_nothing() -> None:
    assert rewrite("/etc /", [Mount("/", Path("/real"))]) == "/etc /"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("a$$b", "a$b"),
        ("$A", "$A"),
        ("$(A", "$(A"),
        ("$()", "$()"),
    ],
)
def test_expand(text: str, value: str) -> None:
    assert expand(text, {"A": "1"}) == value


AROUND = Surroundings("127.64.0.5", "127.0.0.1", {"cpu": Fraction(8)}, {"PATH": "/bin", "HOME": "/data/home"})
SOURCES = Sources(
    {"c": CONFIG_MAP.convert({"data": {"color": "blue", "size": "2"}}), "gone": None},
    {"s": SECRET.convert({"data": {"word": "aHVzaA=="}}), "gone": None},
)


def pod(container: dict[str, Any], **spec: Any) -> Pod:
    return POD.convert(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i", **container}], **spec},
        }
    )


def env_of(*env: dict[str, Any], **container: Any) -> dict[str, str]:
    made = pod({"env": list(env), **container})
    return environment(made, made.spec.containers[0], Image(env={"FROM_IMAGE": "1"}), SOURCES, AROUND)


def from_(kind: str, **reference: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {kind: reference}}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (from_("fieldRef", fieldPath="metadata.name"), "p"),
        (from_("fieldRef", fieldPath="metadata.labels['app']"), "x"),
        (from_("fieldRef", fieldPath="metadata.annotations['none']"), ""),
        (from_("fieldRef", fieldPath="spec.nodeName"), "node"),
        (from_("fieldRef", fieldPath="spec.serviceAccountName"), "default"),
        (from_("fieldRef", fieldPath="status.podIP"), "127.64.0.5"),
        (from_("resourceFieldRef", resource="limits.cpu"), "2"),
        (from_("resourceFieldRef", resource="limits.cpu", divisor="1m"), "1500"),
        (from_("resourceFieldRef", resource="requests.cpu"), "2"),
        (from_("resourceFieldRef", resource="limits.memory", divisor="1Mi"), "1024"),
        (from_("configMapKeyRef", name="c", key="color"), "blue"),
        (from_("secretKeyRef", name="s", key="word"), "hush"),
        (from_("secretKeyRef", name="gone", key="x", optional=True), None),
        (from_("configMapKeyRef", name="c", key="none", optional=True), None),
        ({"name": "X", "value": "in $(PATH)"}, "in /bin"),
    ],
)
def test_env_value(variable: dict[str, Any], value: str | None) -> None:
    resources = {"limits": {"cpu": "1500m", "memory": "1Gi"}}
    assert env_of(variable, resources=resources).get("X") == value


def test_limit_that_is_absent_is_what_the_node_has() -> None:
    assert env_of(from_("resourceFieldRef", resource="limits.cpu"))["X"] == "8"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (from_("secretKeyRef", name="gone", key="x"), 'secret "gone" not found'),
        (from_("configMapKeyRef", name="gone", key="x"), 'configmap "gone" not found'),
        (from_("secretKeyRef", name="s", key="x"), "couldn't find key x in Secret n/s"),
        (from_("fieldRef", fieldPath="status.mood"), "fieldRef 'status.mood' is not a field"),
    ],
)
def test_env_that_cannot_be_had(variable: dict[str, Any], message: str) -> None:
    with pytest.raises(Unready, match=message) as caught:
        env_of(variable)
    assert caught.value.reason == "CreateContainerConfigError"


def test_env_from_everything_with_a_prefix() -> None:
    sources = [{"prefix": "C_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    env = env_of(envFrom=[*sources, {"secretRef": {"name": "gone", "optional": True}}])
    assert (env["C_color"], env["C_size"], env["word"]) == ("blue", "2", "hush")
    assert (env["FROM_IMAGE"], env["HOSTNAME"], env["PATH"]) == ("1", "p", "/bin")


def test_what_the_node_gives_is_not_rewritten() -> None:
    env = {"HOME": "/data/home", "OUT": "/data/x"}
    assert rewritten(env, AROUND.env, MOUNTS) == {"HOME": "/data/home", "OUT": "/real/d/x"}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({}, ("entry", "cmd")),
        ({"args": ["$(A)"]}, ("entry", "1")),
        ({"command": ["run", "/data/x"]}, ("run", "/real/d/x")),
        ({"command": ["run"], "args": ["--n=$(A)"]}, ("run", "--n=1")),
    ],
)
def test_argv(container: dict[str, Any], words: tuple[str, ...]) -> None:
    image = Image(entrypoint=("entry",), command=("cmd",))
    assert argv(pod(container).spec.containers[0], image, {"A": "1"}, MOUNTS) == words


def test_image_without_a_command_needs_one() -> None:
    with pytest.raises(Unready, match="no command specified"):
        argv(pod({}).spec.containers[0], Image(), {}, ())


def test_references_name_all_that_is_needed() -> None:
    wants = pod(
        {"envFrom": [{"configMapRef": {"name": "a"}}], "env": [from_("secretKeyRef", name="b", key="k")]},
        volumes=[
            {"name": "v", "secret": {"secretName": "c"}},
            {
                "name": "w",
                "projected": {"sources": [{"configMap": {"name": "d"}}, {"secret": {"name": "e"}}]},
            },
        ],
    )
    assert references(wants) == ({"a", "d"}, {"b", "c", "e"})


def made(volume: dict[str, Any]) -> volumes.Volume:
    return volumes.content(
        pod({}), {"name": "v", **volume}, SOURCES, AROUND, volumes.Token("secret-token", "PEM")
    )


@pytest.mark.parametrize(
    ("volume", "content"),
    [
        ({"emptyDir": {}}, volumes.Empty()),
        ({"emptyDir": {"medium": "Memory"}}, volumes.Empty(memory=True)),
        ({"hostPath": {"path": "/x", "type": "Directory"}}, volumes.Host("/x", "Directory")),
        ({"persistentVolumeClaim": {"claimName": "q"}}, volumes.Claim("q")),
        ({"configMap": {"name": "c"}}, volumes.Files({"color": b"blue", "size": b"2"})),
        ({"configMap": {"name": "c", "items": [{"key": "color", "path": "a/b", "mode": 0o400}]}},
         volumes.Files({"a/b": b"blue"}, modes={"a/b": 0o400})),
        ({"secret": {"secretName": "s", "defaultMode": 0o400}}, volumes.Files({"word": b"hush"}, mode=0o400)),
        ({"secret": {"secretName": "gone", "optional": True}}, volumes.Files({})),
        ({"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
         volumes.Files({"labels": b'app="x"'})),
        ({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}},
                                    {"configMap": {"name": "kube-root-ca.crt"}},
                                    {"secret": {"name": "s", "items": [{"key": "word", "path": "w"}]}}]}},
         volumes.Files({"token": b"secret-token", "ca.crt": b"PEM", "w": b"hush"})),
    ],
)  # fmt: skip
def test_volume(volume: dict[str, Any], content: volumes.Volume) -> None:
    assert made(volume) == content


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        ({"secret": {"secretName": "gone"}}, 'secret "gone" not found'),
        ({"configMap": {"name": "c", "items": [{"key": "x", "path": "x"}]}}, "references non-existent"),
        ({"nfs": {"server": "x"}}, r"\['nfs'\] is not supported by devcluster"),
        ({"persistentVolumeClaim": {"claimName": "../../x"}}, 'persistentvolumeclaim "../../x" not found'),
        ({"persistentVolumeClaim": {"claimName": ".."}}, 'persistentvolumeclaim ".." not found'),
    ],
)
def test_volume_that_cannot_be_made(volume: dict[str, Any], message: str) -> None:
    with pytest.raises(Unready, match=message):
        made(volume)


def places(tmp_path: Path) -> volumes.Places:
    return volumes.Places(tmp_path / "pod", tmp_path / "memory", tmp_path / "claims")


def test_a_sub_path_from_the_environment_stays_in_its_volume(tmp_path: Path) -> None:
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(WHERE)"}
    container = pod({"volumeMounts": [mount]}).spec.containers[0]
    for where in ("/etc", "a/../../b", ".."):
        with pytest.raises(Unready, match="leads out of the volume"):
            volumes.mounts_of(container, {"v": tmp_path}, {"WHERE": where})


def test_folders_of_volumes(tmp_path: Path) -> None:
    at = places(tmp_path)
    folder = volumes.make("v", volumes.Files({"a/b": b"x"}, mode=0o400), at)
    assert (folder / "a/b").read_bytes() == b"x"
    assert (folder / "a/b").stat().st_mode & 0o777 == 0o400
    assert volumes.make("m", volumes.Empty(memory=True), at) == tmp_path / "memory/m"
    claim = volumes.make("c", volumes.Claim("q"), at)
    volumes.remove(at)
    assert not folder.exists()
    assert claim.exists()


@pytest.mark.parametrize(
    ("type_", "exists", "accepted"),
    [
        ("", False, True),
        ("Directory", False, False),
        ("Directory", True, True),
        ("DirectoryOrCreate", False, True),
        ("File", True, False),
        ("Socket", True, False),
    ],
)
def test_host_paths(type_: str, exists: bool, accepted: bool, tmp_path: Path) -> None:
    path = tmp_path / "host"
    if exists:
        path.mkdir()
    if accepted:
        assert volumes.make("v", volumes.Host(str(path), type_), places(tmp_path)) == path
    else:
        with pytest.raises(Unready, match="hostPath type check failed"):
            volumes.make("v", volumes.Host(str(path), type_), places(tmp_path))


def test_sub_paths(tmp_path: Path) -> None:
    mounts = [
        {"name": "v", "mountPath": "/a", "subPath": "x"},
        {"name": "v", "mountPath": "/b", "subPathExpr": "$(N)/y"},
    ]
    container = pod({"volumeMounts": mounts}).spec.containers[0]
    found = volumes.mounts_of(container, {"v": tmp_path}, {"N": "n"})
    assert found == [Mount("/a", tmp_path / "x"), Mount("/b", tmp_path / "n/y")]
    assert (tmp_path / "n/y").is_dir()


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("python:3.11", True),
        ("docker.io/library/python:3.11-slim", True),
        ("python", True),
        ("busybox", True),
        ("busybox:1.36", True),
        ("debian@sha256:0", True),
        ("elasticjob/trainer:dev", True),
        ("pythonic:1", False),
        ("quay.io/python:3", False),
        ("nginx", False),
    ],
)
def test_images(image: str, known: bool) -> None:
    assert (find(image) is not None) is known


@given(st.integers(0, 2**32))
def test_addresses_are_distinct_and_leave_services_alone(seed: int) -> None:
    addresses = Addresses(Random(seed))
    taken = [IPv4Address(addresses.take()) for _ in range(300)]
    assert len(set(taken)) == 300
    assert all(address in PODS and address not in RANGE for address in taken)


LOG = b"""\
2026-01-01T00:00:01.000000000Z stdout F one
2026-01-01T00:00:02.500000000Z stderr F two
2026-01-01T00:00:03.000000000Z stdout P thr
2026-01-01T00:00:04.000000000Z stdout F ee
2026-01-01T00:00:05.000000000Z stdout P end
"""


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, "one\ntwo\nthree\nend"),
        ({"tailLines": "0"}, ""),
        ({"tailLines": "1"}, "end"),
        ({"tailLines": "2"}, "three\nend"),
        ({"tailLines": "9"}, "one\ntwo\nthree\nend"),
        ({"limitBytes": "5"}, "one\nt"),
        ({"sinceSeconds": "3"}, "three\nend"),
        ({"sinceTime": "2026-01-01T00:00:02.5Z"}, "two\nthree\nend"),
        ({"tailLines": "1", "timestamps": "true"}, "2026-01-01T00:00:05.000000000Z end"),
    ],
)
def test_selecting_of_a_log(query: dict[str, str], text: str) -> None:
    now = datetime(2026, 1, 1, 0, 0, 6, tzinfo=UTC)
    assert select(LOG, Selection.of(query, now)) == text.encode()


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")), max_size=200))
def test_last_words_are_the_end_of_the_log(lines: list[str]) -> None:
    log = b"".join(b"2026-01-01T00:00:01.000000000Z stdout F " + line.encode() + b"\n" for line in lines)
    whole = "".join(line + "\n" for line in lines)
    words = last_words(log)
    assert whole.encode().endswith(words.replace("\ufffd", "").encode()) or "\ufffd" in whole
    assert len(words.splitlines()) <= max(80, len(words))


def test_kubeconfig_is_yaml_that_names_the_cluster_and_the_token(tmp_path: Path) -> None:
    server = Server("https://127.0.0.1:1234", "PEM")
    config = yaml.safe_load(kubeconfig(server, "hush", "team"))
    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert (config["users"][0]["user"], config["contexts"][0]["context"]["namespace"]) == (
        {"token": "hush"},
        "team",
    )
    assert server.env() == {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1234"}
    path = write(tmp_path / "sa", server, "team", "hush")
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "sa/token").read_text() == "hush"
