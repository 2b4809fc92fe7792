"""Volumes: their contents (pure), and the folders that are made from them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticjob.devcluster.node.container import files
from elasticjob.devcluster.node.container.environment import (
    Sources,
    Surroundings,
    Unready,
    expand,
    field_of,
    resource_of,
)
from elasticjob.devcluster.node.container.mounts import Mount
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Container, Pod

MODE = 0o644


@dataclass(frozen=True)
class Files:
    """A folder of these files: path → content; `modes` where one differs from the volume's own."""

    contents: Mapping[str, bytes]
    mode: int = MODE
    modes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Empty:
    """An emptyDir; `memory` puts it into a file system in memory."""

    memory: bool = False


@dataclass(frozen=True)
class Host:
    """A path of this machine."""

    path: str
    type: str = ""


@dataclass(frozen=True)
class Claim:
    """A PersistentVolumeClaim of the pod's namespace."""

    name: str


Volume = Files | Empty | Host | Claim


@dataclass(frozen=True)
class Token:
    """The parts of a projected volume beside ConfigMaps and Secrets: the pod's identity."""

    token: str
    ca: str


def unmountable(volume: Manifest, why: str) -> Unready:
    return Unready(
        f'MountVolume.SetUp failed for volume "{volume.get("name", "")}": {why}', "ContainerCreating"
    )


def content(
    pod: Pod, volume: Manifest, sources: Sources, around: Surroundings, token: Token | None
) -> Volume:
    """The contents of a volume. Raises Unready if an object it needs is missing."""
    for member, make in _TYPES.items():
        if member in volume:
            return make(_Mount(pod, volume, sources, around, token))
    kinds = sorted(set(volume) - {"name"})
    raise unmountable(volume, f"{kinds} is not supported by devcluster; it has {', '.join(_TYPES)}")


@dataclass(frozen=True)
class _Mount:
    pod: Pod
    volume: Manifest
    sources: Sources
    around: Surroundings
    token: Token | None


def _empty(wanted: _Mount) -> Volume:
    return Empty(memory=(wanted.volume["emptyDir"] or {}).get("medium") == "Memory")


def _host(wanted: _Mount) -> Volume:
    return Host(wanted.volume["hostPath"]["path"], wanted.volume["hostPath"].get("type", ""))


def _claim(wanted: _Mount) -> Volume:
    name = wanted.volume["persistentVolumeClaim"]["claimName"]
    if "/" in name or name in (".", ".."):
        raise unmountable(wanted.volume, f'persistentvolumeclaim "{name}" not found')
    return Claim(name)


def _config_map(wanted: _Mount) -> Volume:
    source = wanted.volume["configMap"]
    return _files(source, _chosen(wanted, source, "configmap", source.get("name", "")))


def _secret(wanted: _Mount) -> Volume:
    source = wanted.volume["secret"]
    return _files(source, _chosen(wanted, source, "secret", source.get("secretName", "")))


def _downward(wanted: _Mount) -> Volume:
    return _files(wanted.volume["downwardAPI"], _fields(wanted, wanted.volume["downwardAPI"]))


def _project(wanted: _Mount) -> Volume:
    source = wanted.volume["projected"]
    contents: dict[str, bytes] = {}
    modes: dict[str, int] = {}
    for part in source.get("sources") or ():
        contents |= _part(wanted, part)
        for member in part.values():
            modes |= _files(member, {}).modes
    return Files(contents, source.get("defaultMode", MODE), modes)


def _part(wanted: _Mount, part: Manifest) -> dict[str, bytes]:
    if source := part.get("configMap"):
        # the CA is known here before the ConfigMap is in the namespace
        if source.get("name") == "kube-root-ca.crt" and wanted.token is not None:
            return {"ca.crt": wanted.token.ca.encode()}
        return _chosen(wanted, source, "configmap", source.get("name", ""))
    if source := part.get("secret"):
        return _chosen(wanted, source, "secret", source.get("name", ""))
    if source := part.get("downwardAPI"):
        return _fields(wanted, source)
    if (source := part.get("serviceAccountToken")) and wanted.token is not None:
        return {source.get("path", "token"): wanted.token.token.encode()}
    raise unmountable(wanted.volume, f"projected source {sorted(part)} is not supported by devcluster")


_TYPES: Mapping[str, Callable[[_Mount], Volume]] = {
    "emptyDir": _empty,
    "hostPath": _host,
    "configMap": _config_map,
    "secret": _secret,
    "projected": _project,
    "downwardAPI": _downward,
    "persistentVolumeClaim": _claim,
}


def _files(source: Manifest, contents: Mapping[str, bytes]) -> Files:
    modes = {item["path"]: item["mode"] for item in source.get("items") or () if item.get("mode") is not None}
    return Files(contents, source.get("defaultMode", MODE), modes)


def _chosen(wanted: _Mount, source: Manifest, kind: str, name: str) -> dict[str, bytes]:
    """All keys, or those that `items` names."""
    found = _values(wanted.sources, kind, name)
    optional = source.get("optional", False)
    if found is None:
        if optional:
            return {}
        raise unmountable(wanted.volume, f'{kind} "{name}" not found')
    items = source.get("items") or [{"key": key, "path": key} for key in found]
    if (missing := [item["key"] for item in items if item["key"] not in found]) and not optional:
        raise unmountable(wanted.volume, f"references non-existent {kind} key: {missing[0]}")
    return {item["path"]: found[item["key"]] for item in items if item["key"] in found}


def _values(sources: Sources, kind: str, name: str) -> Mapping[str, bytes] | None:
    if kind == "secret":
        secret = sources.secrets.get(name)
        return None if secret is None else secret.data
    config = sources.config_maps.get(name)
    if config is None:
        return None
    return {**{key: value.encode() for key, value in config.data.items()}, **config.binary_data}


def _fields(wanted: _Mount, source: Manifest) -> dict[str, bytes]:
    pod, around = wanted.pod, wanted.around
    contents: dict[str, bytes] = {}
    for item in source.get("items") or ():
        if reference := item.get("fieldRef"):
            contents[item["path"]] = field_of(pod, reference.get("fieldPath", ""), around).encode()
        elif reference := item.get("resourceFieldRef"):
            contents[item["path"]] = resource_of(pod, pod.spec.containers[0], reference, around).encode()
    return contents


@dataclass(frozen=True)
class Places:
    """Where volumes live: the pod's own folder, the same in memory, and the namespace's claims."""

    pod: Path
    memory: Path
    claims: Path


def make(name: str, volume: Volume, places: Places) -> Path:
    """Make the folder (or find the path) of a volume; blocking. Existing files are kept. Raises Unready."""
    match volume:
        case Host(path, type_):
            return _make_host(name, Path(path), type_)
        case Claim(claim):
            folder = places.claims / claim
        case Empty(memory=True):
            folder = places.memory / name
        case _:
            folder = places.pod / "volumes" / name
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(volume, Files):
        for path, text in volume.contents.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            files.replace(folder / path, text, volume.modes.get(path, volume.mode))
    return folder


def _make_host(name: str, path: Path, type_: str) -> Path:
    if type_ == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif type_ == "FileOrCreate":
        path.touch()
    wrong = {
        "Directory": not path.is_dir(),
        "DirectoryOrCreate": not path.is_dir(),
        "File": not path.is_file(),
        "FileOrCreate": not path.is_file(),
        "Socket": not path.is_socket(),
        "CharDevice": not path.is_char_device(),
        "BlockDevice": not path.is_block_device(),
    }
    if wrong.get(type_, False):
        raise unmountable(
            {"name": name}, f"hostPath type check failed: {path} is not a {type_.removesuffix('OrCreate')}"
        )
    return path


def mounts_of(container: Container, folders: Mapping[str, Path], env: Mapping[str, str]) -> list[Mount]:
    """The container's volume mounts; blocking, for a subPath that does not exist yet. Raises Unready."""
    mounts = []
    for mount in container.volume_mounts:
        if mount.name not in folders:
            raise unmountable({"name": mount.name}, "the pod has no such volume")
        folder = folders[mount.name]
        if below := mount.sub_path or expand(mount.sub_path_expr, env):
            if below.startswith("/") or ".." in below.split("/"):
                raise unmountable({"name": mount.name}, f"subPath {below!r} leads out of the volume")
            folder = folder / below
            if not folder.exists():
                folder.mkdir(parents=True)
        mounts.append(Mount(mount.mount_path, folder))
    return mounts


def remove(places: Places) -> None:
    """Delete the pod's folders; claims are kept. Blocking."""
    shutil.rmtree(places.pod, ignore_errors=True)
    shutil.rmtree(places.memory, ignore_errors=True)
