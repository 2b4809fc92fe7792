"""What counts as a difference: all that was seen, after masks; and the differences that the docs explain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.dropin.play import Facts

PAGE: Final = Path(__file__).parents[2] / "docs" / "from-torchrun.md"
NOTHING: Final = "–"

TEXTS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("*", r"(?m)^elasticjob \S+ \d\d:\d\d:\d\d: .*\r?\n", "", "our launcher's own lines"),
    ("*", r"(?m)^[WEIF]\d{4} \d\d:.*\n", "", "torchrun's own lines"),
    ("*", r"(?ms)^Traceback \(most recent call last\):\n((?!^Traceback).)*(ChildFailedError|SignalException).*\Z", "", "torchrun's own end"),
    ("*", r"(?m)^/\S+/torch/distributed/run.py.*\n(.*\n)?", "", "torchrun's own lines"),
    ("[!o]*", r"(?m)^\[default\d\]: ?", "", "whose line it is: the stories of output compare it"),
    ("*", r"0x[0-9a-f]{6,}", "0x…", "addresses"),
    ("*", r"/tmp/(torchelastic|elasticjob)[^/\s\"']*", "<temp>", "folders of a launcher"),
)
"""Stories, pattern, what takes its place, why."""
KEYS: Final[tuple[tuple[str, str], ...]] = (
    ("~*", "how long it took"),
    ("* env DROPIN*", "the suite's own"),
    ("* env MASTER_PORT", "a free port"),
    ("* env _", "the shell's"),
    ("* env TORCHELASTIC_RUN_ID", "random without --rdzv-id"),
    ("* env TORCHELASTIC_ERROR_FILE", "a temporary path; what it is: error file"),
    ("* leads its session", "the suite starts each launcher in a session of its own"),
)


@dataclass(frozen=True)
class Explained:
    """Differences that a row of the docs explains: `row` is a text of that row."""

    stories: str
    keys: str
    row: str


EXPLAINED: Final[tuple[Explained, ...]] = ()


def masked(story: str, value: object) -> object:
    """Return a value without what differs each time."""
    match value:
        case str():
            for stories, pattern, instead, _ in TEXTS:
                value = re.sub(pattern, instead, value) if fnmatchcase(story, stories) else value
            return value
        case list():
            return [masked(story, each) for each in value]
        case dict():
            return {key: masked(story, each) for key, each in value.items()}
    return value


@dataclass(frozen=True)
class Difference:
    """What a key was with each launcher."""

    story: str
    key: str
    seen: dict[str, object]

    def told(self) -> str:
        """Return it in lines."""
        return "\n".join([f"  {self.key}", *(f"    {name:9}{str(value)[:500]}" for name, value in self.seen.items())])


def differences(story: str, seen: dict[str, Facts]) -> Iterator[Difference]:
    """Yield where we are neither as torchrun nor as python is."""
    for key in sorted({key for facts in seen.values() for key in facts}):
        if any(fnmatchcase(key, mask) for mask, _ in KEYS):
            continue
        values = {name: masked(story, facts.get(key, NOTHING)) for name, facts in seen.items()}
        if values["ours"] not in [value for name, value in values.items() if name != "ours"]:
            yield Difference(story, key, values)
