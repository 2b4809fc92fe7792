"""Prepares a container for its start: fetches the objects it refers to, makes its volumes, composes its
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from elasticjob.devcluster.node.container import identity, volumes
from elasticjob.devcluster.node.container.environment import (
    Sources,
    Surroundings,
    argv,
    environment,
    references,
    rewritten,
)
from elasticjob.devcluster.node.container.mounts import SERVICE_ACCOUNT, Mount, rewrite
from elasticjob.devcluster.node.container.place import Place
from elasticjob.devcluster.node.container.processes import Order
from elasticjob.devcluster.node.images import Image
from elasticjob.devcluster.quantity import Quantities, parse
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import CONFIG_MAP, SECRET, Container, Pod


@dataclass(frozen=True)
class Startable:
    """A container that may start."""

    order: Order
    mounts: tuple[Mount, ...]


@dataclass(frozen=True)
class Run:
    """One run of a container of a pod."""

    pod: Pod
    container: Container
    image: Image
    number: int
    """How often the container was restarted before."""
    ip: str
    allocatable: Quantities


class Maker:
    """Makes containers for the pods of this machine."""

    def __init__(
        self, client: Client, server: identity.Server, place: Place, env: Mapping[str, str], host: str
    ) -> None:
        self._client, self._server, self._place = client, server, place
        self._env, self._host = env, host
        self._tokens: dict[str, str] = {}

    async def make(self, wanted: Run) -> Startable:
        """Everything that the run needs is in place. Raises Unready, and ApiError when the server fails."""
        sources = await self._sources(wanted.pod)
        token = await self._token(wanted.pod)
        return await asyncio.to_thread(self._compose, wanted, sources, token)

    def forget(self, pod: Pod) -> None:
        """Delete all that was made for the pod, except its claims. Blocking."""
        self._tokens.pop(pod.metadata.uid, None)
        volumes.remove(self._place.volumes(pod))

    async def _sources(self, pod: Pod) -> Sources:
        config_maps, secrets = references(pod)
        client, namespace = self._client, pod.metadata.namespace
        found = Sources({}, {})
        for name in sorted(config_maps):
            config_map = await client.find(CONFIG_MAP, name, namespace)
            found.config_maps[name] = config_map
        for name in sorted(secrets):
            secret = await client.find(SECRET, name, namespace)
            found.secrets[name] = secret
        return found

    async def _token(self, pod: Pod) -> volumes.Token:
        if pod.metadata.uid not in self._tokens:
            self._tokens[pod.metadata.uid] = await identity.request_token(self._client, pod)
        return volumes.Token(self._tokens[pod.metadata.uid], self._server.ca)

    # The rest blocks, and runs in a thread.

    def _compose(self, wanted: Run, sources: Sources, token: volumes.Token) -> Startable:
        pod, container = wanted.pod, wanted.container
        around = self._surroundings(wanted, token)
        folders = self._folders(pod, sources, around, token)
        env = environment(pod, container, wanted.image, sources, around)
        mounts = self._mounts(pod, container, folders, env)
        order = Order(
            argv=argv(container, wanted.image, env, mounts),
            env=rewritten(env, around.env, mounts),
            cwd=rewrite(container.working_dir, mounts) or str(self._root(pod, container)),
            log=str(self._fresh_log(wanted)),
            memory=memory_limit(container.resources.limits),
        )
        return Startable(order, tuple(mounts))

    def _surroundings(self, wanted: Run, token: volumes.Token) -> Surroundings:
        env = {**self._env, **self._server.env()}
        if has_identity(wanted.pod):
            folder, namespace = self._place.identity(wanted.pod), wanted.pod.metadata.namespace
            env["KUBECONFIG"] = str(identity.write(folder, self._server, namespace, token.token))
        return Surroundings(wanted.ip, self._host, wanted.allocatable, env)

    def _folders(
        self, pod: Pod, sources: Sources, around: Surroundings, token: volumes.Token
    ) -> dict[str, Path]:
        folders = {}
        for volume in pod.spec.volumes:
            held = volumes.content(pod, volume, sources, around, token)
            folders[volume["name"]] = volumes.make(volume["name"], held, self._place.volumes(pod))
        return folders

    def _mounts(
        self, pod: Pod, container: Container, folders: Mapping[str, Path], env: Mapping[str, str]
    ) -> list[Mount]:
        """The container's own, then the usual ones where those leave room."""
        mounts = volumes.mounts_of(container, folders, env)
        last_words = self._place.last_words(pod, container.name)
        last_words.parent.mkdir(parents=True, exist_ok=True)
        last_words.write_bytes(b"")
        usual = [Mount(container.termination_message_path, last_words)]
        if has_identity(pod):
            usual.append(Mount(SERVICE_ACCOUNT, self._place.identity(pod)))
        taken = {mount.path for mount in mounts}
        return mounts + [mount for mount in usual if mount.path not in taken]

    def _root(self, pod: Pod, container: Container) -> Path:
        folder = self._place.root(pod, container.name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _fresh_log(self, wanted: Run) -> Path:
        """The log of this run; those before the previous one are deleted."""
        pod, name = wanted.pod, wanted.container.name
        path = self._place.log(pod, name, wanted.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{wanted.number - 2}.log*"):
            old.unlink()
        return path


def has_identity(pod: Pod) -> bool:
    return pod.spec.automount_service_account_token is not False


def memory_limit(limits: Mapping[str, str | int | float]) -> int:
    """The memory limit in bytes; 0 if unlimited."""
    return int(parse(limits.get("memory", 0)) or Fraction(0))
