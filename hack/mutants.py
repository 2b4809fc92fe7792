"""Put small faults into functions, one at a time, and see whether a test fails: `make mutants`.

python -m hack.mutants --packages master --sample 1000 --seed 2
python -m hack.mutants --tree ../before --save before.json    # another checkout
python -m hack.mutants --against before.json                  # the same mutants, and which were killed before

One process imports the tests and forks: once to run them all with line coverage, then for each mutant. That
fork replaces the code of the loaded functions and runs the tests that execute the mutated lines, cheapest
first, until one fails. A mutant is named by package, function and text: moved code has the same mutants.
Left out: code that runs at import, messages, log calls; stories, tests of more than 5 CPU seconds, and agents
of the `warm` process, which would be without the mutant.

On PyPI, mutmut names mutants by module and number, cosmic-ray runs the whole suite for each; neither samples.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import json
import os
import resource
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, zip_longest
from operator import setitem
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import coverage
import pytest

PACKAGES = ["controllers", "master", "trainer", "brain", "page"]
TESTED = {*PACKAGES, "api", "webhooks"}  # folders of tests
LEFT_OUT = {"story", "warm"}  # marker and fixture
SLOW, BUDGET = 5.0, 8.0  # CPU seconds of one test, and of those that run for one mutant
LIVING = SURVIVED, NOT_REACHED = "survived", "not reached"
NO_END = "no end"  # kills, too
PAIRS = "Lt LtE,Gt GtE,Eq NotEq,Is IsNot,In NotIn,And Or,Add Sub,Mult Div,Continue Break,min max,any all"
SWAPS = {one: other for pair in PAIRS.split(",") for one, other in (pair.split(), pair.split()[::-1])}
Ran = tuple[str, bool, float]
FIXED = {"annotation", "returns", "decorator_list", "exc"}
EXACT = {"Not", "Eq", "NotEq", "Is", "IsNot", "In", "NotIn"}  # a swap of these negates a whole condition


class Mutant(NamedTuple):
    """A module's tree, and what puts one fault into it."""

    name: str
    path: str
    lines: range
    tree: ast.Module
    put: Callable[[], None]


def mutants_of(package: str) -> list[Mutant]:
    """Return all mutants of a package; of several with one name, that of the function whose text is first."""
    found: dict[str, tuple[str, Mutant]] = {}
    for path in Path(package).rglob("*.py"):
        tree = ast.parse(path.read_text())
        for function, body in functions(tree):
            text = ast.unparse(body)
            for old, new, put in changes(body):
                name = f"{package} {function}: {ast.unparse(old)} -> {ast.unparse(new)}"
                if name not in found or text < found[name][0]:
                    lines = range(old.lineno, old.end_lineno + 1)
                    found[name] = text, Mutant(name, str(path), lines, tree, put)
    return [mutant for _, mutant in found.values()]


def functions(node: ast.AST, within: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Return functions and methods with their names; a function within a function belongs to that."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + child.name, child
        elif isinstance(child, ast.stmt):
            inside = f"{within}{child.name}." if isinstance(child, ast.ClassDef) else within
            yield from functions(child, inside)


def changes(node: ast.AST) -> Iterator[tuple[Any, ast.AST, Callable[[], None]]]:
    """Return what could be changed in a node: the old part, the new one, and what puts it there."""
    for field, value in ast.iter_fields(node):
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.arguments | ast.JoinedStr):
                continue
            if field in FIXED or ast.unparse(child).startswith("log."):
                continue
            for new in variants(node, field, child):
                put = partial(setattr, node, field) if index is None else partial(setitem, value, index)
                yield child, new, partial(put, ast.copy_location(new, child))
            yield from changes(child)


def variants(parent: ast.AST, field: str, node: Any) -> Iterator[Any]:
    """Return what may stand in a node's place instead."""
    sign = type(getattr(node, "ops", [getattr(node, "op", node)])[0]).__name__
    other = getattr(ast, SWAPS.get(sign, ""), None)
    match node:
        case ast.Compare(ops=[_]) if other:
            yield ast.Compare(node.left, [other()], node.comparators)
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() if other:
            yield type(node)(**{**dict(ast.iter_fields(node)), "op": other()})
        case ast.Continue() | ast.Break() if other:
            yield other()
        case ast.UnaryOp(ast.Not()):
            yield node.operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield ast.Constant(value + 1 if value < 10 else 2 * value)
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise():
            yield ast.Pass()
        case ast.Call(ast.Name(name), given, named) if name in SWAPS:
            yield ast.Call(ast.Name(SWAPS[name], ast.Load()), given, named)
        case ast.Call(ast.Name("replace"), given, named) if len(named) > 1:
            yield from (ast.Call(node.func, given, [one for one in named if one != lost]) for lost in named)
    if field in {"test", "guard", "ifs"} and sign not in EXACT:
        yield ast.UnaryOp(ast.Not(), node)
    if isinstance(parent, ast.Return) and ast.unparse(node) != "None":
        yield ast.Constant(None)


class Runner:
    """A plugin of pytest that runs mutants in the place of the tests."""

    def __init__(self, sample: Sequence[Mutant], folder: Path) -> None:
        self.sample, self.result, self.failed = sample, folder / "result", False
        self.alone: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # a file that cannot be imported, which pytest tells
        items = [one for one in session.items if isinstance(one, pytest.Function)]
        self.items = {one.nodeid: one for one in items if not LEFT_OUT & {*one.keywords, *one.fixturenames}}
        gc.unfreeze()  # what is frozen is in no list
        self.loaded = defaultdict[str, list[FunctionType]](list)
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(f"{Path.cwd()}/"):
                self.loaded[os.path.relpath(os.path.realpath(one.__code__.co_filename))].append(one)
        gc.freeze()  # forks share what they do not write
        print(f"{len(self.sample)} mutants; first, coverage of {len(self.items)} tests", flush=True)
        self.costs, self.reached = json.loads(self.forked(self.coverage, limit=3600))
        for mutant in self.sample:
            self.outcomes[mutant.name] = self.outcome(mutant)
            print({SURVIVED: "S", NOT_REACHED: "-"}.get(self.outcomes[mutant.name], "."), end="", flush=True)
        return True

    def coverage(self) -> str:
        """Run all tests; return the CPU seconds of those that pass, and of each file what runs a line."""
        places = sorted({f"{one.path.split('/')[0]}/**" for one in self.sample})
        tracer = coverage.Coverage(data_file=None, config_file=False, include=places)
        tracer.start()
        ran = self.run([*self.items], tracer.switch_context)
        costs = {name: cost for name, failed, cost in ran if not failed and cost <= SLOW}
        tracer.stop()
        found = tracer.get_data()
        reached = {os.path.relpath(one): found.contexts_by_lineno(one) for one in found.measured_files()}
        return json.dumps([costs, reached])

    def run(self, names: Sequence[str], begin: Callable[[str], Any] = str) -> Iterator[Ran]:
        """Run tests one after another; yield name, whether it failed, and CPU seconds."""
        for name, following in zip_longest(names, names[1:]):
            item = self.items[name]
            item.add_marker(pytest.mark.timeout(120), append=False)
            self.failed, before = False, sum(os.times()[:4])
            begin(name)
            item.ihook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following))
            yield name, self.failed, sum(os.times()[:4]) - before

    def outcome(self, mutant: Mutant) -> str:
        """Return the test that kills a mutant, or what else comes of it."""
        lines = self.reached.get(mutant.path, {})
        reaching = {one for line in mutant.lines for one in lines.get(str(line), ()) if one in self.costs}
        order = sorted(reaching, key=lambda one: (self.costs[one], one))
        spent = accumulate(self.costs[one] for one in order)
        tests = [one for one, total in zip(order, spent, strict=True) if total <= BUDGET]
        killer = self.forked(lambda: self.attempt(tests, mutant)) if tests else NOT_REACHED
        if killer in self.costs and killer not in self.alone:
            self.alone[killer] = self.forked(lambda: self.attempt([killer]))
        if self.alone.get(killer, SURVIVED) == SURVIVED:
            return killer
        del self.costs[killer]  # it fails without a mutant, too, which says nothing
        return self.outcome(mutant)

    def attempt(self, tests: Sequence[str], mutant: Mutant | None = None) -> str:
        """Put the mutant into the functions that are loaded, and return the first test that fails."""
        if mutant:
            mutant.put()
            ast.fix_missing_locations(mutant.tree)
            module = compile(mutant.tree, mutant.path, "exec", dont_inherit=True)
            new = {(one.co_qualname, one.co_firstlineno): one for one in nested(module)}
            for one in self.loaded[mutant.path]:
                code = new.get((one.__code__.co_qualname, one.__code__.co_firstlineno), module)
                if code.co_freevars == one.__code__.co_freevars and code is not module:
                    one.__code__ = code
        return next((name for name, failed, _ in self.run(tests) if failed), SURVIVED)

    def forked(self, work: Callable[[], str], limit: int = 30) -> str:
        """Return what a function returns in a fork, or NO_END if it takes more CPU seconds, or dies."""
        self.result.unlink(missing_ok=True)
        if (child := os.fork()) == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                for stream in (0, 1, 2):
                    os.dup2(os.open(os.devnull, os.O_RDWR), stream)
                self.result.write_text(work())
            finally:
                os._exit(0)
        try:
            os.waitpid(child, 0)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what a test left running
        return self.result.read_text() if self.result.exists() else NO_END


def nested(code: CodeType) -> Iterator[CodeType]:
    """Return a code object and all within it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from nested(one)


def report(sample: Sequence[Mutant], outcomes: dict[str, str], before: dict[str, str]) -> int:
    """Print figures, then the mutants that live; return how many of them were killed before."""
    lost = 0
    print()
    for package in dict.fromkeys(one.name.split()[0] for one in sample):
        found = Counter(outcomes[one.name] for one in sample if one.name.startswith(package))
        living = ", ".join(f"{found[one]} {one}" for one in LIVING)
        print(f"{package}: {found.total() - sum(found[one] for one in LIVING)} killed, {living}")
    for mutant in sample:
        if (now := outcomes[mutant.name]) in LIVING:
            killer = before.get(mutant.name, now)
            print(f"{mutant.path}:{mutant.lines[0]} {mutant.name} ({now}; before: {killer})")
            lost += killer not in LIVING
    if before:
        print(f"killed before: {lost} of these. No longer there:", *sorted(before.keys() - outcomes.keys()))
    return lost


def main(arguments: Sequence[str]) -> int:
    """Run a sample and print what came of it; 1 if a mutant survives that was killed before."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=200, help="how many mutants, as many of each package")
    parser.add_argument("--seed", default="1", help="which ones")
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--tests", nargs="+", help="the tests to ask; else all those of the packages")
    parser.add_argument("--tree", type=Path, default=Path(), help="the checkout; else that of this folder")
    parser.add_argument("--save", type=Path, help="write what came of each mutant, as JSON")
    parser.add_argument("--against", type=Path, help="run the mutants of this JSON again, and compare")
    options = parser.parse_args(arguments)
    before: dict[str, str] = json.loads(options.against.read_text()) if options.against else {}
    save = options.save and options.save.resolve()
    os.chdir(options.tree)
    here, tree = Path(__file__).parent.parent, os.getcwd()
    sys.path[:] = [tree, *(one for one in sys.path if Path(one).resolve() not in (here, here / "hack"))]
    os.environ |= {"PYTHONPATH": tree, "CI": "1"}  # where it finds CI, Hypothesis draws the same each time
    sample: list[Mutant] = []
    for package in options.packages:
        found = mutants_of(package)
        found.sort(key=lambda one: hashlib.sha256(f"{options.seed} {one.name}".encode()).digest())
        few = found[: options.sample // len(options.packages)]
        sample += [one for one in found if one.name in before] if before else few
    # As lab.processes.end_on_sigterm, of which an import would be of this checkout, not of `--tree`.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    if not sample:
        parser.error(
            f"no mutant is chosen: give packages with code, as {', '.join(PACKAGES)}, and a larger sample"
        )
    with TemporaryDirectory() as folder:
        runner = Runner(sample, Path(folder))
        quiet = ["-qq", "-s", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
        tests = [str(one) for one in sorted(Path("tests").iterdir()) if one.name in TESTED]
        if code := pytest.main([*quiet, *(options.tests or tests)], plugins=[runner]):
            return int(code)
    if save:
        save.write_text(json.dumps(runner.outcomes, indent=1))
    return int(report(sample, runner.outcomes, before) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
