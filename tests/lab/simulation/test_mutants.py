"""The table of known bugs, how one is put into the product, and how all are tried."""

from __future__ import annotations

import importlib
import io
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from elasticjob.kube import objects
from elasticjob.kube.objects import conditions
from elasticjob.kube.objects.views import Condition
from lab.simulation.mutants import CLASSES, Finding, Mutant, NotPut, Trial, mutants, put, run_mutants

NAME = "transitions-move-with-each-pass"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of one mutant is imported anew, and as it was afterwards."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(objects, "conditions", conditions)
    monkeypatch.delitem(sys.modules, conditions.__name__)


def test_each_row_changes_one_place_and_compiles() -> None:
    for mutant in mutants().values():
        text = mutant.text()
        assert text != mutant.path.read_text(), mutant.name
        compile(text, mutant.file, "exec", dont_inherit=True)


def test_there_are_enough_bugs_of_each_class() -> None:
    text = Path(sys.modules[Mutant.__module__].__file__ or "").with_suffix(".toml").read_text()
    counts = Counter(mutant.kind for mutant in mutants().values())
    assert len(mutants()) == text.count("[[mutant]]") >= 60  # no two have one name
    assert counts.keys() == {*CLASSES}
    assert min(counts.values()) >= 10
    assert all(mutant.after for mutant in mutants().values())


@pytest.mark.usefixtures("importing")
def test_import_takes_the_changed_source() -> None:
    put(NAME)
    changed = importlib.import_module(conditions.__name__)
    old = [Condition("Ready", "True", last_transition_time=NOW)]
    later, same = NOW + timedelta(hours=1), Condition("Ready", "True", reason="AsSpecified")
    assert [each.last_transition_time for each in changed.set_condition(old, same, later)] == [later]
    assert [each.last_transition_time for each in conditions.set_condition(old, same, later)] == [NOW]


def test_mutant_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(NotPut, match="is imported already"):
        put(NAME)
    with pytest.raises(NotPut, match="there is no mutant"):
        put("nothing")
    with pytest.raises(NotPut, match="is 0 times in"):
        replace(mutants()[NAME], old="no such text").text()


def test_run_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    results, output, tried = tmp_path / "results.json", io.StringIO(), list[str]()
    first, second, third = list(mutants())[:3]
    endings = {
        first: Trial(0.5, Finding("twins", "seed 1", 7)),
        second: Trial(2.0, broke="exit code 2: Usage"),
        third: Trial(9.0),
    }

    def trial(mutant: Mutant, seconds: float) -> Trial | None:
        tried.append(mutant.name)
        return endings[mutant.name]

    def run(*names: str) -> int:
        return run_mutants(trial, Console(file=output, width=120), names=names, results=results)

    assert run(first) == 0
    assert run(first, second, third) == 1
    assert run(first, second, third) == 1
    assert tried == [first, second, third, second]
    assert "1 of 3 found; 0 not tried" in output.getvalue()
    assert [word in output.getvalue() for word in ("twins", "not found", "exit code 2")] == [True] * 3


def test_finding_is_read_from_the_last_line() -> None:
    found = Finding("twins", "seed 1", 7)
    assert Finding.of(f"noise\n{found}\n") == found
    assert [Finding.of(text) for text in ("", "ok", "[1]", '{"truth": "twins"}')] == [None] * 4
