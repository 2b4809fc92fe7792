"""The stories: a row each. OUT is the folder of what is seen; scripts are started from a folder that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Story:
    """`deeds` are `KEY: DEED`, done one after the other when all ranks have noted KEY (play.do)."""

    name: str
    script: str
    workers: int = 2
    nodes: int = 1
    flags: str = ""
    deeds: str = ""
    environment: str = ""
    stdin: bytes | None = None
    streams: str = "files"
    exec: bool = False  # torchrun in an interpreter of its own
    defaults: bool = False  # without --max-restarts 0
    quick: bool = False  # in `make stories`, too

    @property
    def launchers(self) -> tuple[str, ...]:
        """Python plays along where the world is one."""
        return (*(["python"] if self.workers == self.nodes == 1 else []), "torchrun", "ours")


WAYS: Final = {
    "relative": "probe.py OUT",
    "dotted": "./../run/probe.py OUT",
    "far": "../far/package/probe.py OUT",
    "link": "link.py OUT",
    "folder": "package OUT",
    "zip": "probe.zip OUT",
}
MODULES: Final = {"module": "probe OUT", "package": "package OUT", "module of a package": "package.beside OUT"}

PROBES: Final = (
    Story("probe torch", "probe.py OUT torch", 1, exec=True),
    Story("probe torch, its own threads", "probe.py OUT torch omp", 1, exec=True),
    Story("probe torch, restarted", "probe.py OUT torch fail", flags="--max-restarts 1", exec=True),
    Story("probe torch, spawned", "probe.py OUT torch fail", flags="--max-restarts 1 --start-method spawn"),
    Story("probe, restarted", "probe.py OUT fail", flags="--max-restarts 1"),
    Story("probe, two nodes, restarted", "probe.py OUT fail", 1, 2, "--max-restarts 1"),
    Story("probe, two nodes of two", "probe.py OUT", 2, 2),
    *(Story(f"probe {way}", script, 1, quick=way == "relative") for way, script in WAYS.items()),
    *(Story(f"probe {way}, spawned", WAYS[way], 1, flags="--start-method spawn") for way in ("link", "zip")),
    *(Story(f"probe {way}", script, 1, flags="-m") for way, script in MODULES.items()),
    Story("probe module, spawned", "probe OUT", 1, flags="-m --start-method spawn"),
    Story("probe program", "python probe.py OUT", 1, flags="--no-python"),
    Story("probe with a log", "probe.py OUT", 1, flags="--log-dir OUT/logs --tee 3"),
)
ENDS: Final = (
    "0 3 text 256 -1 none tuple exception recorded chained group unprintable syntax _exit abort kill term int "
    "segv handled interrupt thread thread_exit atexit atexit_code hook holding recursion memory pipe "
    "daemon_thread unflushed closed"
).split()
ENDINGS: Final = (
    *(
        Story(f"end {how}", f"act.py OUT end {how}", environment="TORCHELASTIC_ERROR_FILE=OUT/error")
        for how in ENDS
    ),
    *(Story(f"end {how}, alone", f"act.py OUT end {how}", 1) for how in ("3", "exception", "term", "kill", "interrupt", "text", "holding")),
    *(Story(f"end {how}, others before", f"act.py OUT end {how} leave") for how in ("0", "3", "kill")),
    *(Story(f"end {how}, two nodes", f"act.py OUT end {how}", 1, 2) for how in ("0", "3", "kill", "exception")),
    Story("end 3, two nodes, the other before", "act.py OUT end 3 leave", 1, 2),
)
SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
MORE: Final = "--signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"
SIGNALLED: Final = (
    *(Story(f"{name} to the launcher", "act.py OUT signals", deeds=f"ready: launcher {name}") for name in SIGNALS),
    *(
        Story(f"{name} to the launcher, handled", "act.py OUT signals", flags=MORE, deeds=f"ready: launcher {name}")
        for name in SIGNALS[-2:]
    ),
    *(
        Story(f"{name} to the launcher, not caught", "act.py OUT signals default", deeds=f"ready: launcher {name}")
        for name in ("SIGTERM", "SIGINT", "SIGUSR1")
    ),
    *(
        Story(f"{name} to a worker", "act.py OUT signals", deeds=f"ready: worker 1 {name}")
        for name in ("SIGTERM", "SIGINT", "SIGUSR1")
    ),
    *(
        Story(f"{name} to a worker, not caught", "act.py OUT signals default", deeds=f"ready: worker 1 {name}")
        for name in ("SIGTERM", "SIGINT", "SIGUSR1", "SIGKILL")
    ),
    Story("SIGTERM to the only worker", "act.py OUT signals default", 1, deeds="ready: worker 0 SIGTERM"),
    Story("SIGTERM twice", "act.py OUT signals after 2", deeds="ready: launcher SIGTERM; worker got: launcher SIGTERM"),
    Story("SIGINT, SIGTERM", "act.py OUT signals after 2", deeds="ready: launcher SIGINT; worker got: launcher SIGTERM"),
    Story("SIGTERM in vain", "act.py OUT signals stubborn", flags="--shutdown-timeout 2", deeds="ready: launcher SIGTERM"),
    Story("SIGTERM to the launcher, two nodes", "act.py OUT signals", 1, 2, deeds="ready: launcher SIGTERM"),
    Story("SIGINT to the launcher, two nodes", "act.py OUT signals default", 1, 2, deeds="ready: launcher SIGINT"),
    Story("SIGKILL to a worker, two nodes", "act.py OUT signals default", 1, 2, deeds="ready: worker 1 SIGKILL"),
    Story("Ctrl-C", "act.py OUT signals", streams="pty", deeds="ready: type \\x03"),
    Story("Ctrl-C, not caught", "act.py OUT signals default", streams="pty", deeds="ready: type \\x03"),
    Story("Ctrl-C alone", "act.py OUT signals default", 1, streams="pty", deeds="ready: type \\x03"),
    Story("Ctrl-\\", "act.py OUT signals", streams="pty", deeds="ready: type \\x1c"),
    Story("the group is ended", "act.py OUT signals", deeds="ready: group SIGTERM"),
    Story("hang-up of the terminal", "act.py OUT signals", streams="pty", deeds="ready: launcher SIGHUP"),
)
CHILDREN: Final = (
    Story("children at a restart", "act.py OUT children restart", flags="--max-restarts 1"),
    Story("children at a restart, spawned", "act.py OUT children restart", flags="--max-restarts 1 --start-method spawn"),
    Story("children at the end", "act.py OUT children 0", 1),
    Story("children and SIGKILL", "act.py OUT children stay", deeds="ready: launcher SIGKILL"),
    Story("children and SIGKILL, spawned", "act.py OUT children stay", flags="--start-method spawn", deeds="ready: launcher SIGKILL"),
    Story("children and SIGTERM", "act.py OUT children stay", deeds="ready: launcher SIGTERM"),
    Story("a thread that stays", "act.py OUT children thread", 1, flags="--shutdown-timeout 2", deeds="ready: launcher SIGTERM"),
)
READING: Final = (
    Story("piped", "act.py OUT read input rest", 1, stdin=b"Ann\nmore\nlast"),
    Story("piped, spawned", "act.py OUT read input rest", 1, stdin=b"Ann\nmore\n", flags="--start-method spawn"),
    Story("piped bytes", "act.py OUT read bytes", 1, stdin=b"\xff\0\r\n"),
    Story("piped to two", "act.py OUT read input", stdin=b"Ann\nBob\n"),
    Story("no stdin", "act.py OUT read input rest", 1),
    Story("breakpoint", "act.py OUT read breakpoint", 1, stdin=b"p value\nvalue = 42\nc\n"),
    Story("breakpoint at a terminal", "act.py OUT read breakpoint", 1, streams="pty", deeds=": type p\\x20value\\nc\\n"),
    Story("input at a terminal", "act.py OUT read input", 1, streams="pty", deeds=": type Ann\\n"),
    Story("probe at a terminal", "probe.py OUT", 1, streams="pty"),
    Story("head", "act.py OUT output unread", 1, streams="head"),
    Story("head of two", "act.py OUT output unread", streams="head"),
    Story("stdout closed", "act.py OUT output lines", 1, streams="closed"),
)
OUTPUT: Final = (
    *(
        Story(f"output {how}{'' if workers == 2 else ', alone'}", f"act.py OUT output {how}", workers, streams=streams)
        for how in "lines partial bytes surrogate long much buffer fork".split()
        for workers, streams in ((1, "files"), (2, "both" if how == "lines" else "files"))
    ),
    *(
        Story(f"output {flags}", "act.py OUT output lines", flags=f"--log-dir OUT/logs {flags}")
        for flags in ("--redirects 3", "--tee 3", "--redirects 0:1,1:2", "--tee 1:1", "--redirects 1 --tee 2", "--local-ranks-filter 1 --tee 3")
    ),
    Story("output prefixed", "act.py OUT output lines", flags="--tee 3 --log-dir OUT/logs --role R --log-line-prefix-template ${role_name}-${rank}-${local_rank}:"),
    Story("output bytes, tee", "act.py OUT output bytes", flags="--log-dir OUT/logs --tee 3"),
)
SETTINGS: Final = (
    Story("own environment", "probe.py OUT", environment="OMP_NUM_THREADS=3 PYTHONUNBUFFERED= PYTHONHASHSEED=7 RANK=9 MASTER_ADDR=x LOCAL_RANK=4 PYTHONWARNINGS=error::UserWarning PYTHONIOENCODING=latin-1"),
    Story("own environment, alone", "probe.py OUT", 1, environment="PYTHONFAULTHANDLER=1 PYTHONOPTIMIZE=1 LC_ALL=C PYTHONUTF8=0 PYTHONPATH=/x PYTHONDEVMODE=1"),
    Story("virtual rank", "probe.py OUT", flags="--virtual-local-rank", environment="CUDA_VISIBLE_DEVICES=5,6"),
    Story("role and id", "probe.py OUT", flags="--role learner --rdzv-id seven --max-restarts 5 --rdzv-backend c10d --rdzv-endpoint localhost:0"),
    Story("--standalone", "probe.py OUT", flags="--standalone"),
    Story("--run-path", "ABS/probe.py OUT", 1, flags="--run-path"),
    Story("--max-restarts by itself", "act.py OUT end 3", defaults=True),
    Story("no script", "nowhere.py OUT", 1),
    Story("no module", "nowhere OUT", 1, flags="-m"),
    Story("no program", "nowhere OUT", 1, flags="--no-python"),
    Story("no syntax", "bad.py OUT", 1),
    Story("arguments", "probe.py OUT -- --nnodes 3 -m x --help", 1),
)
STORIES: Final = (*PROBES, *ENDINGS, *SIGNALLED, *CHILDREN, *READING, *OUTPUT, *SETTINGS)
