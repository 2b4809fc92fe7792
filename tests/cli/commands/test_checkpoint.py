"""`elasticjob checkpoint`: what is stored is told, and exported so that plain torch reads it."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

import elasticjob
from elasticjob.trainer.checkpoint import part
from elasticjob.trainer.checkpoint.part import Head
from elasticjob.trainer.checkpoint.storage import Manifest, Storage
from elasticjob.trainer.torch.checkpoint import Checkpoint
from elasticjob.trainer.torch.saved import Described, NoCheckpoint, Saved, found, read
from elasticjob.trainer.torch.saving.named import by_name, names_of
from elasticjob.trainer.torch.saving.tree import StateParts, tensor_in
from tests.kit.commands import invoke


def checkpoint(*arguments: object) -> tuple[int, str, str]:
    result = invoke("checkpoint", *arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A place with the steps 5 and 10 of a training, and the state of step 10."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    notes: dict[str, Any] = {"ema.slow": {"w": torch.ones(2)}, "seen": [1, (2, "three")]}
    state = {"model": model, "optimizer": optimizer, "notes": notes}
    keeper = Checkpoint(tmp_path / "run", state, every=1, save_every=1, environment={})
    for step in (5, 10):
        model(torch.ones(4, 3, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
        keeper.save(step)
    named = by_name(optimizer.state_dict(), optimizer, names_of({"model": model}))
    whole = {"model": model.state_dict(), "optimizer": named, "notes": notes}
    return tmp_path / "run", whole


def save_parts(
    where: Path,
    pieces: list[tuple[tuple[int, ...], torch.Tensor]],
    whole: tuple[int, ...],
    own: Sequence[dict[str, Any]] = ({}, {}),
) -> None:
    """Save one tensor `w`, a piece of it in each part, as workers of FSDP2 do, and `b`, which all have."""
    storage, files = Storage(str(where)), []
    for number, (offset, piece) in enumerate(pieces):
        b = torch.arange(3)
        state = {"model": {"w": piece, "b": b}, **own[number]}
        taken = StateParts(state)
        name_w, name_b = taken.tensors
        shapes = [part.Shape(name_w, "float32", tuple(piece.shape), 4, whole, offset)]
        shapes += [part.Shape(name_b, "int64", (3,), 8)]
        tensors, at = part.place(shapes)
        head = Head(
            step=1,
            round=1,
            part=number,
            parts=len(pieces),
            tensors=tensors,
            rest=taken.encode(),
            ranks=(number,),
        )
        block = memoryview(bytearray(at + len(body := part.encode(head))))
        for where_, tensor in zip(tensors, (piece, b), strict=True):
            tensor_in(block, where_).copy_(tensor)
        part.seal(block, body, at)
        files.append(storage.write(block))
    storage.commit(Manifest(1, 1, tuple(file for file, _ in files)), [head for _, head in files], keep=1)


def same(one: Any, other: Any) -> bool:
    """Whether two states have the same tensors, numbers and order."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.dtype is other.dtype
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_show_tells_steps_tensors_and_values(saved: tuple[Path, dict[str, Any]]) -> None:
    code, shown, _ = checkpoint("show", saved[0])
    assert code == 0
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for expected in ("0.weight bfloat16 2×3 12 B", "1.num_batches_tracked int64 scalar 8 B", "lr: 0.001"):
        assert expected in lines
    assert [line.split()[1] for line in lines if line.endswith("readable")] == ["5", "10"]
    shallow = checkpoint("show", saved[0], "--depth", 1)[1].split("step 10\n")[-1]
    assert shallow.splitlines() == ["  model: 7 values", "  optimizer: 2 values", "  notes: 2 values"]


def test_json_has_the_same(saved: tuple[Path, dict[str, Any]]) -> None:
    code, shown, _ = checkpoint("show", saved[0], "--step", 5, "--verify", "--json")
    told = json.loads(shown)
    assert code == 0
    assert [(each["step"], each["condition"]) for each in told["checkpoints"]] == [
        (5, "whole"),
        (10, "whole"),
    ]
    assert told["step"] == 5
    assert told["state"]["model"]["0.weight"] == {
        "tensor": {"dtype": "bfloat16", "shape": [2, 3], "bytes": 12}
    }
    assert told["state"]["notes"]["seen"] == [1, [2, "three"]]


def test_a_changed_byte_and_a_short_file_are_found_by_verify(
    saved: tuple[Path, dict[str, Any]],
) -> None:
    place, _ = saved
    (newest,) = place.glob("step-000000010/part*")
    content = bytearray(newest.read_bytes())
    content[part.START] ^= 1
    newest.write_bytes(content)
    assert checkpoint("show", place)[0] == 0
    code, shown, _ = checkpoint("show", place, "--verify")
    assert code == 1
    assert "damaged: part-00000" in shown
    assert "\nstep 5\n" in shown  # the newest that can be used
    newest.write_bytes(content[:-5])
    assert checkpoint("show", place, "--verify")[0] == 1


def test_two_trainings_in_one_place_are_told(saved: tuple[Path, dict[str, Any]]) -> None:
    manifest = saved[0] / "step-000000010" / "manifest.json"
    manifest.write_bytes(msgspec.json.encode({**json.loads(manifest.read_bytes()), "by": "b", "after": 0}))
    code, shown, _ = checkpoint("show", saved[0])
    assert code == 1
    assert "step 10 is of the one, step 5 of the other" in shown


@pytest.mark.parametrize(
    ("spoil", "code", "sentence"),
    [
        (lambda place: ["show", place / "absent"], 1, "there is no folder"),
        (lambda place: ["show", place.parent], 1, "there is no checkpoint in"),
        (lambda place: ["show", "memory://"], 1, "keeps checkpoints in the memory"),
        (lambda place: ["show", "what://x"], 1, "need a Python package for what://"),
        (lambda place: ["show", place, "--step", 7], 1, "there is no step 7 in"),
        (lambda place: ["export", place, place / "a.pt", "--step", 7], 1, "there are 5, 10"),
        (lambda place: ["export", place, place / "a"], 2, "give --format torch, safetensors or dcp"),
        (lambda place: ["export", place, place], 2, "does not tell the format"),
        (lambda place: ["export", place, place / "a.pt", "--only", "modle"], 2, "model, optimizer, notes"),
        (lambda place: ["export", place, place / "a.pt", "--only", "notes.seen.7"], 2, "7 is not there"),
        (lambda place: ["export", place, place / "a", "--shard-size", "5GBs"], 2, "--shard-size: "),
        (lambda place: ["export", place, place / "a.pt", "--shard-size", "5GB"], 2, "is for safetensors"),
        (lambda place: ["import", place, place.parent / "new"], 1, "has no files of others"),
        (lambda place: ["import", place / "absent.pt", place.parent / "new"], 1, "there is no"),
        (lambda place: ["import", "a.pt", place], 1, "has checkpoints: give an empty place"),
        (lambda place: ["export", place, part_of(place), "--format", "torch"], 1, "is there already"),
        (lambda place: ["export", damaged(place), place / "a.pt"], 1, "the checkpoint is damaged: part-"),
        (lambda place: ["export", newer(place), place / "a.pt"], 1, "use a newer elasticjob"),
        (lambda place: ["export", unread(place), place / "a.pt"], 1, "No such file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(
    saved: tuple[Path, dict[str, Any]], spoil: Any, code: int, sentence: str
) -> None:
    place, _ = saved
    got, _, errors = checkpoint(*spoil(place))
    assert (got, sentence in errors, errors.count("\n")) == (code, True, 1), errors
    assert not list(place.glob("a*"))


def part_of(place: Path) -> Path:
    return next(place.glob("step-000000010/part*"))


def damaged(place: Path) -> Path:
    part_of(place).write_bytes(part_of(place).read_bytes()[: part.START + 5])
    return place


def newer(place: Path) -> Path:
    manifest = part_of(place).with_name("manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    return place


def unread(place: Path) -> Path:
    part_of(place).unlink()
    return place


def test_torch_reads_the_whole_state(tmp_path: Path, saved: tuple[Path, dict[str, Any]]) -> None:
    place, state = saved
    assert checkpoint("export", place, tmp_path / "all.pt")[0] == 0
    assert same(torch.load(tmp_path / "all.pt", weights_only=True), state)
    assert same(read(place), state)
    assert not same(read(place, 5), state)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["all.pt", "run"]


def test_safetensors_has_the_names_of_the_model(tmp_path: Path, saved: tuple[Path, dict[str, Any]]) -> None:
    place, state = saved
    assert checkpoint("export", place, tmp_path / "m.safetensors", "--only", "model")[0] == 0
    content = (tmp_path / "m.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:end])
    assert table.pop("__metadata__") == {"format": "pt"}
    assert sorted(table) == sorted(state["model"])
    begin, stop = table["0.weight"]["data_offsets"]
    weight = torch.frombuffer(bytearray(content[end + begin : end + stop]), dtype=torch.bfloat16)
    assert torch.equal(weight.view(table["0.weight"]["shape"]), state["model"]["0.weight"])
    assert stop <= len(content) - end
    package = pytest.importorskip("safetensors.torch")
    loaded = package.load_file(tmp_path / "m.safetensors")
    assert same(OrderedDict(sorted(loaded.items())), OrderedDict(sorted(state["model"].items())))


def test_safetensors_tells_what_it_leaves_out_and_refuses_two_of_one_name(tmp_path: Path) -> None:
    notes: dict[str, Any] = {"a.b": torch.ones(1), "n": 3}
    keeper = Checkpoint(tmp_path / "run", {"notes": notes}, every=1, save_every=1, environment={})
    keeper.save(1)
    code, said, _ = checkpoint("export", tmp_path / "run", tmp_path / "a.safetensors")
    assert (code, "without 1 values that are no tensors" in said) == (0, True)
    notes["a"] = {"b": torch.zeros(1)}
    keeper.save(2)
    for kind in ("safetensors", "dcp"):
        code, _, errors = checkpoint("export", tmp_path / "run", tmp_path / "b", "--format", kind)
        assert (code, "use --format torch" in errors) == (1, True), errors
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.safetensors", "run"]


def test_layers_are_exported_to_files_of_a_size_and_imported_as_a_step_0(
    tmp_path: Path, saved: tuple[Path, dict[str, Any]]
) -> None:
    place, state = saved
    assert checkpoint("export", place, tmp_path / "hf", "--only", "model", "--shard-size", "20B")[0] == 0
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_bytes())
    sizes = {name: each.nbytes for name, each in state["model"].items()}
    assert (index["metadata"]["total_size"], index["weight_map"].keys()) == (
        sum(sizes.values()),
        sizes.keys(),
    )
    for file in {*index["weight_map"].values()}:
        assert sum(sizes[name] for name, of in index["weight_map"].items() if of == file) <= 20
        assert re.fullmatch(r"model-0000\d-of-00002.safetensors", file)
    assert checkpoint("import", tmp_path / "hf", tmp_path / "new", "--as", "net")[0] == 0
    assert "step 0" in checkpoint("show", tmp_path / "new", "--verify")[1]
    read_ = read(tmp_path / "new")["net"]
    assert read_.keys() == state["model"].keys()
    assert all(torch.equal(read_[name], each) for name, each in state["model"].items())
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch.bfloat16)
    both = {"net": net, "optimizer": torch.optim.Adam(net.parameters())}
    with pytest.raises(ValueError, match="give the same names"):
        Checkpoint(tmp_path / "new", both, environment={}).load()
    assert Checkpoint(tmp_path / "new", both, environment={}, allow_missing="optimizer").load() == 0
    assert torch.equal(net.get_parameter("0.weight"), state["model"]["0.weight"])


def test_distributed_checkpoint_loads_it(tmp_path: Path, saved: tuple[Path, dict[str, Any]]) -> None:
    from torch.distributed.checkpoint.state_dict_loader import load  # a CPU second of imports

    place, state = saved
    assert checkpoint("export", place, tmp_path / "d", "--format", "dcp")[0] == 0
    mine = {"model": {name: torch.zeros_like(each) for name, each in state["model"].items()}}
    with pytest.warns(UserWarning, match=r"torch\.distributed is"):
        load(mine, checkpoint_id=tmp_path / "d", no_dist=True)
    assert all(torch.equal(mine["model"][name], each) for name, each in state["model"].items())


@pytest.mark.parametrize("axis", [0, 1])
def test_a_tensor_of_several_parts_is_whole_again(tmp_path: Path, axis: int) -> None:
    whole = torch.arange(35.0).view(5, 7)
    cut = [whole.narrow(axis, 0, 3), whole.narrow(axis, 3, whole.shape[axis] - 3)]
    offsets = [(0, 0), (3, 0) if axis == 0 else (0, 3)]
    save_parts(tmp_path, list(zip(offsets, cut, strict=True)), (5, 7))
    assert same(read(tmp_path), {"model": {"w": whole, "b": torch.arange(3)}})
    described = Saved(*found(str(tmp_path))).described()
    assert described["model"] == {"w": Described("float32", (5, 7)), "b": Described("int64", (3,))}


def test_show_tells_pieces_and_what_each_worker_has_for_itself(tmp_path: Path) -> None:
    own = [{"own": {rank: {"seen": rank}}} for rank in range(2)]
    save_parts(tmp_path, [((0,), torch.ones(3)), ((3,), torch.ones(2))], (5,), own)
    shown = [" ".join(line.split()) for line in checkpoint("show", tmp_path)[1].splitlines()]
    for expected in ("w float32 5 20 B 2 pieces", "b int64 3 24 B", "own: one for each of 2 workers"):
        assert expected in shown
    assert (
        json.loads(checkpoint("show", tmp_path, "--json")[1])["state"]["model"]["w"]["tensor"]["pieces"] == 2
    )


def test_verify_names_the_tensor_that_a_part_lacks(tmp_path: Path) -> None:
    save_parts(tmp_path, [((0,), torch.ones(3)), ((3,), torch.ones(2))], (5,))
    (found_,) = tmp_path.glob("*/part-00001*")
    content = bytearray(found_.read_bytes())
    content[part.START] ^= 1
    found_.write_bytes(content)
    code, shown, _ = checkpoint("show", tmp_path, "--verify")
    assert (code, "model.w is not what was written" in shown) == (1, True), shown
    found_.unlink()
    code, shown, _ = checkpoint("show", tmp_path, "--verify")
    assert (code, "No such file or directory; it has model.w, model.b" in shown) == (1, True), shown


def test_a_tensor_of_which_a_piece_is_missing_is_damage(tmp_path: Path) -> None:
    with pytest.raises(part.Damaged, match=r"model/w: no part has the element \(4,\) of \(5,\)"):
        save_parts(tmp_path, [((0,), torch.ones(3)), ((3,), torch.ones(1))], (5,))
    assert not list(tmp_path.glob("*/manifest.json"))


def test_what_was_set_aside_is_told(saved: tuple[Path, dict[str, Any]]) -> None:
    place, _ = saved
    for step in (5, 10):
        Storage(str(place)).set_aside(step, "its bytes are wrong")
    with pytest.raises(NoCheckpoint, match="set aside as damaged: step 5, 10"):
        read(place)
    assert "step 10  set aside" in checkpoint("show", place)[1]
    assert checkpoint("show", place)[0] == 1


def test_the_page_shows_commands_and_code_that_work(
    tmp_path: Path, saved: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(elasticjob.__file__).parents[1] / "docs" / "checkpoints.md").read_text()
    page = page.replace("/mnt/run", str(saved[0])).replace("4000", "5")
    commands = re.findall(r"^elasticjob (checkpoint .*?)(?:  +#.*)?$", page, re.MULTILINE)
    assert len(commands) == 7
    for each in commands:
        code, _, errors = checkpoint(*each.split()[1:])
        assert code == 0, errors
    (code_,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch.bfloat16)
    exec(code_, {"model": model})
    assert same(dict(model.state_dict()), dict(saved[1]["model"]))
