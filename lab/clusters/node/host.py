"""Changes of a node to its machine (kernel settings, addresses, cgroups), and their reversal.

The previous values are saved first, so `restore` works from another process, and after a crash.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from lab.clusters.node.place import Place

WANTED: Final[Mapping[str, str]] = {
    "net.ipv4.ip_forward": "1",
    "fs.inotify.max_user_instances": "8192",
    "fs.inotify.max_user_watches": "524288",
}
TOUCHED: Final = (
    *WANTED,
    "net.ipv4.conf.all.route_localnet",
    "vm.overcommit_memory",
    "vm.panic_on_oom",
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.keys.root_maxkeys",
    "kernel.keys.root_maxbytes",
)
"""Ours, and those that kubelet and kube-proxy set."""
TABLES: Final = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))
CONTROLLERS: Final = frozenset({"cpu", "cpuset", "hugetlb", "memory", "pids"})
"""The cgroup controllers that the kubelet requires, as far as the machine has them."""
CNI_RESULTS: Final = Path("/var/lib/cni/results")
"""A folder of the CNI library, which nothing can move."""
LOG_LINKS: Final = Path("/var/log/containers")
"""A folder of the kubelet, which nothing can move."""
KILLS, BETWEEN_KILLS = 600, 0.1
"""How often processes are killed until none is left, and seconds between: a busy machine takes its time."""


class Unfit(RuntimeError):
    """The machine does not let a node change what it must; the message says what, and what to do."""


class Host:
    """The machine, as the node at `place` changes it."""

    def __init__(self, place: Place, *, tables: tuple[tuple[str, str], ...] = TABLES) -> None:
        self._place = place
        self._tables = tables
        self._saved = place.folder / "kernel-settings.json"

    def prepare(self) -> None:
        """Set what a node needs; what it was before is kept until `restore`. Raises Unfit."""
        if not self._saved.exists():
            self._saved.write_text(json.dumps({name: _setting(name).read_text().strip() for name in TOUCHED}))
        for name, value in WANTED.items():
            _raise(name, int(value))
        for address in self._missing():
            _ip("address", "add", f"{address}/32", "dev", "lo")
        for hierarchy in hierarchies():
            _make_cgroup(hierarchy, hierarchy / self._place.cgroup)

    def restore(self) -> None:
        """Undo everything; what cannot be undone is in `leftovers`."""
        self.kill_containers()
        unmount_below(self._place.folder)
        for family, table in self._tables:
            _quietly("nft", "delete", "table", family, table)
        _quietly("ip", "link", "delete", self._place.bridge)
        for address in self._own_addresses():
            _ip("address", "del", f"{address}/32", "dev", "lo")
        for file in self._stray_files():
            file.unlink(missing_ok=True)
        self._remove_cgroups()
        self._restore_settings()

    def kill_containers(self) -> None:
        """SIGKILL everything in our own cgroup: whatever is there is the node's."""
        for _ in range(KILLS):
            pids = {pid for folder in self._cgroups() for pid in _pids_below(folder)}
            if not pids:
                return
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(BETWEEN_KILLS)

    def _remove_cgroups(self) -> None:
        """Remove our own: one is busy until a process that was killed in it is gone altogether."""
        for _ in range(KILLS):
            for folder in self._cgroups():
                _remove_tree(folder)
            if not self._cgroups():
                return
            time.sleep(BETWEEN_KILLS)

    def leftovers(self) -> list[str]:
        """Return what of the node is still on the machine, in words."""
        found = [f"mount {point}" for point in mounts_below(self._place.folder)]
        found += [f"address {address} on lo" for address in self._own_addresses()]
        found += [f"cgroup {folder}" for folder in self._cgroups()]
        if Path("/sys/class/net", self._place.bridge).exists():
            found.append(f"network link {self._place.bridge}")
        tables = _said("nft", "list", "tables").splitlines() if self._tables else []
        found += [f"nftables {line}" for line in tables if line.endswith(" kube-proxy")]
        found += [f"file {file}" for file in self._stray_files()]
        return found

    def _missing(self) -> list[str]:
        own = self._own_addresses()
        wanted = dict.fromkeys((self._place.address, self._place.dns))
        return [address for address in wanted if address not in own]

    def _own_addresses(self) -> list[str]:
        on_lo = {
            entry["local"]
            for link in json.loads(_said("ip", "-json", "address", "show", "lo"))
            for entry in link["addr_info"]
        }
        wanted = dict.fromkeys((self._place.address, self._place.dns))
        return [address for address in wanted if address in on_lo]

    def _cgroups(self) -> list[Path]:
        return [folder for each in hierarchies() if (folder := each / self._place.cgroup).is_dir()]

    def _stray_files(self) -> list[Path]:
        inside = f"{self._place.folder}/"
        results = [file for file in CNI_RESULTS.glob(f"{self._place.bridge}-*") if inside in file.read_text()]
        links = [
            file
            for file in LOG_LINKS.glob("*")
            if file.is_symlink() and str(file.readlink()).startswith(inside)
        ]
        return [*results, *links]

    def _restore_settings(self) -> None:
        if self._saved.exists():
            for name, value in json.loads(self._saved.read_text()).items():
                if _setting(name).read_text().strip() != value:
                    _setting(name).write_text(value)
            self._saved.unlink()


def hierarchies() -> list[Path]:
    """Return where cgroups are mounted: one folder on v2, one for each controller on v1."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def mounts_below(folder: Path) -> list[Path]:
    """Return what is mounted below a folder, the deepest last."""
    points = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return sorted(Path(point) for point in points if point.startswith(f"{folder}/"))


def unmount_below(folder: Path) -> None:
    """Unmount everything below a folder; what is busy is detached."""
    for point in reversed(mounts_below(folder)):
        if not _quietly("umount", str(point)):
            _quietly("umount", "--lazy", str(point))


def _make_cgroup(hierarchy: Path, folder: Path) -> None:
    """Make a cgroup that may hold others: v2 passes controllers on, v1's cpuset is empty until it is told."""
    folder.mkdir(exist_ok=True)
    for parent in (hierarchy, folder):
        if (parent / "cgroup.controllers").exists():
            pass_on_controllers(parent)
    for name in ("cpuset.cpus", "cpuset.mems"):
        own = folder / name
        if (above := hierarchy / name).exists() and own.exists() and not own.read_text().strip():
            own.write_text(above.read_text())


def pass_on_controllers(cgroup: Path) -> None:
    """Let the children of a cgroup of v2 use what it has: nothing where that is on v1. Raises Unfit."""
    control = cgroup / "cgroup.subtree_control"
    here = set((cgroup / "cgroup.controllers").read_text().split())
    for name in sorted((here & CONTROLLERS) - set(control.read_text().split())):
        try:
            control.write_text(f"+{name}")
        except OSError as error:
            raise Unfit(
                f"{control} does not take +{name} ({error.strerror}): a cgroup with processes of its own, "
                f"as a container's root is, passes nothing on; move them first: mkdir {cgroup}/init; "
                f"for p in $(cat {cgroup}/cgroup.procs); do echo $p > {cgroup}/init/cgroup.procs; done"
            ) from None


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # what is busy is found by `leftovers`
            Path(path).rmdir()


def _pids_below(folder: Path) -> Iterator[int]:
    for path, _, _ in os.walk(folder):  # which passes over what went meanwhile: cgroups come and go
        with suppress(OSError):
            yield from map(int, Path(path, "cgroup.procs").read_text().split())


def _setting(name: str) -> Path:
    return Path("/proc/sys", *name.split("."))


def _raise(name: str, least: int) -> None:
    """Set a kernel setting that is lower than a node needs. Raises Unfit."""
    file = _setting(name)
    if int(file.read_text()) >= least:
        return
    try:
        file.write_text(str(least))
    except OSError as error:
        raise Unfit(
            f"{name} cannot be set to {least} ({error.strerror}): a node needs a machine of its own, "
            "or a container with all privileges"
        ) from None


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _quietly(*command: str) -> bool:
    """Run a command that may find nothing to do; return whether it succeeded."""
    return (
        bool(shutil.which(command[0]))
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )
