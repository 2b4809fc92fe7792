"""Why a worker ended, from its error output; and which tracebacks are shown."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticjob.trainer.agent.processes.logs import Stream
from elasticjob.trainer.agent.processes.reasons import Echoes, Passing, frame, headline, reason
from lab.waiting import PATIENCE

ELOG = "[E1127 12:00:00.123456789 TCPStoreLibUvBackend.cpp:1303] [c10d] loop cleanup didn't work"
WLOG = "[rank1]:[W1127 12:00:00.123456789 ProcessGroupGloo.cpp:7] Warning: not destroyed"
USDT = "USDT:2026-11-27 12:57:26 31450:31450 SyncActivityProfilerHandler.cpp:39] profiler_start"
WARNING = "/site-packages/torch/x.py:30: UserWarning: this is deprecated\n  warnings.warn(it)"
STACK = "Exception raised from wait at x.cpp:7 (most recent call first):\nframe #0: c10::Error::Error(…)"
CAUSE = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nValueError: the cause'
)
GLOO = (
    'Traceback (most recent call last):\n  File "a.py", line 8, in <module>\n    work.wait()\n'
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer "
    "[127.0.0.1]:37776. This is typically caused by a remote worker crashing."
)
STORE = (
    "Traceback (most recent call last):\n  File \"a.py\", line 8, in <module>\n    init()\n"
    "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"
)  # fmt: skip
NEVER = (
    "Traceback (most recent call last):\n  File \"a.py\", line 8, in <module>\n    init()\n"
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms"
)  # fmt: skip
NCCL = (
    'Traceback (most recent call last):\n  File "a.py", line 8, in <module>\n    work.wait()\n'
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:7, remote process exited or a network "
    "error, NCCL version 2.29\nncclRemoteError: A call failed possibly due to a network error\nLast error:"
)
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"


def ranked(text: str) -> str:
    return "\n".join(f"[rank1]: {line}" for line in text.split("\n"))


LOADING = "RuntimeError: Error(s) in loading state_dict for Linear:"
READING = "TypeError: Caught TypeError in DataLoader worker process 0."
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in main\n    model()\n'


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (CAUSE, "ValueError: the cause"),
        (f"{TRACE}{LOADING}\n\tMissing key: bn\n", f"{LOADING} Missing key: bn"),
        (f"{TRACE}{READING}\nOriginal {TRACE}TypeError: no len()\n", f"{READING} TypeError: no len()"),
        (f"{CAUSE}\n{ELOG}\n{WLOG}", "ValueError: the cause"),
        (f"{ranked(CAUSE)}\n{WLOG}", "ValueError: the cause"),
        (f"{CAUSE}\n{STACK}\n\n{USDT}", "ValueError: the cause"),
        (f"{GLOO}\n{CHAIN}{CAUSE}", "ValueError: the cause"),
        (NCCL, NCCL.split("\n")[3]),
        (f"{CAUSE}\nCompile with `TORCH_USE_CUDA_DSA` for more.", "ValueError: the cause"),
        (f"bad settings\n{WARNING}\n{ELOG}\n{USDT}", "bad settings"),
        ("usage: train.py [-h]\ntrain.py: error: no such flag", "train.py: error: no such flag"),
        (f"{ELOG}\n{USDT}\n", ""),
        ("Fatal Python error: Segmentation fault\n\nThread 0x1:\n  File x\n\nExtension modules: numpy",
         "Fatal Python error: Segmentation fault"),
        ("  indented alone", "indented alone"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_reason_is_the_programs_own_last_word(output: str, why: str) -> None:
    assert reason(output.split("\n")) == why


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("ValueError: the cause", "ValueError: the cause"),
        ("ValidationError: 2 errors\n  x: wrong\nsee the page", "ValidationError: 2 errors"),
        (
            '  File "a.py", line 3\n    x = = 1\n        ^\nSyntaxError: invalid syntax',
            "SyntaxError: invalid syntax",
        ),
        ('File "a.py", line 3\n    x = = 1\nSyntaxError: invalid syntax', "SyntaxError: invalid syntax"),
        ("  ", ""),
    ],
)
def test_an_error_is_told_in_one_line(error: str, line: str) -> None:
    assert headline(error) == line


def whole_lines(output: bytes, echo: Callable[[], None]) -> bytes:
    echoes = Echoes(echo)
    return b"".join(echoes.feed(line, line) for line in output.splitlines(keepends=True)) + echoes.end()


def in_pieces(size: int) -> Callable[[bytes, Callable[[], None]], bytes]:
    def passed(output: bytes, echo: Callable[[], None]) -> bytes:
        passing = Passing(Echoes(echo))
        pieces = [output[at : at + size] for at in range(0, len(output), size)]
        return b"".join(map(passing.feed, pieces)) + passing.end()

    return passed


@pytest.mark.parametrize("read", [whole_lines, in_pieces(1), in_pieces(7), in_pieces(10_000)])
@pytest.mark.parametrize(
    ("output", "shown", "echoes"),
    [
        (f"before\n{GLOO}\nafter\n", "before\nafter\n", 1),
        (f"before\n{ranked(STORE)}\nafter\n", "before\nafter\n", 1),
        (f"{GLOO}\n{STACK}\nafter", "after", 1),
        (f"{NCCL}\n{WARNING}\n", f"{WARNING}\n", 1),
        (f"{GLOO}\n{CHAIN}{STORE}\n", "", 1),
        (f"{CAUSE}\n", f"{CAUSE}\n", 0),
        (f"{NEVER}\n", f"{NEVER}\n", 0),
        (f"{GLOO}\n{CHAIN}{CAUSE}\n", f"{CHAIN}{CAUSE}\n", 1),
        (f"{CAUSE}\n{CHAIN}{GLOO}\nafter\n", f"{CAUSE}\n{CHAIN}after\n", 1),
        (f"{GLOO}\nafter\n{GLOO}\n", "after\n", 2),
        ("Traceback (most recent call last):\n  File x", "Traceback (most recent call last):\n  File x", 0),
        ("10%\r20%\rTr", "10%\r20%\rTr", 0),
    ],
)
def test_tracebacks_of_lost_peers_are_folded(
    read: Callable[[bytes, Callable[[], None]], bytes], output: str, shown: str, echoes: int
) -> None:
    told: list[None] = []
    assert read(output.encode(), lambda: told.append(None)).decode() == shown
    assert len(told) == echoes


@pytest.mark.parametrize("prefix", [b"", b"[0]: "])
def test_a_stream_folds_what_it_shows_and_keeps_all_in_the_file(tmp_path: Path, prefix: bytes) -> None:
    told: list[None] = []
    sink, file, before = io.BytesIO(), tmp_path / "stderr.log", (lambda: prefix) if prefix else None
    stream = Stream(sink=sink, file=file, prefix=before, ended=lambda: None, echo=lambda: told.append(None))
    os.write(stream.write, f"one\n{GLOO}\ntwo\n".encode())
    stream.on_start()
    assert stream.drain(PATIENCE)
    assert sink.getvalue() == prefix + b"one\n" + prefix + b"two\n"
    assert file.read_text() == f"one\n{GLOO}\ntwo\n"
    assert len(told) == 1
    assert "Connection closed by peer" in stream.reason


HERE = 'Traceback (most recent call last):\n  File "/x/train.py", line 7, in main\n    f(x)\n    ~^^^\n'
TORCH = '  File "/usr/lib/python3.11/site-packages/torch/nn.py", line 3, in forward\n    y()\n'


@pytest.mark.parametrize(
    ("output", "where"),
    [
        (f"{HERE}ValueError: no", "train.py:7 in main"),
        (f"{HERE}{TORCH}RuntimeError: mat1\n{ELOG}", "train.py:7 in main"),
        (ranked(f"{HERE}{TORCH}RuntimeError: mat1"), "train.py:7 in main"),
        (f"{GLOO}\n{CHAIN}{HERE}ValueError: no", "train.py:7 in main"),
        (f"Traceback (most recent call last):\n{TORCH}RuntimeError: no", "nn.py:3 in forward"),
        ("train.py: error: no such flag", ""),
    ],
)
def test_the_frame_is_the_programs_own_last_one(output: str, where: str) -> None:
    assert frame(output.split("\n")) == where
