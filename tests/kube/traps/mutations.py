"""Whether each trap test fails when the handling is removed: `python -m tests.kube.traps.mutations [ROW …]`.

Rows are numbers of the table, `4` or `04`; without any, all are tried.

Each mutation takes one piece of handling out of a copy of the tree and runs the tests of its row there. One
that no test notices is a gap, and so is one whose text is not found any more: both end with exit code 1.
Prints the table that stands in README.md.
"""

from __future__ import annotations

import compileall
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

ROOT = Path(__file__).parents[3]
PATIENCE = 240.0
"""Seconds after which the tests of a mutation count as failed: they hang."""
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist")


@dataclass(frozen=True)
class Mutation:
    """In `file`, `old` becomes `new`: what `removed` says is gone."""

    row: str
    removed: str
    file: str
    old: str
    new: str
    tests: str = ""

    @property
    def chosen(self) -> str:
        """The tests that are to notice, as `pytest -k` has it."""
        return self.tests or f"test_{self.row}"


MUTATIONS = (
    Mutation(
        "01",
        "a key in work is handed out again",
        "kube/queue.py",
        "        if key not in self._processing:\n            self._offer(key, entry)",
        "        self._offer(key, entry)",
    ),
    Mutation(
        "01",
        "a change during a run is forgotten",
        "kube/queue.py",
        "        if entry and entry.ready:\n            self._offer(key, entry)",
        "        self._dirty.pop(key, None)",
    ),
    Mutation(
        "02",
        "a change leaves the pause in force",
        "kube/queue.py",
        "        if not raised and not sooner:\n            return\n",
        "        return\n",
    ),
    Mutation(
        "03",
        "a cut watch starts over",
        "kube/watch.py",
        "        case Failed():\n            return Turn(state, then=Then.BACK_OFF)\n        case Silent():",
        "        case Failed():\n            return Turn(Empty(), then=Then.BACK_OFF)\n"
        "        case Silent():",
    ),
    Mutation(
        "03",
        "a watch resumes where it began",
        "kube/watch.py",
        "            return Turn(Watching(item.meta.resource_version), (Upserted(item),))",
        "            return Turn(Watching('1'), (Upserted(item),))",
    ),
    Mutation(
        "04",
        "silence is waited out",
        "kube/informer.py",
        "async with deadline(self._clock, idle):",
        "async with deadline(self._clock, None):",
    ),
    Mutation(
        "05",
        "410 keeps the version",
        "kube/watch.py",
        "return isinstance(error, Gone) or is_too_large_resource_version(error)",
        "return is_too_large_resource_version(error)",
        "test_05_a",
    ),
    Mutation(
        "05",
        "a list deletes nothing",
        "kube/store.py",
        "gone = [item for key, item in self._items.items() if key not in incoming]",
        "gone: list[Item] = []",
        "test_05_a",
    ),
    Mutation(
        "05",
        "failures are not paused for",
        "kube/informer.py",
        "            if turn.then is Then.BACK_OFF:\n                await self._pause(state)",
        "            await asyncio.sleep(0)",
        "test_05_requests",
    ),
    Mutation(
        "06",
        "a version of the future is kept",
        "kube/watch.py",
        "return isinstance(error, Gone) or is_too_large_resource_version(error)",
        "return isinstance(error, Gone)",
    ),
    Mutation(
        "06",
        "a question about the future is repeated",
        "kube/transport.py",
        "        case ApiError() if is_too_large_resource_version(error):\n            return None\n",
        "",
    ),
    Mutation(
        "07",
        "a refused connection is no routine",
        "kube/transport.py",
        "        except (aiohttp.ClientError, TimeoutError, OSError) as error:\n"
        '            self._count("<error>", call)',
        '        except TimeoutError as error:\n            self._count("<error>", call)',
    ),
    Mutation(
        "07",
        "who was away is waited for as long as who refuses",
        "kube/informer.py",
        "now, chance, at_least=asked, at_most=RESUME_WHEN_AWAY",
        "now, chance, at_least=asked",
    ),
    Mutation(
        "08",
        "Retry-After is not read",
        "kube/transport.py",
        "    if said.isdecimal():\n        return float(said)\n",
        "    if said.isdecimal():\n        return None\n",
    ),
    Mutation(
        "08",
        "a busy server is listed anew",
        "kube/watch.py",
        "        case Failed():\n            return Turn(state, then=Then.BACK_OFF)\n        case Silent():",
        "        case Failed():\n            return Turn(Empty(), then=Then.BACK_OFF)\n"
        "        case Silent():",
    ),
    Mutation(
        "09",
        "what is gone is an error",
        "kube/controller.py",
        "            case NotFound() if self._is_gone(key, outcome):",
        "            case NotFound() if False:",
    ),
    Mutation(
        "10",
        "a list deletes nothing",
        "kube/store.py",
        "gone = [item for key, item in self._items.items() if key not in incoming]",
        "gone: list[Item] = []",
    ),
    Mutation(
        "10",
        "the owner of what is gone is not told",
        "kube/controller.py",
        "{key for item in (change.old, change.new) if item for key in self._owners(item)}",
        "{key for item in (change.new,) if item for key in self._owners(item)}",
    ),
    Mutation(
        "11",
        "an undecodable object is nobody's business",
        "kube/controller.py",
        "        if item and self._warn:\n",
        "        if False and item and self._warn:\n",
    ),
    Mutation(
        "11",
        "objects are decoded as they come, all or none",
        "kube/cache.py",
        "        return self._store.apply(event)",
        "        for item in getattr(event, 'items', ()):\n            self._decode(item)\n"
        "        return self._store.apply(event)",
    ),
    Mutation(
        "12",
        "the first finalizer replaces the list",
        "kube/finalizers.py",
        '            {"op": "test", "path": "/metadata/resourceVersion", '
        '"value": obj.metadata.resource_version},\n',
        "",
        "test_12_controllers",
    ),
    Mutation(
        "12",
        "a refused patch is not looked into",
        "kube/finalizers.py",
        "        except (Invalid, Conflict):  # the list is not what we saw: look again\n"
        "            if attempt == ATTEMPTS - 1:\n                raise\n",
        "        except (Invalid, Conflict):\n            raise\n",
    ),
    Mutation(
        "12",
        "deletion does not end the attempts",
        "kube/finalizers.py",
        "    if obj.metadata.deletion_timestamp is not None:\n        return None\n",
        "",
    ),
    Mutation(
        "13",
        "a lost race is run again at once",
        "kube/controller.py",
        "                queue.add_after_failure(key, priority=priority)\n                log.info(",
        "                queue.add(key, priority=priority)\n                log.info(",
    ),
    Mutation(
        "13",
        "a lost race is an error",
        "kube/controller.py",
        "            case Conflict() if not isinstance(outcome, AlreadyExists):",
        "            case Conflict() if False:",
    ),
    Mutation(
        "14",
        "a run does not wait for its own writes",
        "kube/controller.py",
        "        if not gate.is_open and left > 0:",
        "        if False:",
    ),
    Mutation(
        "15",
        "writes do not ask the fence",
        "kube/transport.py",
        "        fence = fences.current.get() if call.writes else None",
        "        fence: Fence | None = None",
        "test_15_behind",
    ),
    Mutation(
        "15",
        "the deadline is not looked at",
        "kube/lease.py",
        "        if self.leads and now >= self.deadline:",
        "        if False:",
        "test_15_a_leader_that_is_cut_off",
    ),
    Mutation(
        "15",
        "a record is anybody's at once",
        "kube/lease.py",
        "        if seen.leads or now >= seen.expires:",
        "        if True:",
        "test_15_a_leader_that_is_cut_off",
    ),
    Mutation(
        "16",
        "time is what the clock on the wall says",
        "kube/election.py",
        "            step = self.candidate.next(self._clock.monotonic(), self._clock.now())",
        "            step = self.candidate.next(self._clock.now().timestamp(), self._clock.now())",
    ),
    Mutation(
        "17",
        "nobody listens to the main loop's heart",
        "kube/election.py",
        "            if keeper.candidate.leads and silent > limit:",
        "            if False:",
    ),
    Mutation(
        "25",
        "the lease is left to expire",
        "kube/operator.py",
        "            await self.election.end(release=not isinstance(self._error, LeadershipLost))",
        "            await self.election.end(release=False)",
        "test_25_a_leader",
    ),
    Mutation(
        "18",
        "handlers run in the event loop",
        "kube/threads.py",
        "future: Future[R] = Future()",
        "return function()",
        "test_18_a_handler_that_blocks",
    ),
    Mutation(
        "18",
        "handlers share the threads of reconciles",
        "kube/threads.py",
        "future: Future[R] = Future()",
        "return await asyncio.to_thread(function)",
        "test_18_reconciles",
    ),
    Mutation(
        "18",
        "threads are waited for",
        "kube/threads.py",
        "daemon=True",
        "daemon=False",
        "test_18_a_handler_that_never_returns_does_not",
    ),
    Mutation(
        "18",
        "a handler has all the time",
        "kube/answering.py",
        "async with deadline(self._clock, seconds):\n                return await answer",
        "async with deadline(self._clock, None):\n                return await answer",
        "test_18_a_handler_that_never",
    ),
    Mutation(
        "18",
        "what failed is refused, whatever was chosen",
        "kube/answering.py",
        'webhook.terms.failure_policy == "Ignore"',
        "False",
        "test_18_a_failure",
    ),
    Mutation(
        "18",
        "there is always room",
        "kube/room.py",
        "if self._number < 1 or self._size < size:",
        "if False:",
        "test_18_more",
    ),
    Mutation(
        "19",
        "half of a pair is served",
        "kube/mounted.py",
        "return read_leaf(chain, key)",
        "return Leaf(chain, key, None, None)",
    ),
    Mutation(
        "19",
        "the injector's bundle is overwritten",
        "kube/mounted.py",
        "publish(None, ",
        "publish(b'', ",
    ),
    Mutation(
        "20",
        "a new authority signs at once, and the old one is dropped",
        "kube/authorities.py",
        "return Plan(replace(held, next=make())",
        "return Plan(Authorities(make())",
        "test_20_the_authority",
    ),
    Mutation(
        "20",
        "of a lost Secret nothing is remembered, nor of the bundles",
        "kube/authorities.py",
        "    for rule in RULES:",
        "    if seen.kept.authorities is None:\n        return Plan(Authorities(make()), 'lost')\n"
        "    for rule in RULES:",
        "test_20_a_deleted",
    ),
    Mutation(
        "20",
        "nobody watches the registration",
        "kube/admission.py",
        "cache.subscribe(lambda _: self._changed.set())",
        "pass",
        "test_20_a_bundle",
    ),
    Mutation(
        "21",
        "lines have a limit",
        "kube/wire.py",
        '        first, newline, more = chunk.partition(b"\\n")\n',
        "        if sum(map(len, self._rest)) > 2**19:\n            raise ValueError('line too long')\n"
        '        first, newline, more = chunk.partition(b"\\n")\n',
        "test_21_what",
    ),
    Mutation(
        "21",
        "a refusal for size goes by its code",
        "kube/errors.py",
        "    elif any(sign in message for sign in _TOO_LARGE):\n        found = PayloadTooLarge\n",
        "",
    ),
    Mutation(
        "21",
        "a refusal for size is repeated",
        "kube/transport.py",
        "        case PayloadTooLarge():  # whatever its status code\n            return None\n",
        "",
    ),
    Mutation(
        "21",
        "a refusal for size is not terminal",
        "kube/controller.py",
        "            case Terminal() | PayloadTooLarge() | Undecodable():",
        "            case Terminal() | Undecodable():",
    ),
    Mutation(
        "22",
        "the first list has no lower priority",
        "kube/controller.py",
        "priority=LOW if change.initial else 0",
        "priority=0",
    ),
    Mutation(
        "23",
        "each event is queued",
        "kube/queue.py",
        "        entry = self._dirty.get(key)\n        if entry is None:\n            entry",
        "        entry = None\n        if entry is None:\n            entry",
    ),
    Mutation(
        "23",
        "the recorder keeps all",
        "kube/events.py",
        "        elif len(self._waiting) >= WAITING:",
        "        elif False:",
    ),
    Mutation(
        "24",
        "an exception ends the worker",
        "kube/controller.py",
        "        except Exception as error:  # the loop that logs and backs off\n            return error",
        "        except KubeError as error:\n            return error",
    ),
    Mutation(
        "24",
        "a cancelled future ends the worker",
        "kube/controller.py",
        "            if task is None or task.cancelling():\n                raise\n",
        "            raise\n",
    ),
    Mutation(
        "25",
        "a stop cancels at once",
        "kube/rungroup.py",
        "        await _wait(draining, clock, grace)\n",
        "",
        "test_25_a_stop",
    ),
    Mutation(
        "25",
        "a stop waits for ever",
        "kube/rungroup.py",
        "        async with deadline(clock, grace):",
        "        async with deadline(clock, None):",
        "test_25_a_run",
    ),
    Mutation(
        "25",
        "a cancelled run is an outcome",
        "kube/controller.py",
        "            if task is None or task.cancelling():\n                raise\n",
        "",
        "test_25_a_run",
    ),
    Mutation(
        "26",
        "the plain 404 of an unknown path is a transport error",
        "kube/errors.py",
        "(status == 404 and text == _NO_SUCH_PATH)",
        "False",
    ),
    Mutation(
        "26",
        "a list that fails for another reason ends the informer",
        "kube/informer.py",
        "        except KubeError as error:\n            yield (Failed(error),)",
        "        except Unreachable as error:\n            yield (Failed(error),)",
    ),
    Mutation(
        "27",
        "the uid does not travel",
        "kube/client.py",
        '({"uid": uid} if uid else {})',
        "{}",
    ),
    Mutation(
        "28",
        "a write to /status goes to the main endpoint",
        "kube/client.py",
        '    return kind.path(namespace or "", name, subresource)',
        '    return kind.path(namespace or "", name)',
    ),
    Mutation(
        "29",
        "a proxy's 404 and 403 are the server's",
        "kube/errors.py",
        "if status in (401, 429) or",
        "if status in (401, 403, 404, 429) or",
        "test_29_the_page_of_a_proxy_is_a",
    ),
    Mutation(
        "29",
        "any JSON is a list",
        "kube/client.py",
        "    if not page.version:\n        raise _no_answer(asked, body)\n",
        "",
        "test_29_the_page_of_a_proxy_is_neither",
    ),
    Mutation(
        "29",
        "any JSON is an object",
        "kube/client.py",
        "    if not found.kind:\n        raise _no_answer(call, body)\n",
        "",
        "test_29_the_page_of_a_proxy_is_a",
    ),
    Mutation(
        "29",
        "a line that is no event ends the informer",
        "kube/wire.py",
        '        return Failed(Unreachable(f"the watch sent a line that is no event',
        '        raise ValueError(str(f"the watch sent a line that is no event',
        "test_29_the_page_of_a_proxy_on_a_watch",
    ),
    Mutation(
        "30",
        "a refusal is final",
        "kube/transport.py",
        "        if response.status != 401:\n            return response\n",
        "        return response\n",
    ),
    Mutation(
        "30",
        "the plugin runs on the loop",
        "kube/kubeconfig.py",
        "await asyncio.to_thread(_read, self._path, self._context)",
        "__import__('concurrent.futures').futures.ThreadPoolExecutor(1)"
        ".submit(_read, self._path, self._context).result()",
    ),
    Mutation(
        "30",
        "each refusal runs the plugin",
        "kube/kubeconfig.py",
        "            if not self._is_fresh(refused) and self._clock.monotonic() >= self._in_vain_until:",
        "            if True:",
    ),
)


def main(rows: Sequence[str]) -> int:
    """Try all, or those of the rows that are named. Ends with 2 where one is named that is none."""
    gaps, named = 0, {row.zfill(2) for row in rows}
    if unknown := named - {each.row for each in MUTATIONS}:
        print(f"no mutation is of row {', '.join(sorted(unknown))}\n\n{__doc__}", file=sys.stderr)
        return 2
    chosen = [each for each in MUTATIONS if not named or each.row in named]
    with tempfile.TemporaryDirectory(prefix="traps-") as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, symlinks=True, ignore=LEFT_OUT)
        # compiled once, and believed only while the source is the same: a mutation may take less than a tick
        compileall.compile_dir(tree, quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        for mutation in chosen:
            noticed = tried(mutation, tree)
            gaps += not noticed
            said = f"`{mutation.file}`: {mutation.removed}"
            print(f"| {int(mutation.row)} | {said} | {noticed or '**nobody noticed**'} |", flush=True)
    return 1 if gaps else 0


def tried(mutation: Mutation, tree: Path) -> str:
    """Which tests failed without it."""
    file = tree / mutation.file
    whole = file.read_text()
    if whole.count(mutation.old) != 1:
        print(f"{mutation.file} does not hold this once: {mutation.old!r}", file=sys.stderr)
        return ""
    file.write_text(whole.replace(mutation.old, mutation.new))
    try:
        return failed(mutation.chosen, tree)
    finally:
        file.write_text(whole)


def failed(chosen: str, tree: Path) -> str:
    """The tests that fail in `tree`, or do not end."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout", "40"]
    command += ["-k", chosen, "tests/kube/traps"]
    environ = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    running = subprocess.Popen(
        command, cwd=tree, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        said, _ = running.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:  # it may hold the interpreter, and have children that wait for it
        os.killpg(running.pid, signal.SIGKILL)
        said, _ = running.communicate()
        return f"`{chosen}` (does not end)"
    lines = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    found = dict.fromkeys(line.split("::")[1].split(" ")[0].split("[")[0] for line in lines if "::" in line)
    return ", ".join(f"`{name}`" for name in found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
