"""Another project's controller beside a `ControlPlane`: its kinds, its program, its webhooks on loopback.

    with Guest(plane, folder, Recipe("jobset", …)) as jobset: ...

Its manifests name a Service for the webhooks; here they are registered by URL, so that the API server asks
the program itself, and refuses what it refuses, or everything while the program is down.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from lab.clusters.plane.pki import Pair, write_private
from lab.processes import Programs

if TYPE_CHECKING:
    from elasticjob.kube.objects.kinds import Manifest
    from lab.clusters.plane.controlplane import ControlPlane

HOST: Final = "127.0.0.1"
DEFINITION: Final = "CustomResourceDefinition"
MANAGER: Final = "hack-cluster"


@dataclass(frozen=True)
class Recipe:
    """A controller: its name, manifests of CRDs and of webhooks, and the command that runs it.

    `probes` is its port on loopback for `/readyz`, `webhook_port` that of its webhooks; `environ` is added to
    its environment.
    """

    name: str
    definitions: Sequence[Manifest]
    webhooks: Sequence[Manifest]
    command: Sequence[str]
    probes: int
    webhook_port: int
    environ: Mapping[str, str] = field(default_factory=dict)


class Guest:
    """Runs while the `with` lasts; `kill()` and `start()` play its crash, `stop()` its orderly end.

    Several run beside one plane, each with a name of its own. Raises `processes.ProgramFailed` where it does
    not become ready.
    """

    def __init__(self, plane: ControlPlane, folder: Path, recipe: Recipe) -> None:
        self.recipe = recipe
        self._plane = plane
        self._folder = folder.absolute()
        self.programs = Programs(self._folder / "programs")

    def __enter__(self) -> Self:
        try:
            self.install()
            self.start()
            self.register()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self.programs.pid(self.recipe.name)

    @property
    def log(self) -> Path:
        return self.programs.log(self.recipe.name)

    def install(self) -> None:
        """Apply its definitions and wait until their kinds are served."""
        from elasticjob.kube.client.client import Client
        from elasticjob.kube.crd.installing import install

        async def applied() -> None:
            async with Client(self._plane.config()) as client:
                await install(client, self.recipe.definitions, MANAGER)

        aside(applied())

    def register(self) -> None:
        """Have the API server ask its webhooks; the program has to run by now."""
        from elasticjob.kube.client.client import Client
        from elasticjob.kube.objects.views import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

        kinds = {kind.name: kind.untyped() for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
        made = by_url(self.recipe.webhooks, self.recipe.name, self.recipe.webhook_port, self._plane.ca_pem)

        async def applied() -> None:
            async with Client(self._plane.config()) as client:
                for manifest in made:
                    await client.apply(kinds[manifest["kind"]], manifest, manager=MANAGER)

        aside(applied())

    def unregister(self) -> None:
        """Have the API server ask its webhooks no more: a plane that goes on would refuse its kinds."""
        from elasticjob.kube.client.client import Client
        from elasticjob.kube.objects.views import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

        async def deleted() -> None:
            async with Client(self._plane.config()) as client:
                for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
                    await client.delete(kind, self.recipe.name)

        aside(deleted())

    def start(self) -> None:
        """Start the program, unless it runs; returns when it is ready."""
        own = {"PATH": os.environ.get("PATH", ""), "HOME": str(self._folder)}
        environ = {**own, **self.recipe.environ}
        self.programs.start(self.recipe.name, self.recipe.command, environ)
        self.programs.wait_ready(self.recipe.name, self._is_ready)

    def kill(self) -> None:
        """SIGKILL."""
        self.programs.kill(self.recipe.name)

    def stop(self) -> None:
        """SIGTERM; kinds, objects and webhooks stay, as after any controller's end."""
        self.programs.stop(self.recipe.name)

    def _is_ready(self) -> bool:
        with closing(http.client.HTTPConnection(HOST, self.recipe.probes, timeout=5)) as asked:
            try:
                asked.request("GET", "/readyz")
                return asked.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False


def manifests(folder: Path) -> list[Manifest]:
    """All documents of a folder's YAML files."""
    texts = (path.read_text() for path in sorted(folder.glob("*.yaml")))
    return [found for text in texts for found in yaml.load_all(text, _Loader) if found]


def definitions(of: Iterable[Manifest]) -> list[Manifest]:
    """The CRDs among manifests."""
    return [found for found in of if found["kind"] == DEFINITION]


def webhooks(of: Iterable[Manifest], groups: Iterable[str]) -> list[Manifest]:
    """The webhook configurations among manifests, with those webhooks alone that are for these API groups."""
    wanted = {*groups}
    return [
        found
        | {
            "webhooks": [
                hook for hook in found["webhooks"] if wanted & {*hook["rules"][0].get("apiGroups", ())}
            ]
        }
        for found in of
        if found["kind"].endswith("WebhookConfiguration")
    ]


def by_url(configurations: Iterable[Manifest], owner: str, port: int, ca_pem: str) -> list[Manifest]:
    """The configurations named after the owner, their services become a port on loopback; pure."""
    bundle = base64.b64encode(ca_pem.encode()).decode()

    def asked(hook: Mapping[str, Any]) -> Manifest:
        path = hook["clientConfig"]["service"]["path"]
        return {**hook, "clientConfig": {"url": f"https://{HOST}:{port}{path}", "caBundle": bundle}}

    return [
        {**one, "metadata": {"name": owner}, "webhooks": [asked(hook) for hook in one["webhooks"]]}
        for one in configurations
    ]


def as_secret(pair: Pair, folder: Path) -> Path:
    """A folder with the pair under the names that it has in a Secret that is mounted."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(folder / "tls.crt", pair.certificate.read_bytes())
    write_private(folder / "tls.key", pair.key.read_bytes())
    return folder


def aside(work: Coroutine[Any, Any, None]) -> None:
    """Run it in a loop of its own: the loop of this thread, if there is one, is the caller's."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Kueue's definitions are 40,000 lines, seconds for the loader that is written in Python."""
