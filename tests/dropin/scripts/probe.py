"""Writes all that a script can observe to FOLDER/RANK.START.json; `probe.py FOLDER [torch] [omp] [fail]`."""

import os
import sys

FOLDER, *WANTED = sys.argv[1:]
RANK, START = os.environ.get("RANK", "0"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
if "omp" in WANTED:
    os.environ["OMP_NUM_THREADS"] = "3"
    os.environ["TORCH_LOGS"] = "+dynamo"
FRAMES = 0
frame = sys._getframe()
while frame := frame.f_back:
    FRAMES += 1
SOON = {
    "modules": sorted(
        {name.partition(".")[0] for name in sys.modules} - {*sys.stdlib_module_names, "sitecustomize"}
    ),
    "globals": sorted(name for name in globals() if name.startswith("__")),
    "frames above": FRAMES,
    "threads": len(os.listdir("/proc/self/task")),
    "stack of __main__": sys.modules["__main__"].__dict__ is globals(),
}

import atexit
import builtins
import ctypes
import decimal
import faulthandler
import gc
import importlib
import json
import locale
import logging
import multiprocessing
import pickle
import random
import resource
import secrets
import signal
import stat
import tempfile
import threading
import time
import tracemalloc
import traceback
import uuid
import warnings

KINDS = {stat.S_IFCHR: "char", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFREG: "file", stat.S_IFDIR: "folder"}


class Thing:
    """Something of __main__ that is pickled."""


def write(name, value):
    with open(f"{FOLDER}/{RANK}.{START}.{name}.json", "w") as file:
        json.dump(value, file, default=str)


def answer(end):
    end.send([__name__, os.getppid() == PID, random.random() if random else None, "omp" in WANTED])


def child(method):
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=answer, args=(theirs,))
    process.start()
    theirs.close()
    found = ours.recv() if ours.poll(20) else "silent"
    process.join()
    found = [found[0], found[2] == random.random()] if isinstance(found, list) else found
    return [found, process.exitcode]


def stream(file):
    return {
        "type": type(file).__name__,
        "buffer": type(getattr(file, "buffer", None)).__name__,
        **{name: getattr(file, name, None) for name in ("encoding", "errors", "line_buffering", "write_through", "name", "mode", "newlines")},
        "tty": file.isatty(),
        "fd": file.fileno(),
        "kind": kind(file.fileno()),
    }


def kind(fd):
    try:
        return KINDS[stat.S_IFMT(os.fstat(fd).st_mode)] + (":" + os.ttyname(fd) if os.isatty(fd) else "")
    except OSError:
        return "closed"


def descriptors():
    found = {}
    for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
        if kind(fd) not in ("closed", "folder"):
            found[fd] = f"{kind(fd)} {'inherited' if os.get_inheritable(fd) else 'own'}"
    return found


def status(*names):
    lines = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
    return {name: lines[name].strip() for name in names}


def prctl(option):
    value = ctypes.c_int(0)
    libc = ctypes.CDLL(None)
    answered = libc.prctl(option, ctypes.byref(value), 0, 0, 0)
    return [answered, value.value]


def beside():
    here = os.getcwd()
    os.chdir("/")
    try:
        return os.path.exists(__file__)
    finally:
        os.chdir(here)


def caught():
    try:
        raise ValueError("x")
    except ValueError:
        return [line.strip().split(",")[0] for line in traceback.format_exc().splitlines()]


def after_fork(code):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, json.dumps(code()).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(reading, 9999))


PID = os.getpid()
FACTS = {
    "__file__": lambda: __file__,
    "__file__ after chdir": beside,
    "__name__": lambda: __name__,
    "__spec__": lambda: __spec__ and [__spec__.name, __spec__.origin],
    "__package__": lambda: __package__,
    "__loader__": lambda: type(__loader__).__name__,
    "__cached__": lambda: globals().get("__cached__", "none"),
    "__builtins__": lambda: __builtins__ is builtins,
    "__main__": lambda: sys.modules["__main__"].__dict__ is globals(),
    "__main__.__file__": lambda: sys.modules["__main__"].__file__,
    "builtins": lambda: sorted(set(dir(builtins)))[-40:],
    **{f"sys.{name}": (lambda name=name: getattr(sys, name)) for name in (
        "argv", "orig_argv", "path", "flags", "executable", "prefix", "warnoptions", "_xoptions",
        "dont_write_bytecode", "float_repr_style", "pycache_prefix", "tracebacklimit")if hasattr(sys, name)},
    **{f"sys.{name}()": (lambda name=name: getattr(sys, name)()) for name in (
        "getrecursionlimit", "getswitchinterval", "getdlopenflags", "gettrace", "getprofile",
        "getfilesystemencoding", "getdefaultencoding", "get_asyncgen_hooks", "get_coroutine_origin_tracking_depth")},
    "sys.meta_path": lambda: [getattr(each, "__name__", type(each).__name__) for each in sys.meta_path],
    "sys.path_hooks": lambda: len(sys.path_hooks),
    **{f"hook {name}": (lambda name=name: getattr(sys, name) is getattr(sys, f"__{name}__")) for name in (
        "excepthook", "displayhook", "unraisablehook", "breakpointhook")},
    "hook threading": lambda: threading.excepthook is threading.__excepthook__,
    **{name: (lambda name=name: stream(getattr(sys, name))) for name in ("stdin", "stdout", "stderr")},
    "streams are the first": lambda: [getattr(sys, n) is getattr(sys, f"__{n}__") for n in ("stdin", "stdout", "stderr")],
    "cwd": os.getcwd,
    "umask": lambda: os.umask(os.umask(0)) if False else [os.umask(0o22), os.umask(0o22)][0],
    "rlimits": lambda: {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT")},
    "nice": lambda: os.nice(0),
    "affinity": lambda: sorted(os.sched_getaffinity(0)),
    "scheduler": lambda: os.sched_getscheduler(0),
    "oom_score_adj": lambda: open("/proc/self/oom_score_adj").read().strip(),
    "user": lambda: [os.getresuid(), os.getresgid(), os.getgroups()],
    "status": lambda: status("SigBlk", "SigIgn", "SigCgt", "SigPnd", "NoNewPrivs", "Seccomp", "CapEff"),
    "handlers": lambda: {n.name: str(getattr(signal.getsignal(n), "__name__", signal.getsignal(n))) for n in signal.valid_signals() if isinstance(n, signal.Signals)},
    "mask": lambda: sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "wakeup fd": lambda: signal.set_wakeup_fd(-1),
    "timers": lambda: signal.getitimer(signal.ITIMER_REAL),
    "thread": lambda: [threading.active_count(), threading.current_thread() is threading.main_thread(), threading.main_thread().name, threading.get_native_id() == os.getpid()],
    "descriptors": descriptors,
    "children": lambda: open(f"/proc/self/task/{PID}/children").read().split(),
    "leads its group": lambda: os.getpgrp() == PID,
    "leads its session": lambda: os.getsid(0) == PID,
    "group of its parent": lambda: os.getpgrp() == os.getpgid(os.getppid()),
    "session of its parent": lambda: os.getsid(0) == os.getsid(os.getppid()),
    "terminal": lambda: os.ctermid() and _tty(),
    "start method": lambda: multiprocessing.get_start_method(allow_none=True),
    "mp process": lambda: [multiprocessing.current_process().name, multiprocessing.parent_process(), len(multiprocessing.current_process().authkey)],
    "warnings": lambda: [str(each) for each in warnings.filters],
    "warnings shown": lambda: [warnings.showwarning.__module__, warnings.formatwarning.__module__],
    "logging": lambda: [logging.root.level, [type(h).__name__ for h in logging.root.handlers], logging.root.manager.disable, logging.raiseExceptions, logging.lastResort is logging._defaultLastResort, logging.getLoggerClass().__name__],
    "gc": lambda: [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)],
    "gc frozen": lambda: gc.get_freeze_count() > 0,
    "locale": lambda: [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False), locale.getlocale()],
    "decimal": lambda: str(decimal.getcontext()),
    "faulthandler": faulthandler.is_enabled,
    "tracemalloc": tracemalloc.is_tracing,
    "atexit": atexit._ncallbacks,
    "comm": lambda: open("/proc/self/comm").read().strip(),
    "cmdline": lambda: open("/proc/self/cmdline").read().split("\0"),
    "exe": lambda: os.readlink("/proc/self/exe"),
    "parent dies": lambda: prctl(2),
    "dumpable": lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
    "subreaper": lambda: prctl(37),
    "tempdir": tempfile.gettempdir,
    "time zone": lambda: time.tzname,
    "error file": lambda: [os.path.basename(os.environ.get("TORCHELASTIC_ERROR_FILE", "")), os.path.isdir(os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", "")))] if "TORCHELASTIC_ERROR_FILE" in os.environ else None,
    "pickle": lambda: [pickle.loads(pickle.dumps(Thing)) is Thing, pickle.dumps(Thing).count(b"__main__")],
    "fork child": lambda: child("fork"),
    "spawn child": lambda: child("spawn"),
    "forkserver child": lambda: child("forkserver"),
    "forked": lambda: after_fork(lambda: [os.getppid() == PID, threading.active_count()]),
    "error": caught,
    "system()": lambda: os.system("exit 3"),
    "import beside": lambda: importlib.import_module("beside").WHO,
    "cpu seconds so far": lambda: round(time.process_time(), -1),
    "memory lock": lambda: status("VmLck")["VmLck"],
    "capacity": lambda: [os.cpu_count(), len(os.sched_getaffinity(0))],
}
DRAWS = {
    "random": random.random,
    "hash": lambda: hash("x"),
    "uuid": lambda: str(uuid.uuid4()),
    "uuid1": lambda: str(uuid.uuid1()),
    "secrets": lambda: secrets.token_hex(4),
    "tempname": lambda: next(tempfile._get_candidate_names()),
    "authkey": lambda: bytes(multiprocessing.current_process().authkey).hex(),
}


def _tty():
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError as error:
        return error.strerror
    return os.tcgetpgrp(0) == os.getpgrp() if os.isatty(0) else "some"


def with_torch():
    numpy, torch = map(importlib.import_module, ("numpy", "torch"))  # nobody reads here that they are imported
    flags = {
        "threads": lambda: [torch.get_num_threads(), torch.get_num_interop_threads()],
        "dtype": torch.get_default_dtype,
        "device": torch.get_default_device,
        "grad": lambda: [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()],
        "autocast": lambda: [torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()],
        "deterministic": lambda: [torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(), torch.utils.deterministic.fill_uninitialized_memory],
        "precision": lambda: [torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cuda.matmul.allow_tf32],
        "cuda": lambda: [torch.cuda.is_initialized(), torch.cuda.is_available(), torch.cuda._is_in_bad_fork()],
        "printing": lambda: str(torch._tensor_str.PRINT_OPTS),
        "sharing": lambda: [torch.multiprocessing.get_sharing_strategy(), torch.multiprocessing.get_start_method()],
        "distributed": lambda: [torch.distributed.is_initialized(), torch.distributed.is_torchelastic_launched()],
        "logs": lambda: [logging.getLogger("torch._dynamo").level, logging.getLogger("torch").level, len(logging.getLogger("torch").handlers)],
        "numpy": lambda: [numpy.geterr(), numpy.get_printoptions()["precision"]],
        "warnings": lambda: [str(each) for each in warnings.filters],
        "handlers": FACTS["handlers"],
        "tasks": lambda: len(os.listdir("/proc/self/task")),
        "hooks": lambda: sys.excepthook is sys.__excepthook__,
    }
    data = list(range(1000))
    draws = {
        "torch": lambda: torch.rand(2).tolist(),
        "torch seed": torch.initial_seed,
        "numpy": lambda: numpy.random.random(),
        "numpy generator": lambda: numpy.random.default_rng().random(),
        "generator": lambda: torch.Generator().initial_seed(),
        "layer": lambda: torch.nn.Linear(2, 2).weight.tolist(),
        "dropout": lambda: torch.nn.functional.dropout(torch.ones(40)).tolist(),
        "loader": lambda: [int(each) for each in torch.utils.data.DataLoader(data, shuffle=True)][:9],
        "loader of a process": lambda: [int(each) for each in torch.utils.data.DataLoader(data, shuffle=True, num_workers=1)][:9],
        "split": lambda: list(torch.utils.data.random_split(data, [9, 991])[0].indices),
    }
    return {f"torch {name}": each for name, each in flags.items()}, draws


def observed(facts):
    for name, look in facts.items():
        try:
            yield name, look()
        except Exception as error:
            yield name, f"{type(error).__name__}: {error}"


def outlive():
    threading.main_thread().join()
    write("thread", {"thread after main": sorted(name for name in ("write", "Thing", "json") if name in globals() and globals()[name])})


def last():
    import __main__

    write("last", {"atexit": [bool(globals().get("Thing")), __main__.__dict__ is globals(), callable(write), os.getpid() == PID]})


if __name__ == "__main__":
    facts, draws = FACTS, DRAWS
    seen = {**SOON, **dict(observed(facts))}
    seen |= {f"env {name}": value for name, value in os.environ.items()}
    if "torch" in WANTED or "omp" in WANTED:
        flags, more = with_torch()
        seen |= dict(observed(flags))
        draws = {**draws, **more}
    write("facts", seen)
    write("draws", dict(observed(draws)))
    atexit.register(last)
    threading.Thread(target=outlive).start()
    if "fail" in WANTED and START == "0":
        sys.exit(3)
