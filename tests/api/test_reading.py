"""Reading messages in several threads: the first use of a type is one thread's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, sys, threading
import msgspec
from elasticjob.api.rpc.message import decode_as

sys.setswitchinterval(1e-6)
gc.set_threshold(1)
gc.callbacks.append(lambda phase, info: sum(range(50)))

TYPES = '''
class Part(msgspec.Struct):
    number: "int" = 0
    words: "list[str]" = []

class Whole(msgspec.Struct):
    first: "Part | None" = None
    parts: "list[Part]" = []
    named: "dict[str, Part]" = {}
'''

def go(start, kind):
    start.wait()
    assert len(decode_as(b'{"parts": [{"number": 1}]}', kind).parts) == 1

for _ in range(200):
    exec(TYPES)  # types that nobody has used
    start = threading.Barrier(3)
    threads = [threading.Thread(target=go, args=(start, Whole)) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
print("fine")
"""


def test_threads_that_read_a_type_for_the_first_time_do_not_crash() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_no_module_of_a_training_lets_a_thread_be_the_first_to_read_a_type() -> None:
    """Agents write the parts of all their workers at once, each in a thread."""
    first = re.compile(r"msgspec\.(json|msgpack)\.decode\([^\n]*type=")
    assert [str(each) for each in Path("trainer").rglob("*.py") if first.search(each.read_text())] == []
