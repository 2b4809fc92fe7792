"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager, and optional programs.

    with ControlPlane(folder) as plane:
        client = Client(plane.config())

It listens on random ports, so several may run at once, and keeps everything in its folder: opened again
there, it has the stored objects. RBAC is on, service accounts work, every write is in the audit log. etcd
accepts only clients with a certificate of the folder's `etcd-ca`, such as the API server.
"""

from __future__ import annotations

import http.client
import ipaddress
import secrets
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from elasticjob.cli.laptop.ports import free_port
from lab.clusters import binaries
from lab.clusters.plane import audit
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.pki import Pair, Pki, write_private
from lab.processes import Process, environment

if TYPE_CHECKING:
    from elasticjob.kube.client.credentials import Config

HOST = "127.0.0.1"
ADMIN = "admin"
MASTERS = ("system:masters",)
ISSUER = "https://kubernetes.default.svc.cluster.local"
SERVICES = "10.96.0.0/16"
KWOK_STAGES = Path(__file__).with_name("kwok.yaml")

ETCD_CA = "etcd-ca"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
MARK = "audit-mark/"
DEFAULT_NAMESPACE = "/api/v1/namespaces/default"


class ControlPlane:
    """Runs while the `with` lasts; `start()` and `stop()` do the same separately.

    `scheduler` and `kwok` start those too; kwok plays nodes with the annotation `kwok.x-k8s.io/node=fake`.
    `…_flags` are added to the programs' own and win over them. `audit_all` logs reads as well as writes.
    `address` is where the API server listens, `services` the range of clusterIPs. With `outlive` the programs
    run on when this process ends.
    Raises `binaries.Missing` and `processes.ProgramFailed`, whose messages say what to do.
    """

    def __init__(
        self,
        folder: Path,
        *,
        scheduler: bool = False,
        kwok: bool = False,
        apiserver_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
        kwok_flags: Sequence[str] = (),
        address: str = HOST,
        services: str = SERVICES,
        audit_all: bool = False,
        outlive: bool = False,
    ) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.pki = Pki(self.folder / "pki")
        self._sets = ("control-plane", *(["kwok"] if kwok else []))
        self._ports = _ports(self.folder / "ports", 5)
        self._address = address
        self._services = services
        self._policy = audit.ALL if audit_all else audit.WRITES
        commands: dict[str, Callable[[], list[str]]] = {
            "etcd": self._etcd,
            APISERVER: lambda: [*self._apiserver(), *apiserver_flags],
            CONTROLLER_MANAGER: lambda: [*self._controller_manager(), *controller_manager_flags],
        }
        if scheduler:
            commands[SCHEDULER] = lambda: [*self._scheduler(), *scheduler_flags]
        if kwok:
            commands["kwok"] = lambda: [*self._kwok(), *kwok_flags]
        place, environ = self.folder / "programs", environment(self.folder)
        self.programs = {
            name: Process(name, command, place, environ, ready=partial(self._is_ready, name), outlive=outlive)
            for name, command in commands.items()
        }
        """By name, in the order of their start."""

    @cached_property
    def _binaries(self) -> dict[str, Path]:
        """Located at the start: running programs can be stopped without them."""
        return binaries.require(*self._sets)

    # What it offers

    @property
    def url(self) -> str:
        return f"https://{self._address}:{self._ports[0]}"

    @property
    def etcd_ports(self) -> tuple[int, int]:
        """etcd's ports on loopback: for clients, and for peers, which it never has."""
        return self._ports[1], self._ports[2]

    @property
    def ca_pem(self) -> str:
        """The CA certificate for clients."""
        return self.pki.ca_pem

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.pki.kubeconfig(self.folder / "admin.kubeconfig", self.url, ADMIN, MASTERS)

    def kubeconfig_of(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate of that user; RBAC applies."""
        name = "-".join((user, *groups)).replace(":", "_").replace("/", "_")
        return self.pki.kubeconfig(self.folder / f"{name}.kubeconfig", self.url, user, groups)

    def config(self, user: str = ADMIN, groups: Sequence[str] = MASTERS) -> Config:
        """For a Client of the framework, with a client certificate of that user."""
        from elasticjob.kube.client.credentials import Config

        return Config(self.url, self.tls(user, groups))

    def tls(self, user: str = ADMIN, groups: Sequence[str] = MASTERS) -> ssl.SSLContext:
        """The same for anything else that speaks HTTPS."""
        context = ssl.create_default_context(cadata=self.ca_pem)
        pair = self.pki.client(user, groups)
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def audit_end(self) -> int:
        """The present end of the audit log, for `audit(since=…)`."""
        return self._audit_log.stat().st_size if self._audit_log.exists() else 0

    def audit(self, since: int = 0) -> list[Audited]:
        """All answered requests so far, in the order of the responses; reads only with `audit_all`.

        A request is logged after its response, so a marker request is sent and awaited in the log.
        """
        mark = f"{MARK}{secrets.token_hex(8)}"
        self._post_mark(mark)
        until = time.monotonic() + 60
        while mark not in (text := self._logged(since)):
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{self._audit_log} does not show a request made 60 s ago; is the disk full?"
                )
            time.sleep(0.005)
        whole = text[: text.rfind("\n")].splitlines()
        return [found for found in audit.read(whole) if not found.agent.startswith(MARK)]

    def kill(self, name: str) -> None:
        """SIGKILL a program; `start(name)` brings it back."""
        self.programs[name].kill()

    # Start and end

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, name: str = "") -> None:
        """Start all programs, or the named one; returns when they are ready."""
        for each in (name,) if name else self.programs:
            self.programs[each].start()

    def stop(self, name: str = "") -> None:
        """Stop all programs in reverse order, or the named one; stored objects are kept."""
        for each in (name,) if name else reversed(self.programs):
            self.programs[each].stop()

    def _is_ready(self, name: str) -> bool:
        match name:
            case "etcd":
                return _answers(self._etcd_connection(), "/readyz")
            case "kube-apiserver":  # which makes its first namespaces while it says that it is ready
                return all(_answers(self._api_connection(), path) for path in ("/readyz", DEFAULT_NAMESPACE))
            case "kube-controller-manager":
                return _answers(_unverified(self._ports[3]), "/healthz")
            case "kube-scheduler":
                return _answers(_unverified(self._ports[4]), "/healthz")
            case _:
                return True

    # The programs

    def _etcd(self) -> list[str]:
        clients, peers = (f"https://{HOST}:{port}" for port in self._ports[1:3])
        serving, authority = self._etcd_server, self.pki.authority(ETCD_CA).certificate
        return _command(
            self._binaries["etcd"],
            name="plane",
            data_dir=self.folder / "etcd",
            listen_client_urls=clients,
            advertise_client_urls=clients,
            listen_peer_urls=peers,
            initial_advertise_peer_urls=peers,
            initial_cluster=f"plane={peers}",
            cert_file=serving.certificate,
            key_file=serving.key,
            client_cert_auth="true",
            trusted_ca_file=authority,
            peer_cert_file=serving.certificate,
            peer_key_file=serving.key,
            peer_client_cert_auth="true",
            peer_trusted_ca_file=authority,
            unsafe_no_fsync="true",  # data need not survive a power cut
            log_level="warn",
        )

    def _apiserver(self) -> list[str]:
        names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
        inside = str(ipaddress.ip_network(self._services)[1])
        serving = self.pki.server("apiserver", [self._address, inside, *names], "kube-apiserver")
        kubelets = self.pki.client("kube-apiserver-kubelet-client", MASTERS)
        signing = self.pki.signing_key()
        policy = write_private(self.folder / "audit-policy.yaml", self._policy.encode())
        stored = self._etcd_client
        return _command(
            self._binaries[APISERVER],
            etcd_servers=f"https://{HOST}:{self._ports[1]}",
            etcd_cafile=self.pki.authority(ETCD_CA).certificate,
            etcd_certfile=stored.certificate,
            etcd_keyfile=stored.key,
            bind_address=self._address,
            advertise_address=self._address,
            secure_port=self._ports[0],
            tls_cert_file=serving.certificate,
            tls_private_key_file=serving.key,
            client_ca_file=self.pki.ca.certificate,
            kubelet_client_certificate=kubelets.certificate,
            kubelet_client_key=kubelets.key,
            kubelet_preferred_address_types="InternalIP",
            authorization_mode="Node,RBAC",
            enable_admission_plugins="NodeRestriction",
            service_cluster_ip_range=self._services,
            service_account_issuer=ISSUER,
            service_account_key_file=signing,
            service_account_signing_key_file=signing,
            endpoint_reconciler_type="none",  # pods never use the loopback address
            audit_policy_file=policy,
            audit_log_path=self._audit_log,
            audit_log_maxsize=1_000_000,  # in MiB: by default it begins anew after 100
            allow_privileged="true",
            profiling="false",
        )

    def _controller_manager(self) -> list[str]:
        return _command(
            self._binaries[CONTROLLER_MANAGER],
            kubeconfig=self.kubeconfig_of("system:kube-controller-manager"),
            bind_address=HOST,
            secure_port=self._ports[3],
            service_account_private_key_file=self.pki.signing_key(),
            root_ca_file=self.pki.ca.certificate,
            cluster_signing_cert_file=self.pki.ca.certificate,
            cluster_signing_key_file=self.pki.ca.key,
            use_service_account_credentials="true",
            kube_api_qps=300,  # by default the service account of a new namespace is seconds late
            kube_api_burst=600,
            leader_elect="false",
            profiling="false",
        )

    def _scheduler(self) -> list[str]:
        return _command(
            self._binaries[SCHEDULER],
            kubeconfig=self.kubeconfig_of("system:kube-scheduler"),
            bind_address=HOST,
            secure_port=self._ports[4],
            kube_api_qps=300,
            kube_api_burst=600,
            leader_elect="false",
        )

    def _kwok(self) -> list[str]:
        return _command(
            self._binaries["kwok"],
            kubeconfig=self.kubeconfig,
            config=KWOK_STAGES,
            manage_nodes_with_annotation_selector="kwok.x-k8s.io/node=fake",
            node_lease_duration_seconds=40,
            cidr="10.64.0.0/14",
        )

    @property
    def _etcd_server(self) -> Pair:
        return self.pki.server("etcd", [HOST, "localhost"], authority=ETCD_CA)

    @property
    def _etcd_client(self) -> Pair:
        return self.pki.client("kube-apiserver", authority=ETCD_CA)

    def _etcd_connection(self) -> http.client.HTTPSConnection:
        trusted = ssl.create_default_context(cafile=self.pki.authority(ETCD_CA).certificate)
        trusted.load_cert_chain(self._etcd_client.certificate, self._etcd_client.key)
        return http.client.HTTPSConnection(HOST, self._ports[1], timeout=5, context=trusted)

    def _api_connection(self, timeout: float = 5) -> http.client.HTTPSConnection:
        """The administrator's."""
        return http.client.HTTPSConnection(self._address, self._ports[0], timeout=timeout, context=self.tls())

    @property
    def _audit_log(self) -> Path:
        return self.folder / "audit.log"

    def _logged(self, since: int) -> str:
        with self._audit_log.open("rb") as file:
            file.seek(since)
            return file.read().decode(errors="replace")  # a line may be half written

    def _post_mark(self, mark: str) -> None:
        """Send a write without effect, recognised by its user agent."""
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        body = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
        headers = {"Content-Type": "application/json", "User-Agent": mark}
        with closing(self._api_connection(60)) as api:
            api.request("POST", path, body, headers)
            api.getresponse().read()


def _command(binary: Path, **flags: object) -> list[str]:
    return [str(binary), *(f"--{name.replace('_', '-')}={value}" for name, value in flags.items())]


def _ports(file: Path, count: int) -> list[int]:
    """Free ports, the same ones as last time if this folder was used before."""
    if file.exists():
        return [int(word) for word in file.read_text().split()]
    found = [free_port() for _ in range(count)]
    file.write_text(" ".join(map(str, found)))
    return found


def _unverified(port: int) -> http.client.HTTPSConnection:
    """A TLS context without verification, for programs with self-signed certificates."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(HOST, port, timeout=5, context=context)


def _answers(connection: http.client.HTTPConnection, path: str) -> bool:
    with closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
