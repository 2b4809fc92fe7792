"""One of many little trainings: `act.py FOLDER WHAT …`; what it sees goes to FOLDER/RANK.START.notes."""

import atexit
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import Process

FOLDER, WHAT, *REST = sys.argv[1:]
RANK, SIZE = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
START = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
LAST = RANK == SIZE - 1


def note(key, value=True, start=START):
    with open(f"{FOLDER}/{RANK}.{start}.notes", "a") as file:
        file.write(json.dumps([key, value]) + "\n")


def noted(key, rank=RANK, start=START):
    try:
        with open(f"{FOLDER}/{rank}.{start}.notes") as file:
            return next((value for name, value in map(json.loads, file) if name == key), None)
    except FileNotFoundError:
        return None


def wait_for(key, rank):
    while noted(key, rank) is None:
        time.sleep(0.01)


def stay(seconds=5.0):
    """Train on, until somebody says otherwise, or nobody does."""
    note("ready")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)
    note("nobody said a word")


def fail(error):
    raise error


def recorded():
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")  # here alone
    errors.record(fail)(ValueError("recorded"))


def chained():
    first = KeyError("first")
    raise ValueError("second") from first


def deep():
    deep()


class Unprintable(Exception):
    def __str__(self):
        raise TypeError("no text")


def in_thread(code):
    thread = threading.Thread(target=code)
    thread.start()
    thread.join()


def handled():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(9)


ENDS = {
    "0": lambda: None,
    "3": lambda: sys.exit(3),
    "text": lambda: sys.exit("a text"),
    "256": lambda: sys.exit(256),
    "-1": lambda: sys.exit(-1),
    "none": lambda: sys.exit(None),
    "tuple": lambda: sys.exit((1, 2)),
    "exception": lambda: fail(ValueError("plain\nof two lines")),
    "recorded": recorded,
    "chained": chained,
    "group": lambda: fail(ExceptionGroup("some", [ValueError("one"), KeyError("two")])),
    "unprintable": lambda: fail(Unprintable()),
    "syntax": lambda: exec("a b"),
    "_exit": lambda: os._exit(7),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "term": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "int": lambda: os.kill(os.getpid(), signal.SIGINT) or time.sleep(9),
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "handled": handled,
    "interrupt": lambda: fail(KeyboardInterrupt()),
    "thread": lambda: in_thread(lambda: fail(ValueError("in a thread"))),
    "thread_exit": lambda: in_thread(lambda: sys.exit(4)),
    "thread_dies": lambda: in_thread(lambda: os._exit(8)),
    "atexit": lambda: atexit.register(lambda: fail(ValueError("at the exit"))),
    "atexit_code": lambda: atexit.register(lambda: os._exit(9)),
    "hook": lambda: (setattr(sys, "excepthook", lambda *_: note("hook")), fail(ValueError("hooked"))),
    "holding": lambda: note("pid child", subprocess.Popen(["sleep", "3"]).pid),
    "recursion": deep,
    "memory": lambda: bytearray(1 << 60),
    "pipe": lambda: fail(BrokenPipeError(32, "Broken pipe")),
    "daemon_thread": lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(),
    "unflushed": lambda: sys.stdout.write("no end of line"),
    "closed": lambda: (sys.stdout.close(), sys.exit(6)),
}


def end(hows, others="stay"):
    """The last rank ends so, in another way at each start; the others stay, or end with 0 before."""
    how = hows.split(",")[START] if START < hows.count(",") + 1 else "0"
    note("node", os.environ.get("DROPIN_NODE", "0"))
    atexit.register(note, "atexit")
    if not LAST:
        note("ready")
        if others == "stay":
            watch_signals("worker", 0.3)
            stay(4)
        return
    for rank in range(SIZE - 1):
        wait_for("ready" if others == "stay" else "atexit", rank)
    say(how)
    ENDS[how]()


def ends(hows):
    """Each rank ends in its own way, one after the other."""
    if RANK:
        wait_for("atexit", RANK - 1)
    say(hows.split(",")[RANK])
    atexit.register(note, "atexit")
    ENDS[hows.split(",")[RANK]]()


def say(chapter):
    """Begin a chapter on both streams, if one process alone writes: what comes after it is compared alone."""
    for stream in (sys.stdout, sys.stderr) if SIZE == 1 or WHAT == "end" else ():
        print(f"== {chapter}", file=stream, flush=True)


def watch_signals(who="worker", after=None):
    """Note each signal; go on, or `after` so many seconds end with 0."""

    def got(number, frame):
        note("got" if who == "worker" else f"{who} got", signal.Signals(number).name)
        if after is not None and noted("leaving") is None:
            note("leaving")
            threading.Timer(float(after), os._exit, (0,)).start()

    for number in set(range(1, 32)) - {9, 17, 18, 19, 28}:  # SIGKILL, SIGCHLD, SIGCONT, SIGSTOP, SIGWINCH
        signal.signal(number, got)


def child(who, detach, quiet=False):
    """Start a child that stays, in a group or session of its own, or of nobody."""
    if (pid := os.fork()) == 0:
        detach()
        if who == "daemon" and os.fork():
            os._exit(0)
        sink = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(sink, fd)
        note(f"pid {who}", os.getpid())
        if not quiet:
            watch_signals(who)
        while True:
            time.sleep(0.05)
    if who == "daemon":
        os.waitpid(pid, 0)
    while noted(f"pid {who}") is None:
        time.sleep(0.01)


KINDS = {"child": lambda: None, "group": lambda: os.setpgid(0, 0), "session": os.setsid, "daemon": os.setsid}


def signals(how, *more):
    """What each process of a worker sees: `after` so many seconds it exits; `default` keeps Python's ways."""
    note("node", os.environ.get("DROPIN_NODE", "0"))
    note("pid worker", os.getpid())
    atexit.register(note, "atexit")
    if "children" in more:
        for who, detach in KINDS.items():
            child(who, detach)
    if how == "after":
        watch_signals("worker", more[0] if more and more[0].isdigit() else 1)
    elif how == "stubborn":
        watch_signals("worker")
    try:
        stay()
    except KeyboardInterrupt:
        note("got", "KeyboardInterrupt")
        raise


def children(how):
    """Five kinds of children, then an end: `restart`, `0`, `stay`, `thread`."""
    note("node", os.environ.get("DROPIN_NODE", "0"))
    if START:
        old = {who: noted(f"pid {who}", start=0) for who in (*KINDS, "loader")}
        note("lives on", sorted(who for who, pid in old.items() if pid and lives(pid)))
        return
    for who, detach in KINDS.items():
        child(who, detach, quiet=True)
    if how != "0":
        loader = Process(target=time.sleep, args=(600,), daemon=True)
        loader.start()
        note("pid loader", loader.pid)
    note("pid worker", os.getpid())
    if how == "thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
        note("ready")
    elif how == "stay":
        stay()
    elif how == "restart":
        note("ready")
        for rank in range(SIZE):
            wait_for("ready", rank)
        if LAST:
            os._exit(3)
        stay(60)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def reading(hows):
    """What stdin gives: each rank in turn."""
    if RANK:
        wait_for("read", RANK - 1)
    for how in hows.split(","):
        try:
            READS[how]()
        except BaseException as error:
            note(how, repr(error))
    note("read")


def ask():
    value = 41
    breakpoint()
    note("value", value)


READS = {
    "input": lambda: note("input", input("name? ")),
    "rest": lambda: note("rest", sys.stdin.read()),
    "bytes": lambda: note("bytes", list(sys.stdin.buffer.read())),
    "breakpoint": ask,
}


def unread():
    """Write more than a reader takes who goes away."""
    for number in range(200_000):
        print(number)
    note("wrote all")


def fork():
    print("parent before", flush=True)
    subprocess.run(["sh", "-c", "echo child; echo child error >&2"], check=True)
    if os.fork() == 0:
        print("forked")
        sys.exit(0)
    os.wait()
    print("parent after")


def write(*texts, stream=sys.stdout):
    """Write texts, with a pause between them; bytes past Python's own stream."""
    for text in texts:
        os.write(1, text) if isinstance(text, bytes) else print(text, end="", file=stream, flush=True)
        time.sleep(0.1)


OUTPUTS = {
    "lines": lambda: (write("one\n"), write("two\n", stream=sys.stderr), write(f"three of {RANK}\nfour\n\n")),
    "partial": lambda: (write("no end", ", now\r50%\r100%\n\n"), write("bar 1\rbar 2\r", stream=sys.stderr)),
    "bytes": lambda: write(b"\xff\xfe nul \0 bell \a esc \x1b[31mred\x1b[0m \r\n tab\t\n", "ä€🙂\n"),
    "surrogate": lambda: write("bad \udcff\n"),
    "long": lambda: write("x" * 300_000 + "\n", "y\n"),
    "much": lambda: write("".join(f"{number:07d}\n" for number in range(131_072))),
    "fork": fork,
    "buffer": lambda: (print("before"), os.write(1, b"between\n"), print("after"), os._exit(0)),
}


def output(kinds):
    """Something on the streams: of each kind in turn."""
    for kind in kinds.split(","):
        say(kind)
        try:
            OUTPUTS[kind]()
        except UnicodeError as error:
            note("error", repr(error))


{
    "end": end,
    "ends": ends,
    "signals": signals,
    "children": children,
    "read": reading,
    "unread": unread,
    "output": output,
}[WHAT](*REST)
