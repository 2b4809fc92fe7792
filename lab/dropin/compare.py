"""Differences between launchers: all that was seen, after masks, and those that the docs explain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from lab import explained
from lab.dropin.play import Facts
from lab.dropin.stories import STORIES, Story
from lab.explained import Explained
from lab.paths import DOCS

PAGE: Final = DOCS / "from-torchrun.md"
NOTHING: Final = "–"
SHOWN: Final = 300

TRACE: Final = r"Traceback \(most recent call last\):"
TEXTS: Final = (
    ("*", r"elasticjob \S+ \d\d:\d\d:\d\d: .*\r?\n", "", "our launcher's own lines"),
    ("*", r"[WEIF]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n", "", "torchrun's own lines"),
    ("*", r"(?m)^/\S+/torch/distributed/run.py.*\n(.*\n)?", "", "torchrun's own lines"),
    (
        "*",
        rf"(?s){TRACE}\n  File \"[^\"]*(/play.py|/torch/distributed/[^\"]*|/torchrun)\".*\Z",
        "",
        "torchrun's own end",
    ),
    ("probe*", r"(?m)^(\[Exception raised from|frame #|<omitting|$).*\n", "", "torchrun's, of a lost store"),
    ("[!o]*", r"(?m)(^|(?<=\r))\[default\d\]:", "", "whose line it is: the stories of logs compare it"),
    ("output of two*", r"(?m)^\[default\d\]:", "", "the same"),
    ("output, --redirects*", r"(?m)^\[default\d\]:", "", "the same"),
    ("*", r"0x[0-9a-f]{6,}", "0x…", "addresses"),
    ("*", r"/tmp/(torchelastic|elasticjob)[^/\s\"']*", "<temp>", "folders of a launcher"),
    ("*", r"^0000000[01][08](?=[0-9a-f]{7}$)", "000000000", "glibc's signals 32, 33: make ignores them"),
    ("end recorded", r"^\d{10}$", "", "when it was"),
)
"""Stories, pattern, what takes its place, why."""
KEYS: Final = (
    ("* env DROPIN*", "the suite's own"),
    ("* env PY", "the suite's own"),
    ("* env MASTER_PORT", "a free port"),
    ("* env _", "the shell's"),
    ("* env TORCHELASTIC_RUN_ID", "random without --rdzv-id"),
    ("* env TORCHELASTIC_ERROR_FILE", "a temporary path; what it is: error_file()"),
    ("* leaving", "a note that orders the end"),
)
"""Keys that are not compared, and why."""


@dataclass(frozen=True)
class Difference:
    """The values of a key with each launcher, and for which ranks and starts."""

    story: str
    key: str
    seen: dict[str, object]
    where: str = ""

    def told(self) -> str:
        """Return it in lines, from where the texts part."""
        texts = {name: str(value) for name, value in self.seen.items()}
        common = next(
            (n for n, letters in enumerate(zip(*texts.values(), strict=False)) if len({*letters}) > 1), 0
        )
        begin = max(0, common - 60)
        shown = (f"    {name:9}{'…' * (begin > 0)}{text[begin:][:SHOWN]!r}" for name, text in texts.items())
        return "\n".join([f"  {self.where} {self.key}", *shown])


EMPTY: Final = "[[][]]"
EXPLAINED: Final = (
    Explained("*", "env ELASTICJOB_*", "`ELASTICJOB_…`"),
    Explained("*", "env MASTER_ADDR", "`MASTER_ADDR`", "[0-9]*"),
    Explained("*", "env TORCHELASTIC_USE_AGENT_STORE", "`TORCHELASTIC_USE_AGENT_STORE`", "False"),
    Explained("*", "*code", "exit code of the launcher", "[1-9]*"),
    Explained("Ctrl-C twice", "got", "a second signal", "*'SIGINT', 'SIGINT'*"),
    Explained("probe, two nodes*", "*code", "a node fails", "0"),
    Explained("* two nodes*", "atexit", "a node fails"),
    Explained("* two nodes*", "got", "a node fails", "[[]'SIGTERM'[]]"),
    Explained("* two nodes*", "nobody said a word", "a node fails", NOTHING),
    Explained("piped to two", "out", "`[default0]`"),
    Explained("output, --tee", "*", "`[default0]`", "*\r*"),
    Explained("output, *", "folder of logs", "files of `--log-dir`"),
    Explained("head of two", "*", "goes away"),
    Explained("no [!s]*", "err", "cannot run", "error: *"),
    Explained("no s[!t]*", "err", "cannot run", "error: *"),
    Explained("--run-path", "stream(*", "`--run-path`"),
    Explained("--run-path", "sys.orig_argv", "`--run-path`"),
    Explained("--max-restarts by itself", "*", "`--max-restarts` by default"),
    Explained("*", "gc.get_freeze*", "imported already"),
    Explained("*", "MODULES", "imported already"),
    Explained("*", "atexit._ncallbacks()", "imported already"),
    Explained("probe torch*", "[[]str(each) for each in warnings.filters]*", "imported already"),
    Explained("*", 'open("/proc/self/cmdline")*', "`ps`", "*, '', '', ''*"),
    Explained("*", "prctl(2)", "who lives on"),
    Explained("*", "left", "who lives on", EMPTY),
    Explained("*", "lives on", "who lives on", "[[]" + EMPTY + "[]]"),
    Explained("*", "child got", "to the worker alone", NOTHING),
    Explained("*", "status(* SigCgt", "signal 43"),
    Explained("*", "descriptors()*", "descriptors"),
    Explained("*", "stream(sys.std???) kind", "a pipe"),
    Explained("*", "FRAMES", "frames"),
    Explained("*", "err recursion", "frames"),
    Explained("*", 'draws hash("x")', "`hash(", "*equal*"),
)


def explanation(found: Difference) -> Explained | None:
    """Return the row that explains a difference."""
    return explained.explanation(EXPLAINED, found.story, found.key, found.seen["ours"])


def missing_rows() -> Iterator[str]:
    """Yield the rows that the page does not have."""
    return explained.missing_rows(PAGE, EXPLAINED)


def flags() -> Iterator[str]:
    """Yield the flags of the installed torchrun that no story gives, and no row of the page names."""
    from torch.distributed.run import get_args_parser  # seconds: not for --list

    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    given = {"--help", "--nproc-per-node", *(word for story in STORIES for word in story.flags.split())}
    for action in get_args_parser()._actions:
        names = set(action.option_strings)
        if names and not names & given and not any(f"`{name}`" in line for name in names for line in rows):
            yield f"torchrun's {max(names, key=len)}: no story gives it, no row of {PAGE.name} names it"


def masked(story: Story, value: object) -> object:
    """Return a value without what differs each time."""
    match value:
        case str():
            text = value
            for stories, pattern, instead, _ in TEXTS:
                text = re.sub(pattern, instead, text) if fnmatchcase(story.name, stories) else text
            several = "sorted" in story.words and "\n" in text
            return "".join(sorted(text.splitlines(keepends=True))) if several else text
        case list():
            return [masked(story, each) for each in value]
        case dict():
            return {key: masked(story, each) for key, each in value.items()}
    return value


def differences(story: Story, seen: dict[str, Facts]) -> Iterator[Difference]:
    """Yield where we are neither as torchrun nor as python, once for the ranks and starts that are alike."""
    alike: dict[tuple[str, str], tuple[list[str], dict[str, object]]] = {}
    for key in sorted({key for facts in seen.values() for key in facts}):
        if any(fnmatchcase(key, mask) for mask, _ in KEYS):
            continue
        values = {name: masked(story, facts.get(key, NOTHING)) for name, facts in seen.items()}
        if values["ours"] not in [value for name, value in values.items() if name != "ours"]:
            where, _, what = key.partition(" ") if re.match(r"\d+\.\d+ ", key) else ("", "", key)
            alike.setdefault((what, repr(values)), ([], values))[0].append(where)
    for (what, _), (places, values) in alike.items():
        yield Difference(story.name, what, values, ", ".join(places))
