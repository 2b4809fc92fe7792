"""Another project's controller beside a `ControlPlane`: its kinds, its program, its webhooks on loopback.

    with jobset(plane, folder) as guest: ...

Its manifests name a Service for the webhooks; here they are registered by URL, so that the API server asks
the program itself, and refuses what it refuses, or everything while the program is down.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from elasticjob.cli.laptop.ports import free_port
from lab.clusters.plane.pki import Pair, write_private
from lab.processes import Process, environment

if TYPE_CHECKING:
    from elasticjob.kube.objects.kinds import Manifest
    from lab.clusters.plane.controlplane import ControlPlane

HOST: Final = "127.0.0.1"
DEFINITION: Final = "CustomResourceDefinition"
MANAGER: Final = "hack-cluster"


class Guest(Process):
    """Runs while the `with` lasts; `kill()` and `start()` play its crash, `stop()` its orderly end.

    `released` is the folder of its manifests, `groups` are the API groups whose webhooks count. `settings`
    are those of its configuration beside its addresses. Where no setting names the folder of its
    certificates, it looks for them in `certificates`. Several run beside one plane, each with its own name.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        name: str,
        binary: Path,
        released: Path,
        groups: Iterable[str],
        settings: Mapping[str, Any],
        *,
        certificates: str = "",
        **environ: str,
    ) -> None:
        folder, probes, self._port = folder.absolute(), free_port(), free_port()
        secret = as_secret(plane.pki.server(name, [HOST, "localhost"]), folder / (certificates or "certs"))
        webhook = {"host": HOST, "port": self._port} | ({} if certificates else {"certDir": str(secret)})
        configuration = {
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"{HOST}:{probes}"},
            "metrics": {"bindAddress": "0"},
            "webhook": webhook,
            "leaderElection": {"leaderElect": False},
            **settings,
        }
        file = write_private(folder / "config.json", json.dumps(configuration).encode())
        user = plane.kubeconfig_of(name, ("system:masters",))
        command = [str(binary), f"--config={file}", f"--kubeconfig={user}"]
        url = f"http://{HOST}:{probes}"
        super().__init__(name, command, folder, {**environment(folder), **environ}, url, "/readyz")
        known = manifests(released)
        self.definitions, self._webhooks = definitions(known), webhooks(known, groups)
        self._plane = plane

    def __enter__(self) -> Self:
        try:
            self.install()
            self.start()
            self.register()
        except BaseException:
            self.stop()
            raise
        return self

    def install(self) -> None:
        """Apply its definitions and wait until their kinds are served."""
        from elasticjob.kube.client.client import Client
        from elasticjob.kube.crd.installing import install

        async def applied() -> None:
            async with Client(self._plane.config()) as client:
                await install(client, self.definitions, MANAGER)

        aside(applied())

    def register(self) -> None:
        """Have the API server ask its webhooks; the program has to run by now."""
        from elasticjob.kube.client.client import Client
        from elasticjob.kube.objects.views import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

        kinds = {kind.name: kind.untyped() for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
        made = by_url(self._webhooks, self.name, self._port, self._plane.ca_pem)

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
                    await client.delete(kind, self.name)

        aside(deleted())


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
