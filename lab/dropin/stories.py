"""The stories: a line each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

BAD: Final = (
    "3,text,-1,tuple,exception,chained,group,unprintable,syntax,_exit,abort,kill,term,int,segv,handled,"
    "interrupt,thread_dies,atexit_code,hook,recursion,memory,pipe,closed"
)
GOOD: Final = "0,256,none,thread,thread_exit,atexit,daemon_thread,unflushed,holding"
PLAIN: Final = "lines,bytes,surrogate,long,much,fork,buffer"
ALL: Final = f"partial,{PLAIN}"
SIX: Final = "--signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"
STATIC: Final = (
    "--nnodes 2 --node-rank NODE --master-addr 127.0.0.1 --master-port PORT --local-addr 127.0.0.1"
)
C10D: Final = "--rdzv-id seven --rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-conf join_timeout=60"
ODD: Final = "OMP_NUM_THREADS=3 PYTHONHASHSEED=7 RANK=9 MASTER_ADDR=x LOCAL_RANK=4 PYTHONIOENCODING=latin-1"
PYTHONS: Final = "PYTHONFAULTHANDLER=1 PYTHONOPTIMIZE=1 LC_ALL=C PYTHONUTF8=0 PYTHONPATH=/x PYTHONDEVMODE=1"
DEVICES: Final = "CUDA_VISIBLE_DEVICES=5,6"
ERROR: Final = "TORCHELASTIC_ERROR_FILE=ROOT/out/error"

TABLE: Final = rf"""
probe torch                      | 1   | probe.py OUT torch       | exec
probe torch, early variables      | 1   | early.py OUT torch       | exec
probe torch, restarted           | 2   | probe.py OUT torch fail  | --max-restarts 1 | exec
probe torch, spawned             | 2   | probe.py OUT torch fail  | --max-restarts 1 --start-method spawn
probe, restarted                 | 2   | probe.py OUT fail        | --max-restarts 1 | quick
probe, two nodes, restarted      | 1+1 | probe.py OUT fail        | --max-restarts 1
probe relative                   | 1   | probe.py OUT             | quick
probe dotted                     | 1   | ./../run/probe.py OUT
probe link                       | 1   | link.py OUT
probe folder                     | 1   | package OUT
probe zip                        | 1   | probe.zip OUT
probe link, spawned              | 1   | link.py OUT              | --start-method spawn
probe zip, spawned               | 1   | probe.zip OUT            | --start-method spawn
probe module                     | 1   | probe OUT                | -m
probe package                    | 1   | package OUT              | -m
probe module, spawned            | 1   | probe OUT                | -m --start-method spawn
probe program                    | 1   | python probe.py OUT      | --no-python
probe at a terminal              | 1   | probe.py OUT             | pty
bad ends                         | 2   | end {BAD}                | --max-restarts 40
bad ends, spawned                | 2   | end {BAD}                | --max-restarts 40 --start-method spawn
good ends                        | 9   | ends {GOOD}              | sorted
end 3                            | 2   | end 3                    | {ERROR} | quick
end recorded                     | 2   | end recorded             | {ERROR}
end kill                         | 2   | end kill
end 3, alone                     | 1   | end 3
end term, alone                  | 1   | end term
end interrupt, alone             | 1   | end interrupt            | quick
end 3, others before             | 2   | end 3 leave
end 3, others before, restarted  | 2   | end 3 leave              | --max-restarts 1
end 0, two nodes                 | 1+1 | end 0
end 3, two nodes                 | 1+1 | end 3
end kill, two nodes              | 1+1 | end kill
end 3, two nodes, others before  | 1+1 | end 3 leave
--max-restarts by itself         | 2   | end 3                    | defaults
SIGTERM                          | 2   | signals after            | launcher SIGTERM
SIGINT                           | 2   | signals after            | launcher SIGINT | quick
SIGHUP                           | 2   | signals after            | launcher SIGHUP
SIGQUIT                          | 2   | signals after            | launcher SIGQUIT
SIGUSR1                          | 2   | signals after            | launcher SIGUSR1
SIGUSR1, handled                 | 2   | signals after            | {SIX} | launcher SIGUSR1
SIGUSR2, handled                 | 2   | signals after            | {SIX} | launcher SIGUSR2
SIGTERM, not caught              | 2   | signals default          | launcher SIGTERM
SIGINT, not caught               | 2   | signals default          | launcher SIGINT | sorted
SIGTERM, children                | 2   | signals after 1 children | launcher SIGTERM
SIGTERM twice                    | 2   | signals after 2          | launcher SIGTERM; got: launcher SIGTERM
SIGTERM in vain                  | 2   | signals stubborn         | --shutdown-timeout 2 | launcher SIGTERM
SIGTERM to the group             | 2   | signals after            | group SIGTERM
signals to a worker              | 2   | signals after            | worker 1 SIGUSR1; worker 0 SIGTERM
SIGTERM to a worker              | 2   | signals default          | worker 1 SIGTERM
SIGINT to a worker               | 2   | signals default          | worker 1 SIGINT
SIGTERM, two nodes               | 1+1 | signals after            | launcher SIGTERM
SIGINT, two nodes                | 1+1 | signals default          | launcher SIGINT
Ctrl-C                           | 2   | signals after            | pty | type \x03
Ctrl-C, not caught               | 2   | signals default          | pty | type \x03 | sorted
Ctrl-C, alone                    | 1   | signals default          | pty | type \x03
Ctrl-C twice                     | 2   | signals after 2          | pty | type \x03; got: type \x03
Ctrl-\                           | 2   | signals after            | pty | type \x1c
SIGTERM to a wrapper             | 2   | sh wrap.sh act.py OUT signals after | --no-python | launcher SIGTERM
SIGINT to a wrapper              | 2   | sh wrap.sh act.py OUT signals after | --no-python | launcher SIGINT
children at a restart            | 2   | children restart         | --max-restarts 1
children at a restart, spawned   | 2   | children restart         | --max-restarts 1 --start-method spawn
children at the end              | 1   | children 0               | --shutdown-timeout 2
children and SIGKILL             | 2   | children stay            | launcher SIGKILL
children and SIGKILL, spawned    | 2   | children stay            | --start-method spawn | launcher SIGKILL
children and SIGTERM             | 2   | children stay            | launcher SIGTERM
a thread that stays              | 1   | children thread          | --shutdown-timeout 2 | launcher SIGTERM
piped                            | 1   | read input,rest          | <Ann\nmore\nlast | quick
piped, spawned                   | 1   | read input,rest          | <Ann\nmore\n | --start-method spawn
piped bytes                      | 1   | read bytes               | <\xff\x00\r\n
piped to two                     | 2   | read input               | <Ann\nBob\n
breakpoint                       | 1   | read breakpoint          | <p value\nvalue = 42\nc\n | quick
breakpoint at a terminal         | 1   | read breakpoint          | pty | asks: type p value\nc\n
input at a terminal              | 1   | read input               | pty | asks: type Ann\n
head                             | 1   | output unread            | head
head of two                      | 2   | output unread            | head
stdout closed                    | 1   | output lines             | closed
output, alone                    | 1   | output {ALL}
output of two                    | 2   | output {PLAIN}         | sorted
output of two to one file        | 2   | output lines,fork        | both | sorted
output at a terminal             | 1   | output lines,partial     | pty
output, --tee                    | 2   | output {ALL}             | LOGS --tee 3 | sorted
output, --redirects              | 2   | output lines             | LOGS --redirects 3 | sorted
output, --redirects of each      | 2   | output lines             | LOGS --redirects 0:1,1:2 | sorted
output, both                     | 2   | output lines             | LOGS --redirects 1 --tee 2 | sorted
output, filtered                 | 2   | output lines             | LOGS --local-ranks-filter 1 -t 3 | sorted
output, prefixed                 | 2   | output lines             | LOGS --tee 3 --role R PREFIX | sorted
environment                      | 2   | probe.py OUT             | {ODD}
environment, alone               | 1   | probe.py OUT             | {PYTHONS}
virtual rank                     | 2   | probe.py OUT             | --virtual-local-rank | {DEVICES}
role and id                      | 2   | probe.py OUT             | --role learner --max-restarts 5 {C10D}
ranks of nodes                   | 1+1 | probe.py OUT             | {STATIC}
--standalone                     | 2   | probe.py OUT             | --standalone
--run-path                       | 1   | ROOT/run/probe.py OUT    | --run-path | exec
no script                        | 1   | nowhere.py OUT
no module                        | 1   | nowhere OUT              | -m
no program                       | 1   | nowhere OUT              | --no-python
no syntax                        | 1   | bad.py OUT               | quick
arguments                        | 1   | probe.py OUT -- --nnodes 3 -m x --help
"""
"""Name, workers of each node, script (`act.py OUT` is left out), and by their form: flags, variables, words
of WORDS, `<` and what stdin gives, or deeds: `KEY: DEED` when all ranks have noted KEY, by itself `ready`."""

WORDS: Final = {
    "pty": "all streams are a terminal",
    "both": "stdout and stderr are one file",
    "head": "stdout is a pipe whose reader goes away",
    "closed": "stdout is closed",
    "sorted": "the lines of workers come in any order",
    "exec": "torchrun in an interpreter of its own",
    "defaults": "without --max-restarts 0",
    "quick": "in `make stories`, too",
}


@dataclass(frozen=True)
class Story:
    """A line of the table."""

    name: str
    workers: int  # of each node
    nodes: int
    script: str
    flags: str = ""
    deeds: str = ""
    environment: str = ""
    stdin: bytes | None = None
    words: frozenset[str] = frozenset()

    @property
    def launchers(self) -> tuple[str, ...]:
        """Python plays along where the world is one."""
        return (*(["python"] if self.workers == self.nodes == 1 else []), "torchrun", "ours")


def story(line: str) -> Story:
    """Read a line of the table."""
    name, workers, script, *more = (each.strip() for each in line.split(" | "))
    script = script if "OUT" in script else f"act.py OUT {script}"
    flags = deeds = environment = ""
    stdin: bytes | None = None
    words = set()
    for cell in more:
        if cell in WORDS:
            words.add(cell)
        elif cell.startswith("<"):
            stdin = cell[1:].encode().decode("unicode_escape").encode("latin-1")
        elif re.match(r"(\w*: )?(launcher|worker|group|type) ", cell):
            deeds = cell
        elif re.match(r"[A-Z_]+=", cell):
            environment = cell
        else:
            flags = cell
    return Story(
        name,
        int(workers[0]),
        len(workers.split("+")),
        script,
        flags,
        deeds,
        environment,
        stdin,
        frozenset(words),
    )


STORIES: Final = tuple(story(f"{line} ") for line in TABLE.strip().splitlines())
