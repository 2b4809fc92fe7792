"""Functions and scripts become files that nodes run: what is sent, and what is refused with a reason."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from elasticjob.client import Unusable
from elasticjob.client.code import ARGUMENTS, Code, of_function, of_script

SCALE = 2


def train(epochs: int) -> None:
    print(json_of(epochs))


def json_of(number: int) -> str:
    return str(number)


def whole(epochs: int, rate: float = 0.5, *, names: tuple[str, ...] = ()) -> None:
    """Text in it
    stays."""
    import math

    def half(number: float) -> float:
        return number / 2

    class Kept:
        first = 1
        second = first + 1

    print([epochs, rate, list(names), half(math.floor(3.5)), Kept.second])


def ran(code: Code, folder: Path) -> str:
    for name, content in code.files.items():
        (folder / name).write_bytes(content)
    done = subprocess.run([sys.executable, folder / code.script], capture_output=True, text=True, check=True)
    return done.stdout


def test_a_function_runs_as_a_script_with_its_arguments(tmp_path: Path) -> None:
    code = of_function(whole, {"epochs": 3, "names": ["ä", "b"]})
    assert (code.script, code.stem, json.loads(code.files[ARGUMENTS])["epochs"]) == ("whole.py", "whole", 3)
    assert ran(code, tmp_path) == "[3, 0.5, ['ä', 'b'], 1.5, 2]\n"


def test_a_function_within_another_runs_with_its_strings_as_they_are(tmp_path: Path) -> None:
    def inner() -> None:
        print("""a
  b""")

    assert ran(of_function(inner), tmp_path) == "a\n  b\n"


async def waits() -> None: ...


@lru_cache
def decorated() -> None: ...


class Trainer:
    def fit(self) -> None: ...


def closure() -> Callable[[], None]:
    rate = 3
    return lambda: print(rate)


def over(rate: int) -> Callable[[], None]:
    def fits() -> None:
        print(rate)

    return fits


def default(rate: int = SCALE) -> None: ...


def uses_the_module() -> None:
    def deeper() -> int:
        return SCALE * len(sys.argv)

    deeper()


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (lambda: None, {}, "a lambda has no name"),
    (waits, {}, "waits is a coroutine"),
    (decorated, {}, "is no plain function"),
    (Trainer().fit, {}, "is no plain function"),
    (Trainer.fit, {}, r"missing a required argument: 'self'"),
    (print, {}, "is no plain function"),
    (over(3), {}, "fits is a closure over rate; make it an argument"),
    (default, {}, "default uses SCALE of the module around it; import or define it inside"),
    (uses_the_module, {}, "uses SCALE, sys of the module"),
    (train, {"epochs": 1}, "train uses json_of of the module"),
    (whole, {}, "missing a required argument: 'epochs'"),
    (whole, {"epochs": object()}, "the arguments of whole.. are no JSON: .*; give numbers"),
    (whole, {"epochs": float("nan")}, "are no JSON"),
]


@pytest.mark.parametrize(("function", "arguments", "why"), REFUSED, ids=range(len(REFUSED)))
def test_a_function_that_would_fail_on_a_node_is_refused(
    function: Callable[..., Any], arguments: dict[str, Any], why: str
) -> None:
    with pytest.raises(Unusable, match=why):
        of_function(function, arguments)


def test_a_script_takes_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "pkg" / "__pycache__").mkdir(parents=True)
    for name in ("train.py", "pkg/model.py", "pkg/__pycache__/model.pyc", ".secret", "weights.bin"):
        (tmp_path / name).write_text(name)
    alone = of_script(tmp_path / "train.py", ["--epochs", 3])
    assert (dict(alone.files), alone.arguments) == ({"train.py": b"train.py"}, ("--epochs", "3"))
    folder = of_script(tmp_path / "train.py", files=[tmp_path])
    assert list(folder.files) == ["pkg/model.py", "train.py", "weights.bin"]
    inside = of_script(tmp_path / "pkg" / "model.py", files=[tmp_path, tmp_path / "train.py"])
    assert inside.script == "pkg/model.py"


def test_files_that_cannot_be_sent_are_named(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("train.py", "other/train.py"):
        (tmp_path / name).write_text("")
    with pytest.raises(Unusable, match="there is no file"):
        of_script(tmp_path / "absent.py")
    with pytest.raises(Unusable, match=r"there is no file .*; correct --files"):
        of_script(tmp_path / "train.py", files=[tmp_path / "absent"])
    with pytest.raises(Unusable, match="would be in the place of"):
        of_script(tmp_path / "train.py", files=[tmp_path / "other" / "train.py"])
    (tmp_path / "large.bin").write_bytes(b"x" * (1 << 21))
    with pytest.raises(Unusable, match=r"train.py and 1 more files: 2.0 MiB, and a ConfigMap holds 1 MiB"):
        of_script(tmp_path / "train.py", files=[tmp_path / "large.bin"])


def test_files_that_fill_no_memory_and_odd_names_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text("")
    with (tmp_path / "data.bin").open("wb") as data:
        data.truncate(1 << 40)  # sparse: reading it would end in MemoryError
    with pytest.raises(Unusable, match=r"and 1 more files: 1048576\.0 MiB"):
        of_script(script, files=[tmp_path / "data.bin"])
    (folder := tmp_path / "odd").mkdir()
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("")
    with pytest.raises(Unusable, match="is no UTF-8; rename it"):
        of_script(script, files=[folder])


def test_a_file_that_goes_before_it_is_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script := tmp_path / "train.py").write_text("")

    def refuses(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuses)
    with pytest.raises(Unusable, match=r"train.py cannot be read: permission denied"):
        of_script(script)
