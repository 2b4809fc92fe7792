"""Fields say what became of each: what nobody read is dropped by itself."""

from __future__ import annotations

from elasticjob.cli.convert.reading import sources
from elasticjob.cli.convert.system import ANEW, UNKNOWN, Fields, Verdict

TEXT = "kind: A\nstatus: {}\nspec:\n  n: 1\n  m: x\n  list:\n  - {a: 1, b: 2}\n  - 5\n  deep: {more: {}}\n"


def test_what_nobody_read_is_dropped_with_its_line() -> None:
    [source] = sources("job.yaml", TEXT)
    whole = Fields(source)
    whole.keep("kind", "as ElasticJob")
    whole.drop("status", ANEW, harmless=True)
    spec = whole.below("spec")
    assert spec.number("n") == 1
    assert spec.number("m") is None
    assert [one.keep("a") for one in spec.each("list")] == [1]
    assert [(note.line, str(note), note.lossy) for note in whole.notes({"b": "write c"})] == [
        (1, "kind: kept (as ElasticJob)", False),
        (2, f"status: dropped ({ANEW})", False),
        (4, "spec.n: kept", False),
        (5, "spec.m: dropped (is not a whole number: write a whole number)", True),
        (7, "spec.list[0].a: kept", False),
        (7, "spec.list[0].b: dropped (write c)", True),
        (8, f"spec.list[1]: dropped ({UNKNOWN})", True),
        (9, f"spec.deep: dropped ({UNKNOWN})", True),
    ]


def test_what_is_said_last_counts() -> None:
    [source] = sources("job.yaml", "a: 1\n")
    whole = Fields(source)
    whole.keep("a")
    whole.note("a", Verdict.CHANGED, "is b now")
    assert [str(note) for note in whole.notes()] == ["a: changed (is b now)"]
