"""Plays a story with one of the launchers, and tells all that it and its workers did."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import socket
import sys
import tempfile
import termios
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.dropin.stories import Story

SCRIPTS: Final = Path(__file__).parent / "scripts"
BIN: Final = Path(sys.executable).parent
LIMITS: Final = (60.0, 25.0)  # seconds of a launch on one node, beyond torchrun's grace of 30; on several
SETTLE: Final = 1.5  # seconds until what ends with its launcher has ended
LAUNCHERS: Final = ("python", "torchrun", "ours")
FORGOTTEN: Final = ("PYTHON", "OMP_", "TORCH", "PET_", "ELASTICJOB")
"""Beginnings of variables of whoever runs the suite."""

Facts = dict[str, object]


def play(story: Story, launcher: str) -> Facts:
    """Play, and return what was seen: of the launchers, of each rank at each start."""
    with tempfile.TemporaryDirectory(prefix="dropin-") as folder:
        root = Path(folder)
        prepare(root)
        token = root.name
        nodes = [Launch(story, launcher, node, root) for node in range(story.nodes)]
        try:
            act(story, nodes, root)
            return told(story, nodes, root, left(token, root))
        finally:
            for each in marked(token):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            for node in nodes:
                node.close()


def prepare(root: Path) -> None:
    """Lay out the scripts in all the ways that they can be started."""
    (root / "out").mkdir()
    shutil.copytree(SCRIPTS, root / "run")
    shutil.copytree(SCRIPTS, root / "far" / "package")
    (root / "far" / "package" / "__init__.py").touch()
    shutil.copytree(SCRIPTS, root / "run" / "package")
    (root / "run" / "package" / "__init__.py").touch()
    os.rename(root / "run" / "package" / "probe.py", root / "run" / "package" / "__main__.py")
    (root / "run" / "link.py").symlink_to(root / "far" / "package" / "probe.py")
    with zipfile.ZipFile(root / "run" / "probe.zip", "w") as file:
        for name, stored in (("probe.py", "__main__.py"), ("beside.py", "beside.py")):
            file.write(SCRIPTS / name, stored)


def words(story: Story, launcher: str, node: int, port: int) -> list[str]:
    """Return the command line."""
    script = [each.replace("OUT", "../out") for each in story.script.split()]
    flags = [each.replace("OUT", "../out") for each in story.flags.split()]
    if launcher == "python":
        how = [] if "--no-python" in flags else [str(BIN / "python")]
        return [*how, *(["-m"] if "-m" in flags else []), *script]
    if story.nodes > 1:
        flags += ["--nnodes", str(story.nodes), "--rdzv-backend", "c10d", "--rdzv-id", "story"]
        flags += ["--rdzv-endpoint", f"127.0.0.1:{port}"]
    program = [str(BIN / "torchrun")] if launcher == "torchrun" else [str(BIN / "elasticjob"), "run"]
    if "--max-restarts" not in flags and not story.defaults:
        flags += ["--max-restarts", "0"]
    return [*program, "--nproc-per-node", str(story.workers), *flags, *script]


class Launch:
    """One launcher: the process, and our ends of its streams."""

    port = 0

    def __init__(self, story: Story, launcher: str, node: int, root: Path) -> None:
        if node == 0:
            with socket.create_server(("127.0.0.1", 0)) as free:
                Launch.port = free.getsockname()[1]
        self.root, self.node, self.story = root, node, story
        self.words = words(story, launcher, node, Launch.port)
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(FORGOTTEN)},
            **({} if "torch" in story.script else {"ELASTICJOB_MODULES": ""}),
            "DROPIN": root.name,
            "DROPIN_NODE": str(node),
            **dict(each.replace("OUT", str(root / "out")).split("=", 1) for each in story.environment.split()),
        }
        self.code: int | str | None = None
        self.tty = self.head = -1
        self.shown = b""
        self._ends: list[int] = []
        self._began = time.monotonic()
        self._streams()

    def _file(self, name: str) -> Path:
        return self.root / "out" / f"{name}-{self.node}"

    def _streams(self) -> None:
        match self.story.streams:
            case "pty":
                self.tty, slave = pty.openpty()
                settings = termios.tcgetattr(slave)
                settings[1] &= ~termios.OPOST
                termios.tcsetattr(slave, termios.TCSANOW, settings)
                streams = [slave, slave, slave]
            case "head":
                self.head, writing = os.pipe()
                streams = [self._stdin(), writing, self._open("err")]
            case "closed":
                streams = [self._stdin(), -1, self._open("err")]
            case "both":
                both = self._open("out")
                streams = [self._stdin(), both, both]
            case _:
                streams = [self._stdin(), self._open("out"), self._open("err")]
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become(streams)
            except SystemExit:
                raise
            except BaseException as error:
                os.write(2, f"cannot start: {error!r}\n".encode())
                os._exit(99)
        for fd in {*streams} - {-1}:
            os.close(fd)

    def _stdin(self) -> int:
        if self.story.stdin is None:
            return os.open(os.devnull, os.O_RDONLY)
        reading, writing = os.pipe()
        os.write(writing, self.story.stdin)
        os.close(writing)
        return reading

    def _open(self, name: str) -> int:
        return os.open(self._file(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def _become(self, streams: list[int]) -> None:
        os.setsid()
        if self.tty >= 0:
            fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
        kept = [os.dup(fd) if fd >= 0 else -1 for fd in streams]
        for target, fd in enumerate(kept):
            os.dup2(fd, target) if fd >= 0 else os.close(target)
        os.closerange(3, 256)
        os.chdir(self.root / "run")
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        if self.words[0].endswith("torchrun") and "torch" in sys.modules and not self.story.exec:
            be_torchrun(self.words, self.environment)
        os.execvpe(self.words[0], self.words, self.environment)

    def poll(self) -> bool:
        """Read what is there; whether it runs."""
        if self.tty >= 0:
            while select.select([self.tty], [], [], 0)[0]:
                try:
                    self.shown += os.read(self.tty, 65536)
                except OSError:
                    break
        if self.head >= 0 and select.select([self.head], [], [], 0)[0]:
            self.shown += os.read(self.head, 20)
            os.close(self.head)
            self.head = -2
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() - self._began > LIMITS[self.story.nodes > 1]:
                self.code = "does not end"
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        return self.code is None

    def read(self, name: str) -> bytes:
        """Return what came on a stream."""
        path = self._file(name)
        return path.read_bytes() if path.exists() else b""

    def close(self) -> None:
        """Close our ends."""
        for fd in (self.tty, self.head):
            if fd >= 0:
                os.close(fd)
        self.tty = self.head = -1


def be_torchrun(argv: list[str], environment: Mapping[str, str]) -> None:
    """What .venv/bin/torchrun does, without three seconds of imports; never returns."""
    from torch.distributed.run import main

    atexit._clear()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code: object = 0
    try:
        main(argv[1:])
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as Python's own end
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def act(story: Story, nodes: list[Launch], root: Path) -> None:
    """Do to the launchers what the story says, and wait for their ends."""
    deeds = [deed.partition(": ")[::2] for deed in filter(None, story.deeds.split("; "))]
    while any([node.poll() for node in nodes]):
        time.sleep(0.02)
        if deeds and ready(story, root, deeds[0][0]):
            do(deeds.pop(0)[1].split(), nodes, root)


def ready(story: Story, root: Path, key: str) -> bool:
    """Whether all ranks of the newest start have noted `key`, or the whole takes long enough."""
    found = notes(root)
    return sum(key in facts for facts in found.values()) >= story.workers * story.nodes


def do(deed: list[str], nodes: list[Launch], root: Path) -> None:
    """`launcher SIGTERM`, `worker 1 SIGTERM`, `type ^C`, `group SIGINT`."""
    found = notes(root)
    by_rank = {rank: facts for (rank, _), facts in sorted(found.items())}
    last = int(str(by_rank[max(by_rank)].get("node", [0])[0]))
    match deed:
        case ["launcher", name]:
            os.kill(nodes[last].pid, signal.Signals[name])
        case ["group", name]:
            os.killpg(nodes[last].pid, signal.Signals[name])
        case ["worker", rank, name]:
            os.kill(int(str(by_rank[int(rank)]["pid worker"][0])), signal.Signals[name])
        case ["type", text]:
            os.write(nodes[last].tty, text.encode().decode("unicode_escape").encode())


def notes(root: Path) -> dict[tuple[int, int], dict[str, list[object]]]:
    """Return what each rank noted at each start, by its key, in order."""
    found: dict[tuple[int, int], dict[str, list[object]]] = {}
    for path in (root / "out").glob("*.notes"):
        rank, start, _ = path.name.split(".")
        mine = found.setdefault((int(rank), int(start)), {})
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                key, value = json.loads(line)
                mine.setdefault(key, []).append(value)
    return found


def marked(token: str) -> Iterator[int]:
    """Yield the processes of a launch that live, by the variable that they inherit."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and token.encode() in Path(f"/proc/{process.pid}/environ").read_bytes():
                yield process.pid


def left(token: str, root: Path) -> list[str]:
    """Return who lives on after the launchers have ended."""
    deadline = time.monotonic() + SETTLE
    while (pids := sorted(marked(token))) and time.monotonic() < deadline:
        time.sleep(0.1)
    names = {
        value: key.removeprefix("pid ")
        for facts in notes(root).values()
        for key, values in facts.items()
        if key.startswith("pid ")
        for value in values
    }
    return sorted({names.get(pid, "another") for pid in pids})


def told(story: Story, nodes: list[Launch], root: Path, left: list[str]) -> Facts:
    """Return all facts by their keys."""
    seen: Facts = {"left": left}
    found = notes(root)
    groups = {str(facts["node"][0]): rank // story.workers for (rank, _), facts in found.items() if "node" in facts}
    for node in nodes:
        place = groups.get(str(node.node), node.node)
        at = f"node{place}." if story.nodes > 1 else ""
        code = node.code
        seen[f"{at}code"] = 128 - code if isinstance(code, int) and code < 0 else code  # as a shell tells it
        seen[f"{at}out"] = node.read("out").decode("latin-1")
        seen[f"{at}err"] = node.read("err").decode("latin-1")
        if node.shown:
            seen[f"{at}shown"] = node.shown.decode("latin-1")
    for (rank, start), facts in found.items():
        for key, values in facts.items():
            if not key.startswith("pid ") and key != "node":
                seen[f"{rank}.{start} {key}"] = values
    draws: dict[tuple[int, int], dict[str, object]] = {}
    for path in sorted((root / "out").glob("*.json")):
        rank, start, name, _ = path.name.split(".")
        facts = json.loads(path.read_text())
        if name == "draws":
            draws[int(rank), int(start)] = facts
        else:
            seen |= {f"{rank}.{start} {key}": value for key, value in facts.items()}
    for key in sorted({key for facts in draws.values() for key in facts}):
        seen[f"draws {key}"] = relation({at: facts.get(key) for at, facts in draws.items()})
    for path in sorted((root / "out" / "logs").rglob("*")):
        if path.is_file():
            seen[f"log {path.relative_to(root / 'out' / 'logs')}"] = path.read_bytes().decode("latin-1")
    error = root / "out" / "error"
    if error.exists():
        seen["launcher's error file"] = json.loads(error.read_text())
    return json.loads(json.dumps(seen, default=str).replace(str(root), "<root>"))  # type: ignore[no-any-return]


def relation(values: Mapping[tuple[int, int], object]) -> str:
    """Say how what ranks drew at their starts compares: the values themselves differ each time."""
    def differ(same: Callable[[tuple[int, int], tuple[int, int]], bool]) -> str:
        pairs = [(a, b) for a in values for b in values if a < b and same(a, b)]
        equal = [values[a] == values[b] for a, b in pairs]
        return "all differ" if not any(equal) else "all equal" if all(equal) else "some equal"

    return f"ranks: {differ(lambda a, b: a[1] == b[1])}, starts: {differ(lambda a, b: a[0] == b[0] and a[1] != b[1])}"
