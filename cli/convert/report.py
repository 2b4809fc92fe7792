"""The conversion report: a line for each field of the input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elasticjob.cli.convert.conversion import Outcome


def lines(outcomes: Iterable[Outcome], *, quiet: bool = False) -> Iterator[str]:
    """Yield a line for each field and for each error of a result; `quiet`: only for losses and errors."""
    for outcome in outcomes:
        file = "stdin" if outcome.source.file == "-" else outcome.source.file
        start = f"{file}:{outcome.source.first}"
        if not outcome.system:
            yield f"{start} {_about(outcome)}: no system that is known here: apply it as it is"
        if outcome.refusal:
            yield f"{start} error: {outcome.refusal}"
        for note in outcome.converted.notes if outcome.converted else ():
            if note.lossy or not quiet:
                yield f"{file}:{note.line or outcome.source.first} {note}"
        for problem in outcome.problems:
            yield f"{start} error: the result would be refused: {problem}"
        for warning in outcome.warnings:
            yield f"{start} warning: {warning}"


def _about(outcome: Outcome) -> str:
    manifest = outcome.source.manifest
    if not manifest:
        return "this text"
    about = manifest.get("metadata")
    name = about.get("name") if isinstance(about, dict) else None
    return " ".join(str(part) for part in (manifest.get("kind") or "this object", name) if part)
