"""A whole Kubernetes node on this machine: a control plane, with containerd, kubelet, kube-proxy, CoreDNS.

    node = Node(Place(default_folder()))
    node.up()                    # ready in seconds; the programs run on when this process ends
    node.load(image, store)
    node.down()                  # nothing is left but what was stored: objects and images

One per machine: ports, bridge, addresses and cgroup are fixed. It works as root alone.
"""

from __future__ import annotations

import errno
import http.client
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.clusters import binaries
from lab.clusters.debian import PLUGINS, missing_packages
from lab.clusters.images import images
from lab.clusters.images.containers import Containerd
from lab.clusters.images.oci import Image, Store
from lab.clusters.node import nodeconfig
from lab.clusters.node.host import Host, mounts_below
from lab.clusters.node.nodeconfig import COREDNS
from lab.clusters.node.place import Place
from lab.clusters.node.second import Second
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.pki import write_private
from lab.processes import Command, Process, answers, environment, running

if TYPE_CHECKING:
    from elasticjob.kube.client.credentials import Config

CURRENT: Final = Path("/run/elasticjob-node")
"""Names the folder of this machine's node."""
MARK: Final = ".elasticjob-node"
BY_KUBELET: Final = ("kubelet", "kube-proxy", "coredns")
Say = Callable[[str], None]


class Refused(RuntimeError):
    """A node cannot be here; the message says why and what to do."""


class Node:
    """The node at `place`, with `kwok` beside machines that pretend.

    Its audit log has reads as well as writes, since its last start.
    """

    def __init__(self, place: Place, *, kwok: bool = False, say: Say = lambda line: None) -> None:
        if problem := refusal(place):
            raise Refused(problem)
        place.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.place = place
        self.containerd = Containerd(place.socket)
        self.host = Host(place)
        self.plane = ControlPlane(
            place.folder / "control-plane",
            scheduler=True,
            kwok=kwok,
            outlive=True,
            audit_all=True,
            address=place.address,
            services=place.services,
            apiserver_flags=(
                "--endpoint-reconciler-type=lease",
                f"--kubelet-certificate-authority={place.folder}/control-plane/pki/ca.crt",
            ),
            controller_manager_flags=(f"--flex-volume-plugin-dir={place.folder}/volume-plugins",),
        )
        commands: dict[str, tuple[Callable[[], Command], str | Callable[[], bool]]] = {
            "containerd": (
                lambda: ["containerd", "--config", place.folder / "containerd.toml"],
                self.containerd.answers,
            ),
            "kubelet": (self._kubelet, self._is_ready),
            "kube-proxy": (
                lambda: [self.binaries["kube-proxy"], f"--config={place.folder}/proxy.json"],
                "",
            ),
            "coredns": (
                lambda: [self.binaries["coredns"], "-conf", place.folder / "Corefile"],
                lambda: answers(f"http://{place.dns}:{nodeconfig.DNS_READY}/ready"),
            ),
        }
        programs, environ = place.folder / "programs", environment(place.folder)
        self.programs = {
            name: Process(name, command, programs, environ, ready=ready, outlive=True)
            for name, (command, ready) in commands.items()
        }
        self.second = Second(place, self.plane)
        self._began = time.monotonic()
        self._say = say

    @property
    def url(self) -> str:
        """Where its API server listens."""
        return self.plane.url

    @property
    def ca_pem(self) -> str:
        """The authority that clients are to trust."""
        return self.plane.ca_pem

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.plane.kubeconfig

    @property
    def volumes(self) -> Path:
        """A folder for the tests' PersistentVolumes."""
        return self.place.folder / "volumes"

    @property
    def kubectl(self) -> Path:
        """The node's own."""
        return self.binaries["kubectl"]

    def config(self) -> Config:
        """For a Client of the framework, as the administrator."""
        return self.plane.config()

    def audit(self) -> list[Audited]:
        """Every request that was answered so far."""
        return self.plane.audit()

    def is_up(self) -> bool:
        """Whether any of its programs runs."""
        return bool(self.status())

    @cached_property
    def binaries(self) -> dict[str, Path]:
        """Return where its programs are, kubectl among them. Raises binaries.Missing."""
        return binaries.require("node")

    # Up and down

    def up(self) -> None:
        """Start everything that does not run; returns when the node is Ready and names are resolved.

        Raises Refused, host.Unfit, binaries.Missing or processes.ProgramFailed: each says what to do.
        """
        self._began = time.monotonic()
        binaries.require("control-plane", "node")  # before anything is changed
        (self.place.folder / MARK).touch()
        self.volumes.mkdir(exist_ok=True)
        CURRENT.write_text(str(self.place.folder))
        self.host.prepare()
        self._configure()
        if not running(self.plane.programs.values()):
            (self.plane.folder / "audit.log").unlink(missing_ok=True)
        self.programs["containerd"].spawn()
        self.plane.start()
        self._tell("API server, controllers and scheduler are ready")
        self.programs["containerd"].wait_ready()
        store = Store(images.cache())
        self.load(images.pause(store), store)
        for name in ("kubelet", "kube-proxy"):
            self.programs[name].spawn()
        self._start_dns()
        kubelet = self.programs["kubelet"]
        kubelet.wait_ready()
        self._tell(f"node {self.place.node} is Ready")
        self.programs["coredns"].wait_ready()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        kubelet.wait_ready(lambda: self._get(account) is not None)
        self._tell("names are resolved: all is up")

    def load(self, image: Image, store: Store) -> None:
        """Load an image; skipped if the node has the same one."""
        began = time.monotonic()
        if self.containerd.load(image, store):
            self._tell(f"loaded {image.name} in {time.monotonic() - began:.1f} s")

    def load_archive(self, file: Path) -> None:
        """Have the images of an archive on the node."""
        self.containerd.load_archive(file)

    def down(self) -> list[str]:
        """End everything and undo all changes of the machine; return the leftovers, in words."""
        if not (self.place.folder / MARK).exists():
            return []
        left = self.remove()
        for name in BY_KUBELET:
            self.programs[name].stop()
        self.host.kill_containers()
        if self.programs["containerd"].identity:
            self.containerd.remove_tasks()
        self.plane.stop()
        self.programs["containerd"].stop()
        self.containerd.kill_shims()
        self.host.restore()
        shutil.rmtree(self.place.network / "addresses", ignore_errors=True)
        with suppress(FileNotFoundError):
            if CURRENT.read_text() == str(self.place.folder):
                CURRENT.unlink()
        still = running(self.programs.values())
        return [*left, *self.host.leftovers(), *(f"program {name}" for name in still)]

    def add(self, loaded: Sequence[Image], store: Store) -> str:
        """Have a second machine with some images, until `remove` or `down`; return its name."""
        began, name = time.monotonic(), self.second.place.node
        everything = (images.pause(store), *loaded)
        self.second.up(self.binaries["kubelet"], plugins(), everything, store)
        self.plane.programs["kube-apiserver"].wait_ready(lambda: self._is_ready(name))
        self._tell(f"node {name} is Ready, {time.monotonic() - began:.1f} s after it was asked for")
        return name

    def remove(self) -> list[str]:
        """End the second machine, if there is one; return the leftovers, in words."""
        if not self.second.is_there():
            return []
        left = self.second.down()
        if running(self.plane.programs.values()):
            self._ask("DELETE", f"/api/v1/nodes/{self.second.place.node}")
        return left

    def purge(self) -> list[str]:
        """`down`, and remove the folder. Raises Refused where something is still mounted below it."""
        left = self.down()
        if points := mounts_below(self.place.folder):  # what is mounted there would be emptied with it
            raise Refused(f"{points[0]} is still mounted: unmount it, and purge again")
        if (self.place.folder / MARK).exists():
            shutil.rmtree(self.place.folder)
        return left

    def status(self) -> Mapping[str, tuple[int, int]]:
        """Return what runs: name → pid and resident bytes."""
        programs = self.plane.programs | self.programs
        return {name: (programs[name].pid, programs[name].rss) for name in running(programs.values())}

    # The programs

    def _configure(self) -> None:
        place, pki = self.place, self.plane.pki
        serving = pki.server("kubelet", [place.address, place.node])
        place.make_folders()
        strings = nodeconfig.machine(place, plugins(), serving, pki.ca.certificate) | {
            place.folder / "proxy.json": nodeconfig.proxy(
                place, self.plane.kubeconfig_of("system:kube-proxy")
            ),
            place.folder / "Corefile": nodeconfig.corefile(place, self.plane.kubeconfig_of(COREDNS)),
        }
        for path, text in strings.items():
            write_private(path, text.encode())

    def _kubelet(self) -> list[str]:
        place = self.place
        user = self.plane.kubeconfig_of(f"system:node:{place.node}", ("system:nodes",))
        return nodeconfig.kubelet_command(place, self.binaries["kubelet"], user)

    def _start_dns(self) -> None:
        """Start CoreDNS once it may read: refused in its first second, it would wait for five more."""
        for manifest in nodeconfig.coredns_rights():
            kind = str(manifest["kind"]).lower() + "s"
            self._post(f"/apis/rbac.authorization.k8s.io/v1/{kind}", manifest)
        self.plane.programs["kube-apiserver"].wait_ready(self._dns_is_allowed)
        self.programs["coredns"].spawn()

    def _dns_is_allowed(self) -> bool:
        asked = {"group": "discovery.k8s.io", "resource": "endpointslices", "verb": "list"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": COREDNS, "resourceAttributes": asked},
        }
        answer = self._post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer and answer["status"]["allowed"])

    def _is_ready(self, name: str = "") -> bool:
        node = self._get(f"/api/v1/nodes/{name or self.place.node}") or {}
        conditions = node.get("status", {}).get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _tell(self, what: str) -> None:
        self._say(f"{time.monotonic() - self._began:5.1f} s  {what}")

    # The API server, as its administrator

    def _get(self, path: str) -> dict[str, Any] | None:
        return self._ask("GET", path)

    def _post(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any] | None:
        return self._ask("POST", path, json.dumps(manifest))

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any] | None:
        """Return the object in the response; None if it is missing (GET), or exists already (POST)."""
        host, _, port = self.plane.url.removeprefix("https://").partition(":")
        api = http.client.HTTPSConnection(host, int(port), timeout=60, context=self.plane.tls())
        with closing(api):
            api.request(method, path, body, {"Content-Type": "application/json"})
            answer = api.getresponse()
            text = answer.read()
        if answer.status in (404, 409):
            return None
        if answer.status >= 300:
            raise Refused(
                f"{method} {path} was answered with {answer.status}: {text.decode(errors='replace')}"
            )
        found: dict[str, Any] = json.loads(text)
        return found


def refusal(place: Place) -> str:
    """Return why the node cannot run at `place`, and what to do; "" if it can, or does."""
    if os.geteuid() != 0:
        return "a node needs root: it makes network links, mounts and cgroups; run this with sudo"
    if problem := place.problem():
        return problem
    if absent := missing_packages():
        packages = " ".join(dict.fromkeys(absent.values()))
        return f"not installed: {', '.join(absent)}; on Debian: apt-get install {packages}"
    with suppress(FileNotFoundError):
        if (other := CURRENT.read_text()) != str(place.folder):
            return f"another node is up, in {other}: one per machine; hack/node --folder {other} down ends it"
    if not CURRENT.exists() and is_taken(place.address, nodeconfig.KUBELET_PORT):
        taken = f"{place.address}:{nodeconfig.KUBELET_PORT}"
        return f"another node is up on this machine: something listens on {taken}"
    return ""


def plugins() -> Path:
    """Return the folder of network plugins. Raises Refused."""
    if found := next((folder for folder in PLUGINS if (folder / "bridge").exists()), None):
        return found
    raise Refused(
        f"no network plugins in {', '.join(map(str, PLUGINS))}: install containernetworking-plugins"
    )


def is_taken(host: str, port: int) -> bool:
    """Whether the address is in use on this machine; an address that the machine lacks is free."""
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
