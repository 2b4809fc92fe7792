"""The oracle torchrun: what is not compared of its launches, and what docs/from-torchrun.md explains."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from lab.dropin.play import play
from lab.dropin.stories import STORIES, Story
from lab.incumbents.compare import NOTHING
from lab.incumbents.oracle import Explained, Oracle, Play, Seen
from lab.paths import DOCS

PAGE: Final = DOCS / "from-torchrun.md"
BY_NAME: Final[Mapping[str, Story]] = {each.name: each for each in STORIES}

TRACE: Final = r"Traceback \(most recent call last\):"
TEXTS: Final = (
    (
        "*",
        r"(elasticjob \S+ \d\d:\d\d:\d\d[ a-z]*:|20\S+Z [a-z]+ \[\S.*?\]) .*\r?\n",
        "",
        "our launcher's own lines",
    ),
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


def flags() -> Sequence[str]:
    """Return the flags of the installed torchrun that no story gives, and no row of the page names."""
    from torch.distributed.run import get_args_parser  # seconds: not for --list

    rows = "".join(ORACLE.rows_of_page())
    given = {"--help", "--nproc-per-node", *(word for story in STORIES for word in story.flags.split())}
    found = (set(action.option_strings) for action in get_args_parser()._actions)
    return [
        f"torchrun's {max(names, key=len)}: no story gives it, no row of {PAGE.name} names it"
        for names in found
        if names and not names & given and not any(f"`{name}`" in rows for name in names)
    ]


def masked(name: str, value: object) -> object:
    """Return a value of a story without what differs each time."""
    match value:
        case str():
            text = value
            for stories, pattern, instead, _ in TEXTS:
                text = re.sub(pattern, instead, text) if fnmatchcase(name, stories) else text
            several = "sorted" in BY_NAME[name].words and "\n" in text
            return "".join(sorted(text.splitlines(keepends=True))) if several else text
        case list():
            return [masked(name, each) for each in value]
        case dict():
            return {key: masked(name, each) for key, each in value.items()}
    return value


@asynccontextmanager
async def stage(folder: Path, stories: Sequence[str]) -> AsyncIterator[Play]:
    """Processes in which torch is imported once: torchrun is forked from them (play.be_torchrun)."""
    import torch.distributed.run  # noqa: F401

    loop = asyncio.get_running_loop()
    over = folder / "over"
    with ProcessPoolExecutor(mp_context=get_context("fork"), initializer=end_when_told) as pool:
        try:
            yield lambda name: loop.run_in_executor(pool, of_all_launchers, BY_NAME[name], over)
        finally:
            over.touch()


def end_when_told() -> None:
    """Leave ^C and SIGTERM to the first process, whose file `over` ends what is played."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def of_all_launchers(story: Story, over: Path) -> Seen:
    return {launcher: play(story, launcher, over) for launcher in story.launchers}


ORACLE: Final = Oracle(
    name="torchrun",
    page=PAGE,
    stories=(*BY_NAME,),
    stage=stage,
    explained=EXPLAINED,
    masks=KEYS,
    masked=masked,
    gaps=flags,
    at_once=2,
    quick=[each.name for each in STORIES if "quick" in each.words],
)
