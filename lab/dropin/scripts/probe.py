"""Writes all that a script can observe to FOLDER/RANK.START.NAME.json: `probe.py FOLDER [torch] [fail]`.

Each line of FACTS and TORCH is an expression, and the name of what it tells. Of DRAWS it is told which are alike.
"""

import os
import sys

FOLDER, *WANTED = sys.argv[1:]
RANK, START = os.environ.get("RANK", "0"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
FRAMES, frame = 0, sys._getframe()
while frame := frame.f_back:
    FRAMES += 1
MODULES = sorted(
    {name.partition(".")[0] for name in sys.modules} - {*sys.stdlib_module_names, "sitecustomize"}
)
GLOBALS = sorted(name for name in globals() if name.startswith("__"))
TASKS = len(os.listdir("/proc/self/task"))

import atexit
import ctypes
import importlib.util
import json
import multiprocessing
import random
import re
import signal
import stat
import threading
import time
import traceback

PID = os.getpid()
KINDS = {"CHR": "char", "FIFO": "pipe", "SOCK": "socket", "REG": "file", "DIR": "folder"}
FACTS = """
FRAMES
MODULES
GLOBALS
TASKS
__file__
beside()
__name__
__spec__ and [__spec__.name, __spec__.origin]
__package__
type(__loader__).__name__
globals().get("__cached__")
__builtins__ is importlib.import_module("builtins")
__import__("__main__").__dict__ is globals()
__import__("__main__").__file__
importlib.import_module("beside").WHO
dir(importlib.import_module("builtins"))
sys.argv
sys.orig_argv
sys.path
sys.flags
sys.executable
sys.prefix
sys.warnoptions
sys._xoptions
sys.dont_write_bytecode
[sys.getrecursionlimit(), sys.getswitchinterval(), sys.getdlopenflags(), sys.gettrace(), sys.getprofile()]
[sys.getfilesystemencoding(), sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth()]
[getattr(each, "__name__", type(each).__name__) for each in sys.meta_path]
len(sys.path_hooks)
[getattr(sys, f"{n}hook") is getattr(sys, f"__{n}hook__") for n in ("except", "display", "unraisable", "breakpoint")]
threading.excepthook is threading.__excepthook__
stream(sys.stdin)
stream(sys.stdout)
stream(sys.stderr)
[getattr(sys, name) is getattr(sys, f"__{name}__") for name in ("stdin", "stdout", "stderr")]
os.getcwd()
[os.umask(0o22), os.umask(0o22)]
[[n, resource.getrlimit(getattr(resource, n))] for n in dir(resource) if n.startswith("RLIMIT")]
[os.nice(0), sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0), os.cpu_count()]
open("/proc/self/oom_score_adj").read()
[os.getresuid(), os.getresgid(), os.getgroups()]
status("SigBlk", "SigIgn", "SigCgt", "SigPnd", "NoNewPrivs", "Seccomp", "CapEff", "VmLck")
handlers()
sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
[signal.set_wakeup_fd(-1), signal.getitimer(signal.ITIMER_REAL)]
[threading.active_count(), threading.current_thread() is threading.main_thread(), threading.main_thread().name]
threading.get_native_id() == PID
descriptors()
open("/proc/thread-self/children").read().split()
os.getpgrp() == PID
os.getpgrp() == os.getpgid(os.getppid())
terminal()
multiprocessing.get_start_method(allow_none=True)
[multiprocessing.current_process().name, multiprocessing.parent_process()]
sys.modules["__mp_main__"] is sys.modules["__main__"]
[str(each) for each in warnings.filters]
[warnings.showwarning.__module__, warnings.formatwarning.__module__]
[logging.root.level, logging.root.handlers, logging.root.manager.disable, logging.getLoggerClass().__name__]
[gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)]
gc.get_freeze_count() > 0
[locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False)]
str(decimal.getcontext())
[faulthandler.is_enabled(), tracemalloc.is_tracing()]
atexit._ncallbacks()
open("/proc/self/comm").read()
open("/proc/self/cmdline").read().split("\\0")
os.readlink("/proc/self/exe")
prctl(2)
prctl(37)
ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
[tempfile.gettempdir(), time.tzname]
error_file()
pickle.loads(pickle.dumps(Thing)) is Thing
child("fork")
child("spawn")
child("forkserver")
caught()
os.system("exit 3")
round(time.process_time(), -1)
"""
TORCH = """
[torch.get_num_threads(), torch.get_num_interop_threads()]
[torch.get_default_dtype(), torch.get_default_device()]
[torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()]
[torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()]
[torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory]
[torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark]
[torch.cuda.is_initialized(), torch.cuda.is_available(), torch.cuda._is_in_bad_fork()]
str(torch._tensor_str.PRINT_OPTS)
[torch.multiprocessing.get_sharing_strategy(), torch.multiprocessing.get_start_method()]
[torch.distributed.is_initialized(), torch.distributed.is_torchelastic_launched()]
logging.getLogger("torch._dynamo").level
[numpy.geterr(), numpy.get_printoptions()["precision"]]
[str(each) for each in warnings.filters] + ["and torch's"]
"""
DRAWS = """
random.random()
hash("x")
str(uuid.uuid4())
str(uuid.uuid1())
secrets.token_hex(4)
next(tempfile._get_candidate_names())
bytes(multiprocessing.current_process().authkey).hex()
"""
TORCH_DRAWS = """
torch.rand(2).tolist()
torch.initial_seed()
numpy.random.random()
numpy.random.default_rng().random()
torch.nn.Linear(2, 2).weight.tolist()
torch.nn.functional.dropout(torch.ones(40)).tolist()
[int(each) for each in torch.utils.data.DataLoader(range(1000), shuffle=True)][:9]
[int(each) for each in torch.utils.data.DataLoader(range(1000), shuffle=True, num_workers=1)][:9]
list(torch.utils.data.random_split(range(1000), [9, 991])[0].indices)
"""


class Thing:
    """Something of __main__ that is pickled."""


def look(lines):
    """Evaluate each line; a module is imported when it is named."""
    found = {}
    for line in filter(None, lines.splitlines()):
        try:
            for name in re.findall(r"(?<![.\w])([a-z]+)(?=\.)", line):
                if name not in globals() and importlib.util.find_spec(name):
                    globals()[name] = importlib.import_module(name)
            found[line] = eval(line, globals())
        except Exception as error:
            found[line] = f"{type(error).__name__}: {error}"
    return found


def write(name, value):
    with open(f"{FOLDER}/{RANK}.{START}.{name}.json", "w") as file:
        json.dump(value, file, default=str)


def answer(end):
    end.send([__name__, random.random()])


def child(method):
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=answer, args=(theirs,))
    process.start()
    theirs.close()
    name, drawn = ours.recv() if ours.poll(30) else ("silent", 0)
    process.join()
    return [name, drawn == random.random(), process.exitcode]


def stream(file):
    names = ("encoding", "errors", "line_buffering", "write_through", "name", "mode", "newlines")
    kinds = {"type": type(file).__name__, "buffer": type(getattr(file, "buffer", None)).__name__}
    return {
        **kinds,
        **{n: getattr(file, n, None) for n in names},
        "tty": file.isatty(),
        "kind": kind(file.fileno()),
    }


def kind(fd):
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return "closed"
    return next(
        (word for name, word in KINDS.items() if getattr(stat, f"S_IS{name}")(mode)),
        "?",
    )


def descriptors():
    fds = sorted(map(int, os.listdir("/proc/self/fd")))
    return {fd: [kind(fd), os.get_inheritable(fd)] for fd in fds if kind(fd) not in ("closed", "folder")}


def status(*names):
    with open("/proc/self/status") as file:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {name: lines[name].strip() for name in names}


def handlers():
    numbers = [number for number in signal.valid_signals() if isinstance(number, signal.Signals)]
    return {
        number.name: getattr(signal.getsignal(number), "__name__", str(signal.getsignal(number)))
        for number in numbers
    }


def prctl(option):
    value = ctypes.c_int(0)
    return [ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0), value.value]


def terminal():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError as error:
        return error.strerror
    return os.tcgetpgrp(0) == os.getpgrp() if os.isatty(0) else "some"


def beside():
    """Whether the file is found after a change of the folder."""
    here = os.getcwd()
    os.chdir("/")
    found = os.path.exists(__file__)
    os.chdir(here)
    return found


def caught():
    try:
        json.loads("{")
    except ValueError:
        return [line.strip() for line in traceback.format_exc().splitlines()][:3]


def error_file():
    path = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    return path and [os.path.basename(path), os.path.isdir(os.path.dirname(path)), os.path.exists(path)]


def last(name, who):
    """Write what is still there for code that runs when the script has ended."""
    here = [callable(globals().get("write")), sys.modules["__main__"].__dict__ is globals()]
    write(name, {who: here})


def outlive():
    threading.main_thread().join()
    last("thread", "a thread after main")


if __name__ == "__main__":
    write("facts", {**look(FACTS), **{f"env {name}": value for name, value in os.environ.items()}})
    if "torch" in WANTED:
        write("torch", look(TORCH))
    write("draws", look(DRAWS + TORCH_DRAWS * ("torch" in WANTED)))
    if "fail" in WANTED and START == "0":  # the last does; the others are ended then
        size = int(os.environ["WORLD_SIZE"])
        while int(RANK) < size - 1 or not all(
            os.path.exists(f"{FOLDER}/{n}.0.draws.json") for n in range(size)
        ):
            time.sleep(0.02)
        sys.exit(3)
    atexit.register(last, "last", "an exit handler")
    threading.Thread(target=outlive).start()
