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


def note(key, value=True):
    with open(f"{FOLDER}/{RANK}.{START}.notes", "a") as file:
        file.write(json.dumps([key, value]) + "\n")


def noted(key, rank=RANK, start=START):
    if not os.path.exists(f"{FOLDER}/{rank}.{start}.notes"):
        return None
    with open(f"{FOLDER}/{rank}.{start}.notes") as file:
        return dict(map(json.loads, file)).get(key)


def wait_for(key, ranks):
    while not all(noted(key, rank) for rank in ranks):
        time.sleep(0.01)


def stay(seconds=5.0):
    """Train on, until somebody says otherwise, or nobody does."""
    if not noted("ready"):
        note("ready")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)
    note("nobody said a word")


def fail(error, cause=None):
    raise error from cause


def recorded():
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")  # here alone
    errors.record(fail)(ValueError("recorded"))


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


def die(name):
    os.kill(os.getpid(), signal.Signals[name])
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
    "chained": lambda: fail(ValueError("second"), KeyError("first")),
    "group": lambda: fail(ExceptionGroup("some", [ValueError("one"), KeyError("two")])),
    "unprintable": lambda: fail(Unprintable()),
    "syntax": lambda: exec("a b"),
    "_exit": lambda: os._exit(7),
    "abort": os.abort,
    "kill": lambda: die("SIGKILL"),
    "term": lambda: die("SIGTERM"),
    "int": lambda: die("SIGINT"),
    "segv": lambda: die("SIGSEGV"),
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
    how = (hows.split(",") + ["0"] * 99)[START]
    atexit.register(note, "atexit")
    if RANK < SIZE - 1:
        if others == "stay":
            watch_signals("worker", 0.3)
            stay(4)
        return
    wait_for("ready" if others == "stay" and hows.count(",") + 1 > START else "atexit", range(SIZE - 1))
    say(how)
    ENDS[how]()


def ends(hows):
    """Each rank ends in its own way, one after the other."""
    wait_for("atexit", range(RANK))
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


KINDS = {"child": lambda: None, "group": lambda: os.setpgid(0, 0), "session": os.setsid, "daemon": os.setsid}


def start_children(*, watching):
    """Start children that stay: in a group or session of their own, or of nobody."""
    for who, detach in KINDS.items():
        if os.fork() == 0:
            detach()
            if who == "daemon" and os.fork():
                os._exit(0)
            for fd in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            if watching:
                watch_signals(who)
            note(f"pid {who}", os.getpid())
            while True:
                time.sleep(0.05)
        if who == "daemon":
            os.wait()
        wait_for(f"pid {who}", [RANK])


def signals(how, after="1", *children):
    """Note the signals of each process of a worker: `after` so many seconds it exits; `default` keeps Python's ways."""
    note("pid worker", os.getpid())
    atexit.register(note, "atexit")
    if children:
        start_children(watching=True)
    if how != "default":
        watch_signals("worker", after if how == "after" else None)
    try:
        stay()
    except KeyboardInterrupt:
        note("got", "KeyboardInterrupt")
        raise


def children(how):
    """Five kinds of children, then an end: `restart`, `0`, `stay`, `thread`."""
    if START:
        old = {who: noted(f"pid {who}", start=0) for who in (*KINDS, "loader")}
        note("lives on", sorted(who for who, pid in old.items() if lives(pid)))
        return
    start_children(watching=False)
    note("pid worker", os.getpid())
    if how == "0":
        return
    loader = Process(target=time.sleep, args=(600,), daemon=True)
    loader.start()
    note("pid loader", loader.pid)
    if how == "thread":
        threading.Thread(target=time.sleep, args=(600,)).start()
        note("ready")
        return
    note("ready")
    wait_for("ready", range(SIZE))
    if how == "restart" and RANK == SIZE - 1:
        os._exit(3)
    stay(60)


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


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


def read(hows):
    """Read stdin: each rank in turn."""
    wait_for("read", range(RANK))
    for how in hows.split(","):
        note("asks")
        try:
            READS[how]()
        except BaseException as error:
            note(how, repr(error))
    note("read")


def write(*texts, stream=sys.stdout):
    """Write texts, with a pause between them; bytes past Python's own stream."""
    for text in texts:
        os.write(1, text) if isinstance(text, bytes) else print(text, end="", file=stream, flush=True)
        time.sleep(0.1)


def fork():
    print("parent before", flush=True)
    subprocess.run(["sh", "-c", "echo child; echo child error >&2"], check=True)
    if os.fork() == 0:
        print("forked")
        sys.exit(0)
    os.wait()
    print("parent after")


OUTPUTS = {
    "lines": lambda: (write("one\n"), write("two\n", stream=sys.stderr), write(f"three of {RANK}\nfour\n\n")),
    "partial": lambda: (write("no end", ", now\r50%\r100%\n\n"), write("1\r2\r", stream=sys.stderr)),
    "bytes": lambda: write(b"\xff\xfe nul \0 bell \a esc \x1b[31mred\x1b[0m \r\n tab\t\n", "ä€🙂\n"),
    "surrogate": lambda: write("bad \udcff\n"),
    "long": lambda: write("x" * 300_000 + "\n", "y\n"),
    "much": lambda: write("".join(f"{number:07d}\n" for number in range(131_072))),
    "fork": fork,
    "buffer": lambda: (print("before"), os.write(1, b"between\n"), print("after"), os._exit(0)),
    "unread": lambda: [print(number) for number in range(200_000)],
}


def output(kinds):
    """Something on the streams: of each kind in turn."""
    for kind in kinds.split(","):
        say(kind)
        try:
            OUTPUTS[kind]()
        except UnicodeError as error:
            note("error", repr(error))
    note("wrote all")


note("node", os.environ.get("DROPIN_NODE", "0"))
{each.__name__: each for each in (end, ends, signals, children, read, output)}[WHAT](*REST)
