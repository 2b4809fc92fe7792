"""What all workers of a script agree on before they save: who writes what, and that copies are equal."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

import msgspec
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from elasticjob.trainer.checkpoint.agreement import (
    Description,
    Range,
    Refused,
    agree,
    check_copies,
    copies_of,
    piece_of,
)
from elasticjob.trainer.checkpoint.opening import Exchange
from elasticjob.trainer.checkpoint.pieces import listed
from elasticjob.trainer.checkpoint.rest import PARAMETERS, REFERENCE, pointer
from elasticjob.trainer.torch.saving.tensors import Tensors
from elasticjob.trainer.torch.saving.tree import StateParts, local

log = logging.getLogger("elasticjob")

CHANGED, SAME = b"changed", b""  # nothing is exchanged by lengths alone
WORDS: Final = 1 << 16  # of 64 bits, of a tensor, that are summed up at once
FACTOR: Final = 0x5851F42D4C957F2D  # odd: the multiplier of Knuth's MMIX


class Agreed(Tensors):
    """The form of the states of scripts: each worker says what it has, and all find the same shares.

    The tensors of the names in `own` are not compared: a worker has them beside what is no tensor. Numbers
    are in the objects `numbered`.
    """

    def __init__(
        self,
        exchange: Exchange,
        rank: Callable[[], int],
        own: Collection[str] = (),
        node: str = "",
        numbered: Collection[str] = (),
    ) -> None:
        super().__init__()
        self._rank, self._node = rank, node
        self._exchange, self._own = exchange, tuple(f"{each}/" for each in own)
        self._numbered = numbered
        self._known: Description | None = None
        self._writes: frozenset[str] = frozenset()
        self._last: tuple[Any, StateParts] | None = None

    def take(self, state: Any, ended: int = 0) -> StateParts:
        """Take a state apart; what it writes is what was agreed on."""
        last, self._last = self._last, None
        taken = last[1] if last is not None and last[0] is state else StateParts(state)
        taken.ended = ended
        if self.agreed is not None:
            named = enumerate(taken.tensors)
            writes = tuple(at for at, name in named if self._is_own(name) or name in self._writes)
            taken.agreed = replace(self.agreed, writes=writes)
        return taken

    def agrees(self, state: Any) -> bool:
        """Whether this worker has what it had when all agreed."""
        return self._known is not None and self._describe(StateParts(state)) == self._known

    def agree(self, state: Any, *, again: bool = False) -> None:
        """Agree with all workers, which call this at once, if one has other pieces, or wants it `again`.

        Refused, on all of them, if what they have would be no whole checkpoint.
        """
        taken = StateParts(state)
        mine: Description | str
        try:
            mine = self._describe(taken)
        except Refused as error:
            mine = str(error)
        self._last = state, taken
        changed = again or mine != self._known
        if all(each == SAME for each in self._exchange(CHANGED if changed else SAME)):
            return
        self._known = None
        told = [_decode(each) for each in self._exchange(encode(mine))]
        if wrong := next((each for each in told if isinstance(each, str)), ""):
            raise Refused(wrong)
        all_ = [each for each in told if isinstance(each, Description)]
        shares, copies = agree(all_), copies_of(all_)
        self._compare(taken, copies)
        self._tell_numbers(taken, [each.form for each in all_])
        rank = self._rank()
        self.agreed, self._known = shares[rank], all_[rank]
        self._writes = frozenset(all_[rank].pieces[at].name for at in shares[rank].writes or ())

    def _describe(self, taken: StateParts) -> Description:
        pieces = tuple(piece_of(each) for each in taken.shapes() if not self._is_own(each.name))
        names = tuple(sorted(map(str, taken.rest))) if isinstance(taken.rest, Mapping) else ()
        return Description(pieces, repr(form_of(taken.rest, self._own)), self._node, names)

    def _is_own(self, name: str) -> bool:
        return name.startswith(self._own) if self._own else False

    def _compare(self, taken: StateParts, copies: Mapping[Range, Sequence[int]]) -> None:
        """Refuse copies of a piece that are not equal. Buffers of DDP are those of rank 0."""
        rank = self._rank()
        mine = {of: local(taken.tensors[of[0]]) for of, ranks in copies.items() if rank in ranks}
        told = [iter(decode_prints(each)) for each in self._exchange(encode(fingerprints([*mine.values()])))]
        prints = [
            {of: next(each) for of, ranks in copies.items() if at in ranks} for at, each in enumerate(told)
        ]
        try:
            check_copies(copies, prints)
        except Refused:
            known = buffers_of_ddp()
            names = [of[0] for of, each in mine.items() if each.data_ptr() in known]
            firsts = {name for each in self._exchange(encode(names)) for name in decode_names(each)}
            check_copies({of: ranks for of, ranks in copies.items() if of[0] not in firsts}, prints)

    def _tell_numbers(self, taken: StateParts, forms: Sequence[str]) -> None:
        """Say of which objects workers have other numbers: only one worker's are saved."""
        rest = taken.rest.items() if isinstance(taken.rest, Mapping) else ()
        mine = {name: crc32(repr(numbers_of(each)).encode()) for name, each in rest if name in self._numbered}
        told = [decode_crcs(each) for each in self._exchange(encode(mine))]
        firsts = {form: told[forms.index(form)] for form in forms}
        pairs = zip(told, forms, strict=True)
        differ = {name for each, form in pairs for name in each if each[name] != firsts[form].get(name)}
        if differ and self._rank() == 0:
            log.warning(
                "workers have other numbers in %s, and those of one are saved: give what is each worker's "
                "own as Local(...)",
                listed(sorted(differ)),
            )


def form_of(value: Any, own: Collection[str], name: str = "") -> Any:
    """Return what is the same for two rests of one form: keys, and where tensors are; numbers may differ."""
    if f"{name}/" in own:
        return name
    if isinstance(value, Mapping):
        if value.keys() == {REFERENCE}:
            return value[REFERENCE]
        return {str(key): form_of(each, own, pointer(name, key)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        inner = [form_of(each, own, pointer(name, at)) for at, each in enumerate(value)]
        return inner if any(inner) else ""
    return value if isinstance(value, str) and name.rpartition("/")[0].endswith(PARAMETERS) else ""


def numbers_of(value: Any) -> Any:
    """Return a rest without its texts."""
    if isinstance(value, Mapping):
        return {key: numbers_of(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers_of(each) for each in value]
    return "" if isinstance(value, str) else value


def fingerprints(tensors: Sequence[Tensor]) -> list[int]:
    """Return a number for the bits of each tensor, made on its device: a sum of words, weighted by place."""
    weights: dict[torch.device, Tensor] = {}
    for device in {each.device for each in tensors}:
        weights[device] = torch.arange(WORDS, device=device).mul_(2).add_(1).mul_(FACTOR)
    sums = [_sum(each, weights[each.device]) for each in tensors]
    return [each if isinstance(each, int) else int(each.item()) for each in sums]


def _sum(tensor: Tensor, weights: Tensor) -> Tensor | int:
    if tensor.is_meta or not tensor.numel():
        return 0
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    flat = torch.nn.functional.pad(flat, (0, -len(flat) % 8)) if len(flat) % 8 else flat
    if flat.storage_offset() % 8 or flat.data_ptr() % 8:
        flat = flat.clone()
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    for number, words in enumerate(torch.split(flat.view(torch.int64), WORDS)):
        total = total * FACTOR + (words ^ (words >> 29)).mul_(weights[: len(words)]).sum() + number
    return total


def buffers_of_ddp() -> set[int]:
    """Return where all buffers are if there is DistributedDataParallel: rank 0 gives them to the others.

    It does so before the next forward pass, so those of rank 0 are the state, and that of an average of the
    model. A script may wrap a model later that it saves, so they are looked for, only where buffers differ.
    """
    modules = [each for each in gc.get_objects() if issubclass(type(each), nn.Module)]
    if not any(isinstance(each, DistributedDataParallel) for each in modules):
        return set()
    return {buffer.data_ptr() for each in modules for buffer in each.buffers(recurse=False)}


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Description | str).decode
decode_prints = msgspec.msgpack.Decoder(list[int]).decode
decode_crcs = msgspec.msgpack.Decoder(dict[str, int]).decode
decode_names = msgspec.msgpack.Decoder(list[str]).decode
