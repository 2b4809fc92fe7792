"""Plays a story with one of the launchers, and tells all that it and its workers did."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import pty
import re
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

from lab.dropin.stories import Story
from lab.incumbents.oracle import Facts

SCRIPTS: Final = Path(__file__).parent / "scripts"
BIN: Final = Path(sys.executable).parent
LIMITS: Final = (90.0, 40.0)
"""Seconds of a launch: on one node, beyond torchrun's grace of 30; on several, where it waits for minutes."""
SOON: Final = 20.0  # seconds from what was done to a launcher to its end
SETTLE: Final = 1.5  # seconds until what ends with its launcher has ended

FORGOTTEN: Final = ("PYTHON", "OMP_", "TORCH", "PET_", "ELASTICJOB")
"""Beginnings of variables of whoever runs the suite."""
LOGS: Final = "--log-dir ../out/logs"
PREFIX: Final = "--log-line-prefix-template ${role_name}-${rank}-${local_rank}:"
CODES: Final = re.compile(
    r"failed \(exitcode: (-?\d+)\)"
    r"|rank \d+: .*worker \d+ (?:failed with exit code (\d+)|was killed by (SIG[A-Z0-9]+))"
)
"""How the launchers tell that workers ended."""
CHAPTER: Final = re.compile(r"(?m)^(?:\[\w+\]: ?)?== (\S+)\r?\n")


def play(story: Story, launcher: str, over: Path) -> Facts:
    """Play, and return what was seen: of the launchers, of each rank at each start; until `over` is there."""
    with tempfile.TemporaryDirectory(prefix="dropin-") as folder:
        root = Path(folder)
        prepare(root)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        nodes = [Launch(story, launcher, node, root, port) for node in range(story.nodes)]
        try:
            act(story, nodes, root, over)
            return told(story, nodes, root)
        finally:
            for each in marked(root):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)


def prepare(root: Path) -> None:
    """Lay out the scripts in all the ways that they can be started."""
    (root / "out").mkdir()
    for folder in (root / "run", root / "far" / "package", root / "run" / "package"):
        shutil.copytree(SCRIPTS, folder)
        (folder / "beside.py").write_text("WHO = 'beside'")
    (root / "run" / "package" / "probe.py").rename(root / "run" / "package" / "__main__.py")
    (root / "run" / "bad.py").write_text("def (")
    (root / "run" / "wrap.sh").write_text('"$PY" "$@"\n:')  # sh stays, as wrappers do
    (root / "run" / "link.py").symlink_to(root / "far" / "package" / "probe.py")
    with zipfile.ZipFile(root / "run" / "probe.zip", "w") as file:
        for name, stored in (("probe.py", "__main__.py"), ("beside.py", "beside.py")):
            file.write(root / "run" / name, stored)


def words(story: Story, launcher: str, node: int, root: Path, port: int) -> list[str]:
    """Return the command line."""
    names = {
        "OUT": "../out",
        "ROOT": str(root),
        "NODE": str(node),
        "PORT": str(port),
        "LOGS": LOGS,
        "PREFIX": PREFIX,
    }
    script, flags = (
        re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[0]], text).split()
        for text in (story.script, story.flags)
    )
    if launcher == "python":
        python = [] if "--no-python" in flags else [str(BIN / "python")]
        return [*python, *(["-m"] if "-m" in flags else []), *script]
    if story.nodes > 1 and "--nnodes" not in flags:
        flags += (
            f"--nnodes {story.nodes} --rdzv-backend c10d --rdzv-id x --rdzv-endpoint 127.0.0.1:{port}".split()
        )
    if "--max-restarts" not in flags and "defaults" not in story.words:
        flags += ["--max-restarts", "0"]
    program = [str(BIN / "torchrun")] if launcher == "torchrun" else [str(BIN / "elasticjob"), "run"]
    return [*program, "--nproc-per-node", str(story.workers), *flags, *script]


class Launch:
    """One launcher: the process, and our ends of its streams."""

    def __init__(self, story: Story, launcher: str, node: int, root: Path, port: int) -> None:
        self.root, self.node, self.story = root, node, story
        self.words = words(story, launcher, node, root, port)
        given = story.environment.replace("ROOT", str(root)).split()
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(FORGOTTEN)},
            **({} if "torch" in story.script else {"ELASTICJOB_MODULES": ""}),
            **{"PY": str(BIN / "python"), "DROPIN": root.name, "DROPIN_NODE": str(node)},
            **dict(each.split("=", 1) for each in given),
        }
        self.code: int | str | None = None
        self.soon = False
        self.shown = b""
        self.began = self.acted = time.monotonic()
        self.ours, streams = self._streams()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(streams)
        for fd in {*streams} - {-1}:
            os.close(fd)

    def _streams(self) -> tuple[int, list[int]]:
        """Return our end of a terminal or of stdout's pipe, or -1, and the launcher's standard streams."""
        if "pty" in self.story.words:
            ours, theirs = pty.openpty()
            settings = termios.tcgetattr(theirs)
            settings[1] &= ~termios.OPOST
            settings[3] &= ~termios.ECHO  # what is typed, before or after a prompt
            termios.tcsetattr(theirs, termios.TCSANOW, settings)
            return ours, [theirs] * 3
        stdin, writing = os.pipe()
        os.write(writing, self.story.stdin or b"")
        os.close(writing)
        out, err = (
            os.open(self.root / "out" / f"{name}-{self.node}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            for name in ("out", "out" if "both" in self.story.words else "err")
        )
        if "closed" in self.story.words:
            os.close(out)
            return -1, [stdin, -1, err]
        if "head" in self.story.words:
            os.close(out)
            ours, out = os.pipe()
            return ours, [stdin, out, err]
        return -1, [stdin, out, err]

    def _become(self, streams: list[int]) -> None:
        """Be the launcher."""
        try:
            os.setsid()
            if "pty" in self.story.words:
                fcntl.ioctl(streams[0], termios.TIOCSCTTY, 0)
            for target, fd in enumerate([os.dup(fd) if fd >= 0 else -1 for fd in streams]):
                os.dup2(fd, target) if fd >= 0 else os.close(target)
            os.closerange(3, 256)
            os.chdir(self.root / "run")
            for number in {*range(1, signal.NSIG)} - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError):  # those of the C library
                    signal.signal(number, signal.SIG_DFL)
            if self.words[0].endswith("torchrun") and "exec" not in self.story.words:
                be_torchrun(self.words, self.environment)
            os.execvpe(self.words[0], self.words, self.environment)
        except BaseException as error:
            os.write(2, f"cannot start: {error!r}\n".encode())
        finally:
            os._exit(99)

    def poll(self) -> bool:
        """Read what is there; whether it runs."""
        while self.ours >= 0 and select.select([self.ours], [], [], 0)[0]:
            try:
                self.shown += os.read(self.ours, 65536 if "pty" in self.story.words else 20)
            except OSError:  # nobody has the terminal any more
                break
            if "head" in self.story.words:
                os.close(self.ours)
                self.ours = -1
        if self.code is None:
            late = time.monotonic() - self.began > LIMITS[self.story.nodes > 1]
            if late:
                os.kill(self.pid, signal.SIGKILL)
            ended, status = os.waitpid(self.pid, 0 if late else os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                self.code = (
                    "does not end" if late else 128 - code if code < 0 else code
                )  # as a shell tells it
        return self.code is None

    def read(self, name: str) -> str:
        """Return what came on a stream."""
        path = self.root / "out" / f"{name}-{self.node}"
        return (self.shown if name == "shown" else path.read_bytes() if path.exists() else b"").decode(
            "latin-1"
        )


def be_torchrun(argv: list[str], environment: Mapping[str, str]) -> None:
    """Do what .venv/bin/torchrun does, without three seconds of imports; never returns."""
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


def act(story: Story, nodes: list[Launch], root: Path, over: Path) -> None:
    """Do to the launchers what the story says, and wait for their ends. InterruptedError when it is over."""
    deeds = [deed.rpartition(": ") for deed in filter(None, story.deeds.split("; "))]
    while sum(node.poll() for node in nodes):
        if over.exists():
            raise InterruptedError(story.name)
        time.sleep(0.02)
        if not deeds:
            continue
        found, (before, colon, deed) = notes(root), deeds[0]
        ready = [facts for facts in found.values() if (before if colon else "ready") in facts]
        if len(ready) >= story.workers * story.nodes:
            del deeds[0]
            do(deed, nodes, found)
            for node in nodes:
                node.acted = time.monotonic()


def do(deed: str, nodes: list[Launch], found: Mapping[tuple[int, int], Mapping[str, list[object]]]) -> None:
    """`launcher SIGTERM` (that of the last rank), `group SIGTERM`, `worker 1 SIGTERM`, `type TEXT`."""
    by_rank = {rank: facts for (rank, _), facts in sorted(found.items())}
    node = nodes[int(str(by_rank[max(by_rank)]["node"][0])) if len(nodes) > 1 else 0]
    match deed.split():
        case ["launcher", name]:
            os.kill(node.pid, signal.Signals[name])
        case ["group", name]:
            os.killpg(node.pid, signal.Signals[name])
        case ["worker", rank, name]:
            os.kill(int(str(by_rank[int(rank)]["pid worker"][0])), signal.Signals[name])
        case ["type", *_]:
            os.write(node.ours, deed.removeprefix("type ").encode().decode("unicode_escape").encode())


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


def marked(root: Path) -> Iterator[int]:
    """Yield the processes of a launch that live, by the variable that they inherit."""
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
            if root.name.encode() in environment and process.status() != psutil.STATUS_ZOMBIE:
                yield process.pid


def told(story: Story, nodes: list[Launch], root: Path) -> Facts:
    """Return all facts by their keys."""
    found = notes(root)
    seen: Facts = {"left": left(root, found)}
    places = {
        int(str(facts["node"][0])): rank // story.workers
        for (rank, _), facts in sorted(found.items(), key=lambda item: -item[0][1])  # the first start
        if "node" in facts
    }
    for node in nodes:
        at = f"node{places.get(node.node, node.node)}." if story.nodes > 1 else ""
        seen |= {
            f"{at}code": node.code,
            f"{at}codes of workers": codes(node.read("err") + node.read("shown")),
        }
        seen |= {f"{at}ends soon": node.soon} if story.deeds else {}
        for name in ("out", "err", "shown"):
            first, *more = CHAPTER.split(node.read(name))
            seen |= {f"{at}{name}": first}
            seen |= {f"{at}{name} {key}": text for key, text in zip(more[::2], more[1::2], strict=True)}
    for (rank, start), facts in found.items():
        seen |= {f"{rank}.{start} {key}": facts[key] for key in facts if not key.startswith(("pid ", "node"))}
    draws: dict[tuple[int, int], dict[str, object]] = {}
    for path in sorted((root / "out").glob("*.json")):
        at_rank, at_start, name, _ = path.name.split(".")
        read = json.loads(path.read_text())
        if name == "draws":
            draws[int(at_rank), int(at_start)] = read
            continue
        for what, value in read.items():
            parts = value if isinstance(value, dict) else {"": value}
            seen |= {f"{at_rank}.{at_start} {what} {part}".rstrip(): each for part, each in parts.items()}
    for key in {key for facts in draws.values() for key in facts}:
        seen[f"draws {key}"] = relation({at: facts.get(key) for at, facts in draws.items()})
    for path in sorted((root / "out" / "logs").rglob("*.log")):
        *_, folder, slot, name = path.parts
        seen |= {f"log {slot}/{name}": path.read_bytes().decode("latin-1"), "folder of logs": folder}
    if (root / "out" / "error").exists():
        seen["error file of the launcher"] = json.loads((root / "out" / "error").read_text() or "null")
    return json.loads(json.dumps(seen, default=str).replace(str(root), "<root>"))  # type: ignore[no-any-return]


def left(root: Path, found: Mapping[tuple[int, int], Mapping[str, list[object]]]) -> list[str]:
    """Return who lives on after the launchers have ended."""
    deadline = time.monotonic() + SETTLE
    while (pids := {*marked(root)}) and time.monotonic() < deadline:
        time.sleep(0.1)
    noted = [
        (key, pid)
        for facts in found.values()
        for key in facts
        if key.startswith("pid ")
        for pid in facts[key]
    ]
    names = {pid: key.removeprefix("pid ") for key, pid in noted}
    return sorted({names.get(pid, "another") for pid in pids})


def codes(text: str) -> list[int]:
    """Return the ends of workers that a launcher told of, negative for a signal."""
    words = [word for found in CODES.findall(text) for word in found if word]
    return [-signal.Signals[word] if word.startswith("SIG") else int(word) for word in words]


def relation(values: Mapping[tuple[int, int], object]) -> str:
    """Say how what ranks drew at their starts compares: the values themselves differ each time."""

    def differ(paired: Callable[[tuple[int, int], tuple[int, int]], bool]) -> str:
        equal = {values[a] == values[b] for a in values for b in values if a < b and paired(a, b)}
        return {(): "–", (True,): "equal", (False,): "differ"}.get(tuple(equal), "some are equal")

    ranks, starts = differ(lambda a, b: a[1] == b[1]), differ(lambda a, b: a[0] == b[0])
    return f"ranks: {ranks}, starts: {starts}"
