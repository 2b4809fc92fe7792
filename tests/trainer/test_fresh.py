"""A fork of the warm process is a fresh process: whatever a script can observe is as `python -u` has it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.jobs.training.warm import Warm

PROBE = """
import atexit, builtins, json, os, pickle, signal, sys, threading
seen = {
    "file": __file__, "names": sorted(name for name in globals() if name.startswith("__")),
    "builtins": __builtins__ is builtins, "loader": type(__loader__).__name__, "spec": __spec__,
    "main": sys.modules["__main__"].__dict__ is globals(), "argv": sys.argv, "orig_argv": sys.orig_argv[1:],
    "path": sys.path[:1], "cwd": os.getcwd() in sys.path, "hook": sys.excepthook is sys.__excepthook__,
    "leads": [os.getpid() == os.getsid(0), os.getpid() == os.getpgid(0)], "stdin": sys.stdin.readline(),
    "handlers": [str(signal.getsignal(n)) for n in (2, 13, 15, 17)], "threads": threading.active_count(),
    "mask": sorted(signal.pthread_sigmask(0, ())),
    "out": [sys.stdout.encoding, sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.mode],
    "code": (lambda: 0).__code__.co_filename, "kept": [],
}
class Own: pass
pickle.loads(pickle.dumps(Own()))
import multiprocessing, random, numpy, torch
seen["spawned"] = sys.modules["__mp_main__"] is sys.modules["__main__"]
draws = [random.random(), float(numpy.random.rand()), float(torch.rand(1)), torch.initial_seed(),
         [*torch.utils.data.RandomSampler(range(9))], bytes(multiprocessing.current_process().authkey).hex()]
def last():
    import __main__
    seen["kept"].append(__main__.__dict__ is globals())
    print(json.dumps([seen, draws]), flush=True)
atexit.register(last)
ends = threading.main_thread().join
threading.Thread(target=lambda: (ends(), seen["kept"].append(Own is not None))).start()
"""


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The script, named as a user types it: relative to the present folder, by a link into another."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "probe.py").write_text(PROBE)
    (tmp_path / "probe.py").symlink_to(tmp_path / "real" / "probe.py")
    return os.path.relpath(tmp_path / "probe.py")


async def test_a_fork_shows_a_script_what_python_shows_it(probe: str, warm: Warm) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", probe, "--lr", "1"),
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    alone = seen((await process.communicate())[0].decode())
    forks = [seen((await warm.output(probe, "--lr", 1, PYTHONUNBUFFERED="1"))[1]) for _ in range(2)]
    for found, _ in forks:
        assert found == alone[0]
    drawn = zip(alone[1], *(each[1] for each in forks), strict=True)
    assert all(len({json.dumps(each) for each in draws}) == 3 for draws in drawn), (
        "draws that are not its own"
    )


def seen(output: str) -> Any:
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("pass", 0, ""),
        ("sys.exit('no data')", 1, "no data"),
        ("sys.exit(-1)", 255, ""),
        ("sys.exit(256 + 3)", 3, ""),
        ("raise ValueError('no data')", 1, "ValueError: no data"),
        ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
        ("os.kill(os.getpid(), 15)", -15, ""),
        ("os._exit(7)", 7, ""),
        ("sys.excepthook = lambda *_: print('mine'); 1 / 0", 1, "mine"),
        ("atexit.register(lambda: print('last')); 1 / 0", 1, "last"),
    ],
)
async def test_a_fork_ends_as_python_does(tmp_path: Path, warm: Warm, end: str, code: int, told: str) -> None:
    script = tmp_path / "ends.py"
    script.write_text(f"import atexit, os, sys\n{end}\n")
    ended, text = await warm.output(script)
    assert ended == code
    assert (text.splitlines() or [""])[-1] == told
    frames = [line for line in text.splitlines() if line.startswith("  File")]
    assert all(f'"{script}"' in line for line in frames), "frames of ours in the user's traceback"
