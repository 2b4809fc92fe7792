"""A client of containerd on its own socket: list and load images, remove tasks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from lab.clusters.images.oci import Image, Store, write_archive

GB: Final = 1_000_000_000
NAMESPACE: Final = "k8s.io"
"""The containerd namespace of the kubelet."""


SPARE: Final = 0.02
"""The part of a disk that stays free: below 1 % kubelet evicts pods and removes images (nodeconfig)."""


class ImportFailed(RuntimeError):
    """containerd failed to import an image, or the disk has no room for it; the message says which."""


class Containerd:
    """The containerd that listens on `socket`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def answers(self) -> bool:
        """Whether it is ready."""
        return subprocess.run(self._command("version"), capture_output=True, check=False).returncode == 0

    def images(self) -> dict[str, str]:
        """Return its images: name → digest of the manifest."""
        lines = self._said("images", "ls").splitlines()[1:]
        return {words[0]: words[2] for line in lines if len(words := line.split()) > 2}

    def load(self, image: Image, store: Store) -> bool:
        """Load an image, sending only missing blobs; False if it is there already. Raises ImportFailed."""
        if self.images().get(image.name) == image.manifest.digest:
            return False
        present = set(self._said("content", "ls", "-q").split())
        missing = sum(blob.size for blob in image.blobs if blob.digest not in present)
        if problem := no_room(image.name, 2 * missing, self._socket.parent):  # as it is sent, and unpacked
            raise ImportFailed(problem)
        command = self._command("images", "import", "-")
        with tempfile.TemporaryFile() as output:
            importing = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output)
            with importing, suppress(BrokenPipeError):  # its exit code and output have the reason
                write_archive(store, image, cast(BinaryIO, importing.stdin), without=present)
            output.seek(0)
            if importing.returncode:
                raise ImportFailed(f"image {image.name} was not taken: {output.read().decode().strip()}")
        return True

    def load_archive(self, file: Path) -> None:
        """Load the images of an archive, OCI's or Docker's."""
        done = subprocess.run(
            self._command("images", "import", str(file)), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ImportFailed(f"{file} was not taken: {(done.stderr or done.stdout).strip()}")

    def remove_tasks(self) -> None:
        """Remove all containers; their processes must be dead already."""
        for name in self._said("tasks", "ls", "-q").split():
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    self._command("tasks", "rm", "-f", name), capture_output=True, timeout=10, check=False
                )

    def kill_shims(self) -> None:
        """SIGKILL the shims, which outlive containerd; their command lines have its socket."""
        ours = f"-address\0{self._socket}\0".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (process / "cmdline").read_bytes()
                if b"containerd-shim" in command.partition(b"\0")[0] and ours in command:
                    os.kill(int(process.name), signal.SIGKILL)

    def _command(self, *words: str) -> list[str]:
        return ["ctr", "--address", str(self._socket), "--namespace", NAMESPACE, *words]

    def _said(self, *words: str) -> str:
        return subprocess.run(self._command(*words), capture_output=True, text=True, check=True).stdout


def no_room(name: str, size: int, folder: Path) -> str | None:
    """Return why an image of `size` bytes has no place in a folder, and what to do; None if it has one."""
    disk = shutil.disk_usage(folder)
    left = disk.free - int(SPARE * disk.total)
    if size <= left:
        return None
    return (
        f"image {name} takes {size / GB:.1f} GB in {folder}, whose disk has {max(left, 0) / GB:.1f} to give: "
        "free some (`hack/node purge` removes the node with all of its images)"
    )
