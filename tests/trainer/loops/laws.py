"""What each loop promises, as runs that show it: a law takes a row of LOOPS and raises Broken."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.trainer.loops.loops import Loop
from tests.trainer.loops.runs import Broken, Run

EPOCHS: Final = 2
PLACES: Final = (("before", 1), ("in", 0), ("in", 1), ("after", 0), ("behind", 1), ("behind", 0))
"""Where in a step a worker of which rank is killed."""
BOUND: Final = 90.0
"""Seconds in which a job that fails by itself has ended, its restarts among them."""
CHANGES: Final = {
    "records": (("--records=40",), "record|size|variable seen"),
    "seed": (("--seed=1",), "seed"),
    "batch": (("--batch=4",), "batch|shard 16"),
    "shuffle": (("--sampler=none",), "shuffle|sampler|order"),
    "sampler": (("--sampler=reversed",), "sampler|shuffle|order"),
}
"""Arguments that change the order of records, and the word that names the change."""


def counted_once(loop: Loop, run: Run, doubles: int = 0, epochs: int = EPOCHS) -> None:
    """Check that the job succeeded, and each record is in the state as often as there were epochs."""
    run.check(run.codes and not any(run.codes), "the job did not succeed")
    run.check(run.ends, "nobody came to the end")
    for end in run.ends[-1:] if loop.serve else run.ends:
        wrong = [times for times in end["seen"] if times != epochs]
        allowed = len(wrong) <= doubles and all(times == epochs + 1 for times in wrong)
        run.check(not wrong or allowed, f"{len(wrong)} records did not count {epochs} times: {wrong[:5]}")


def exit_code(loop: Loop, folder: Path) -> None:
    """It is 0, and the last line was printed."""
    run = loop.run(folder)
    run.check(not any(run.codes) and "the last line" in run.text, "exit code, or no last line")
    counted_once(loop, run)


def own_error(loop: Loop, folder: Path) -> None:
    """The job ends with the error, in time; nothing counts after the step."""
    run = loop.run(folder, "--at=in:3:0:raise")
    run.check(run.codes and any(run.codes), "the job did not fail")
    run.check("the step's own" in run.text, "the error is not told")
    run.check(run.seconds < BOUND, f"it took longer than {BOUND:.0f} s")
    run.check(max(run.steps(), default=0) < 3, "the step that failed was counted")


def other_data(loop: Loop, folder: Path) -> None:
    """Each change is refused by name, and without one the training goes on."""
    stopped_in_an_epoch(loop, folder)
    broken = []
    for name in loop.changes:
        arguments, word = CHANGES[name]
        other = folder.with_name(f"{folder.name}-{name}")
        shutil.copytree(folder, other)
        run = loop.run(other, *arguments, restarts=0)
        said = [
            line
            for line in run.text.splitlines()
            if re.search(word, line) and re.search("Error|Refused", line)
        ]
        if not any(run.codes) or not said:
            broken.append(f"{name} (codes {run.codes})")
    if broken:
        raise Broken(f"taken without a word: {', '.join(broken)}")
    counted_once(loop, loop.run(folder))


def stopped_in_an_epoch(loop: Loop, folder: Path, step: int = 5) -> Run:
    """Train until the script fails in an epoch, after a checkpoint."""
    step = min(step, 5) if loop.serve else step  # two workers share the steps
    pace = 0.5 if loop.serve else 0.2  # seconds, in which servers save by the clock
    run = loop.run(folder, f"--at=behind:{step}:0:raise", f"--pace={pace}", restarts=0)
    run.check(any(run.codes), "the script did not fail")
    run.check(any((folder / "kept").iterdir()), "there is no checkpoint")
    return run


def once(loop: Loop, folder: Path) -> None:
    """A worker is killed at each place of a step; a server, for which another one comes in seconds."""
    if loop.serve:
        run = loop.run(folder / "server", "--pace=0.4", away=6.0)
        counted_once(loop, run)
        run.check(run.seconds > 6, "no server was killed")
    for place, rank in PLACES:
        run = loop.run(folder / f"{place}-{rank}", f"--at={place}:3:{rank}:kill")
        run.check((run.folder / "failed").exists(), f"nobody was killed {place} the sum")
        counted_once(loop, run, loop.doubles)


def repeated(loop: Loop, folder: Path) -> None:
    """Passes are counted in the state, in the step: as many as there were steps."""
    expected = loop.run(folder / "undisturbed").ends[0]["touched"]
    run = loop.run(folder / "killed", "--at=in:5:1:kill")
    counted_once(loop, run)
    found = [end["touched"] for end in run.ends]
    run.check(all(each == expected for each in found), f"passes {found}, undisturbed {expected}")


def long_step(loop: Loop, folder: Path) -> None:
    """One worker's step takes its time."""
    run = loop.run(folder, "--at=in:3:1:long", f"--seconds={loop.long}")
    counted_once(loop, run)
    run.check(len(run.steps()) == len(set(run.steps())), "a step was counted twice")


def early_stop(loop: Loop, folder: Path) -> None:
    """What was done is not done again, and the export is there."""
    never = ("--seconds-between-saves=600",) if loop.serve else ()
    run = loop.run(folder, f"--stop={2 if loop.serve else 9}", *never)  # two workers share the steps
    run.check(not any(run.codes), "the job did not succeed")
    run.check(any((folder / "kept").iterdir()), "there is no checkpoint")
    run.check((folder / "exported").exists(), "there is no export")
    run.check("the last line" in run.text, "the script did not come to its last line")
    again = loop.run(folder)
    again.check(not any(again.codes), "the second job did not succeed")
    if loop.serve:
        counted_once(loop, again)
        made = sum("records" in line for line in again.lines)
        again.check(made <= 12 - 4 + 2, f"{made} steps of 12 came again: each worker may repeat its last")
    else:
        again.check(
            min(again.steps(), default=10) == 10, f"began again at step {min(again.steps(), default=0)}"
        )


def damaged(loop: Loop, folder: Path) -> None:
    """Bytes of the newest checkpoint are others."""
    stopped_in_an_epoch(loop, folder, step=11)
    found = (folder / "kept").rglob("[!.]*")
    files = [each for each in found if each.is_file() and each.stat().st_size > 64 and "/." not in str(each)]
    newest = max((each for each in files if each.suffix != ".json"), key=numbers)
    content = bytearray(newest.read_bytes())
    at = 4096 if len(content) > 4200 else len(content) // 2
    content[at : at + 8] = bytes(each ^ 0xFF for each in content[at : at + 8])
    newest.write_bytes(content)
    run = loop.run(folder)
    run.check(re.search("damaged|checksum|corrupt", run.text, re.IGNORECASE), f"{newest.name}: not told")
    counted_once(loop, run)


def numbers(path: Path) -> list[int]:
    """Return the numbers in a file's name and that of its folder: steps are counted up."""
    return [int(each) for each in re.findall("[0-9]+", f"{path.parent.name}/{path.name}")]


def failed_save(loop: Loop, folder: Path) -> None:
    """There is a file in the place of the folder for a while."""
    away, told, kept = folder / "away", "cannot|fail|not written|tried again|Error", folder / "kept"
    state = {"was": False}

    def watch(run: Run) -> None:
        steps = run.steps()
        if not steps:
            return
        if not away.exists() and not state["was"]:
            kept.rename(away) if kept.exists() else away.mkdir()
            kept.write_text("no folder")
            state["was"] = True
        elif away.exists() and max(steps) >= 16 and re.search(told, run.text):
            kept.unlink()
            away.rename(kept)

    run = loop.run(folder, "--pace=0.1", "--epochs=8", watch=watch)
    run.check(state["was"] and not away.exists(), "no save failed, or it is not told")
    counted_once(loop, run, epochs=8)
    again = loop.run(folder, "--epochs=8")
    again.check(not again.steps() or loop.serve, "the last state was not saved")


def half(loop: Loop, folder: Path) -> None:
    """The mean of 150 over 512 records is 150; the store adds."""
    for kind in ("float16", "bfloat16"):
        run = loop.run(folder / kind, f"--half={kind}", "--batch=512", "--records=512", "--epochs=1")
        run.check(not any(run.codes) and run.ends, "the job did not succeed")
        expected = 150.0 * (512 if loop.serve else 1)
        found = run.ends[-1]["halves"]
        right = all(abs(each - expected) <= 0.001 * expected for each in found)
        run.check(found and right, f"{kind}: {found[:3]}, not {expected}")


def newcomer(loop: Loop, folder: Path) -> None:
    """A worker is lost, and what comes in its place has another model."""
    arguments = ("--at=behind:4:1:kill", "--other", "--pace=0.3", "--epochs=4")
    run = loop.run(folder, *arguments, nodes=2, goes_on=True)
    run.check((folder / "failed").exists(), "nobody was killed")
    run.check(0 in run.codes and len(set(run.codes)) == 2, "not one alone failed")
    for end in run.ends[-1:]:
        run.check(set(end["seen"]) == {4}, f"records counted {sorted(set(end['seen']))} times")


def undisturbed(loop: Loop, folder: Path) -> None:
    """The state after a kill beside the state of a run that nobody disturbed, and of one process."""
    calm, hit = loop.run(folder / "calm"), loop.run(folder / "hit", "--at=in:5:1:kill")
    counted_once(loop, calm)
    counted_once(loop, hit)
    limit = 0.0 if loop.exact else 1e-5
    one, two = calm.ends[0]["other"], hit.ends[0]["other"]
    hit.check(max(abs(a - b) for a, b in zip(one, two, strict=True)) <= limit, f"{two}, undisturbed {one}")
    if loop.name == "lightning":  # its sampler for several workers has another order
        return
    single = loop.alone(folder / "alone")
    counted_once(loop, single)
    three = single.ends[0]["other"]
    single.check(max(abs(a - b) for a, b in zip(one, three, strict=True)) <= 1e-5, f"{three}, by two {one}")


def wrong_arguments(loop: Loop, folder: Path) -> None:
    """Nothing is trained, and the sentence names the argument."""
    run = loop.run(folder, "--wrong", restarts=0)
    run.check(any(run.codes), "taken")
    run.check(re.search(r"(Value|Type)Error: ", run.text), "there is no sentence")
    run.check(not run.steps(), "steps were made")


CHECKS: Final[dict[str, Callable[[Loop, Path], None]]] = {
    "code": exit_code,
    "own-error": own_error,
    "other-data": other_data,
    "once": once,
    "repeated": repeated,
    "long": long_step,
    "stop": early_stop,
    "damaged": damaged,
    "failed-save": failed_save,
    "half": half,
    "newcomer": newcomer,
    "undisturbed": undisturbed,
    "arguments": wrong_arguments,
}
