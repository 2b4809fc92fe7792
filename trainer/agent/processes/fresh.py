"""A fork as a fresh process: whatever a script can observe is as `python -u script …` would have it.

State that packages took when the warm process imported them is taken anew (`renew`), and the script runs as
`__main__`, with the exit codes of Python itself.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import json
import os
import random
import runpy
import signal
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from io import FileIO, TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final

from elasticjob.trainer.agent.script import is_compiled, is_package


class Interruption(SystemExit):
    """The script was left by a KeyboardInterrupt: Python ends by SIGINT then."""


class QuickEnd:
    """Ends a worker without taking the interpreter apart, which takes torch seconds.

    Made first, so its exit handler is the last: threads are joined, all other handlers have run, and nothing
    is left but memory. A child that the script forks by itself ends as it likes.
    """

    def __init__(self) -> None:
        self._worker = 0
        self._code = 0
        atexit.register(self._end)

    def __enter__(self) -> None:
        self._worker = os.getpid()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remember the code with which Python would end."""
        match error:
            case Interruption():
                self._code = -signal.SIGINT
            case None | SystemExit(code=None):
                self._code = 0
            case SystemExit(code=int(code)):
                self._code = code & 0xFF
            case _:
                self._code = 1

    def _end(self) -> None:
        if os.getpid() != self._worker:
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # a script may have closed or replaced them
                stream.flush()
        if self._code < 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(self._worker, signal.SIGINT)
        os._exit(self._code)


def renew(environment: Mapping[str, str]) -> None:
    """Give a fork what a process has of its own, and packages took when they were imported."""
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()  # the generators of devices are made, and seeded, when they are used
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)
    if (lightning := sys.modules.get("lightning_utilities.core.rank_zero")) is not None:
        # else all workers log and print as rank 0 until they are connected
        lightning.rank_zero_only.rank = int(environment.get("RANK", "0"))


def show(command: Sequence[str]) -> None:
    """Have ps show this process by its script's command line, if there is room where it keeps one."""
    with suppress(OSError, ValueError, IndexError):
        start, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
        text = b"\0".join(os.fsencode(word) for word in command)
        if len(text) < end - start:
            ctypes.memset(start, 0, end - start)
            ctypes.memmove(start, text, len(text))


def reopen() -> None:
    """Give this process standard streams as `python -u` has them, where it does not have them already."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        present = getattr(sys, name)
        if present is getattr(sys, f"__{name}__") and getattr(present, "write_through", False):
            continue
        errors = "strict" if fd == 1 else "backslashreplace"
        stream = TextIOWrapper(FileIO(fd, "wb", closefd=False), "utf-8", errors, write_through=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def work(name: str, arguments: tuple[str, ...], *, module: bool) -> None:
    """Run the script as `python script …` or `python -m module …` would; SystemExit(1) after an error."""
    sys.argv = [name, *arguments]
    sys.orig_argv = [sys.executable, "-u", *(["-m"] if module else []), name, *arguments]
    main = types.ModuleType("__main__")
    main.__dict__.update(__annotations__={}, __builtins__=builtins)
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # the name by which processes that it spawns send its classes back
        sys.modules["__mp_main__"] = main
    path, safe = Path(name), bool(sys.flags.safe_path)
    run: Callable[[], object]
    if module:
        run, first = partial(run_module, name), os.getcwd()
    elif is_package(path):
        run, first, safe = partial(run_module, "__main__", False), str(path.absolute()), False
    else:
        run, first = partial(run_file, os.path.join(os.getcwd(), name), main), str(path.resolve().parent)
    if not safe:
        sys.path.insert(0, first)
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        report(error)
        raise Interruption if isinstance(error, KeyboardInterrupt) else SystemExit(1) from None


run_module: Final[Callable[..., object]] = runpy._run_module_as_main  # type: ignore[attr-defined]
"""Python's own for `-m`: the public one takes `__main__` back while threads and exit handlers run."""


def run_file(path: str, main: types.ModuleType) -> None:
    """Execute a file as `main`."""
    loader = (SourcelessFileLoader if is_compiled(Path(path)) else SourceFileLoader)("__main__", path)
    main.__dict__.update(__file__=path, __cached__=None, __loader__=loader)
    if isinstance(loader, SourceFileLoader):  # as the interpreter: no cache is written
        exec(loader.source_to_code(Path(path).read_bytes(), path), main.__dict__)
    elif (code := loader.get_code("__main__")) is not None:
        exec(code, main.__dict__)


def report(error: BaseException) -> None:
    """Have an uncaught error printed, without the frames above the script's own, and written to a file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)
    record(error)


def record(error: BaseException) -> None:
    """Write an error where torch's @record writes it, unless it did: a terminal keeps no last line."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    with suppress(OSError):
        if path and not Path(path).exists():
            message = "".join(traceback.format_exception_only(error)).strip()
            Path(path).write_text(json.dumps({"message": message}))
