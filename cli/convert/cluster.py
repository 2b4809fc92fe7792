"""KIND/NAME arguments, as kubectl reads them: the kind, its plural, or its plural and group."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob.cli.convert.systems import SYSTEMS
from elasticjob.cli.errors import Exit, Failure
from elasticjob.kube.objects.kinds import Kind, Manifest


def kinds_and_name(wanted: str) -> tuple[Sequence[Kind[Manifest]], str]:
    """Return the kinds that are meant, in the order in which they are tried, and the name. Raises Failure."""
    kind, slash, name = wanted.partition("/")
    known = [each for system in SYSTEMS for each in system.KINDS]
    found = [each for each in known if kind.lower() in _spellings(each)]
    if not slash or not name or "/" in name:
        raise Failure(
            f"{wanted!r} is not KIND/NAME", next_step="write it as pytorchjob/digits", code=Exit.USAGE
        )
    if not found:
        names = ", ".join(sorted({each.resource for each in known}))
        raise Failure(
            f"{kind!r} is no kind that can be converted", next_step=f"write one of {names}", code=Exit.USAGE
        )
    return found, name


def _spellings(kind: Kind[Manifest]) -> tuple[str, ...]:
    return (
        kind.name.lower(),
        kind.plural,
        kind.resource,
        f"{kind.name.lower()}.{kind.group}",
        f"{kind.plural}.{kind.version}.{kind.group}",
    )
