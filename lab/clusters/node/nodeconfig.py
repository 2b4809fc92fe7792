"""The configuration of a node's programs, as strings. Pure.

Each unusual value is needed in a container on cgroup v1 without all capabilities; elsewhere it is harmless.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab.clusters.node.place import Place
from lab.clusters.plane.pki import Pair

PAUSE: Final = "docker.io/elasticjob/pause:1"
DOMAIN: Final = "cluster.local"
KUBELET_PORT, KUBELET_HEALTH = 10250, 10248
PROXY_HEALTH, PROXY_METRICS = 10256, 10249
DNS_HEALTH, DNS_READY = 8080, 8181
COREDNS: Final = "system:coredns"
UNUSED_SNAPSHOTTERS: Final = ("aufs", "btrfs", "devmapper", "zfs")


def containerd(place: Place, plugins: Path) -> str:
    """Return containerd's config.toml. Version 2 of the format is read by 1.6 to 2.x."""
    unused = [f"io.containerd.snapshotter.v1.{name}" for name in UNUSED_SNAPSHOTTERS]
    cri, folder = '[plugins."io.containerd.grpc.v1.cri"', place.containers
    return f"""version = 2
root = "{folder}/root"
state = "{folder}/run"
disabled_plugins = {json.dumps(unused)}
[grpc]
  address = "{place.socket}"
[ttrpc]
  address = "{place.socket}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
{cri}]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  # without CAP_SYS_RESOURCE runc cannot lower oom_score_adj to the sandbox's -998, and no sandbox starts
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
{cri}.cni]
  bin_dir = "{plugins}"
  conf_dir = "{place.network}/net.d"
{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{folder}/runc"
"""


def machine(place: Place, plugins: Path, serving: Pair, clients: Path) -> dict[Path, str]:
    """Return the files of containerd, its network and the kubelet, by their paths."""
    return {
        place.folder / "resolv.conf": "",  # no resolver outside: pods with dnsPolicy Default have none
        place.folder / "containerd.toml": containerd(place, plugins),
        place.network / "net.d" / "10-elasticjob.conflist": network(place),
        place.kubelet_configuration: kubelet(place, serving, clients),
    }


def kubelet_command(place: Place, program: Path, kubeconfig: Path) -> list[str]:
    """Return the command line of the kubelet."""
    return [
        str(program),
        f"--config={place.kubelet_configuration}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={place.kubelet}",
        f"--cert-dir={place.kubelet}/pki",
        f"--hostname-override={place.node}",
        f"--node-ip={place.address}",
        f"--containerd={place.socket}",  # else pods have no statistics of memory and processor time
    ]


def network(place: Place) -> str:
    """Return the network of pods: a bridge without masquerading, for nothing outside can be reached."""
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": place.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{place.network}/addresses",
    }
    bridge = {
        "type": "bridge",
        "bridge": place.bridge,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return _json({"cniVersion": "1.0.0", "name": place.bridge, "plugins": [bridge]})


def kubelet(place: Place, serving: Pair, clients: Path) -> str:
    """Return the KubeletConfiguration; `clients` is the authority of its clients."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,  # by default it does not start on cgroup v1
            "cgroupDriver": "cgroupfs",  # containerd 1.6 cannot be asked
            "cgroupRoot": f"/{place.cgroup}",
            "containerRuntimeEndpoint": f"unix://{place.socket}",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(clients)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(serving.certificate),
            "tlsPrivateKeyFile": str(serving.key),
            "address": place.address,
            "port": KUBELET_PORT,
            "healthzPort": KUBELET_HEALTH,
            "healthzBindAddress": place.address,
            "readOnlyPort": 0,
            "clusterDNS": [place.dns],
            "clusterDomain": DOMAIN,
            "resolvConf": f"{place.folder}/resolv.conf",
            "podLogsDir": f"{place.folder}/pod-logs",
            "volumePluginDir": f"{place.folder}/volume-plugins",
            "makeIPTablesUtilChains": False,
            "serializeImagePulls": False,
            "imageGCHighThresholdPercent": 100,  # an image that was collected could not be pulled again
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            "eventRecordQPS": 0,
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
            "syncFrequency": "10s",
        }
    )


def proxy(place: Place, kubeconfig: Path) -> str:
    """Return the KubeProxyConfiguration: nftables, and nothing of the machine's own conntrack settings."""
    return _json(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "bindAddress": place.address,
            "hostnameOverride": place.node,
            "clusterCIDR": place.pods,
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "healthzBindAddress": f"127.0.0.1:{PROXY_HEALTH}",
            "metricsBindAddress": f"127.0.0.1:{PROXY_METRICS}",
            "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
        }
    )


def corefile(place: Place, kubeconfig: Path) -> str:
    """Return CoreDNS's configuration: the names of this cluster, and no others."""
    return f"""\
.:53 {{
  bind {place.dns}
  errors
  health {place.dns}:{DNS_HEALTH}
  ready {place.dns}:{DNS_READY}
  kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 2
  }}
}}
"""


def coredns_rights() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the ClusterRole and ClusterRoleBinding of CoreDNS."""
    api = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{api}/v1", "metadata": {"name": COREDNS}}
    read = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces", "endpoints"], "verbs": read},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
    ]
    role = {**head, "kind": "ClusterRole", "rules": rules}
    binding = {
        **head,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": COREDNS},
        "subjects": [{"apiGroup": api, "kind": "User", "name": COREDNS}],
    }
    return role, binding


def _json(value: object) -> str:
    """Return YAML, of which JSON is a part."""
    return json.dumps(value, indent=2) + "\n"
