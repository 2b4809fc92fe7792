"""What is drawn: layouts, each of which loads what the last one saved, and words about model and story."""

from __future__ import annotations

import re
from random import Random
from typing import Final

LAYOUTS: Final = """one1 ddp2 ddp3 fsdp2 fsdp3 fsdp4 fsdp7 rep2.fsdp2 rep2.fsdp3 rep3.fsdp2 tp2 tp3 tp4 sp2
sp3 sp4 fsdp2.tp2 fsdp2.sp2 fsdp2.tp3 fsdp3.tp2 fsdp2.tp4 rep2.fsdp2.tp2 rep2.fsdp2.sp2 pp2 pp3 pp2.ddp2
pp2.fsdp2 pp3.fsdp2 pp2.tp2 pp2.sp2 pp2.fsdp2.tp2 pp2.rep2.fsdp2 ep2 ep4 fsdp2.ep2 fsdp3.ep2 pp2.ep2 pp2.cp2
pp2.fsdp2.ep2 cp2.fsdp2 rep2.cp2 cp2.fsdp2.tp2 megatron2 megatron3 zero2 zero3"""
APART: Final = frozenset({"megatron", "zero"})
"""Their workers have other plain tensors of the same names: refused, unless they are `Local`."""
FREE: Final = "frozen buffers uneven bfloat16 scheduler random killed memory"
UNABLE: Final = {
    "tied": "pp tp sp megatron",  # parallelize_module unties
    "lora": "sp megatron zero",  # adapters are plain: their gradients would be those of a chunk
    "experts": "tp sp megatron zero",
    "batchnorm": "rep fsdp ep cp tp sp megatron",
    "tiny": "tp sp megatron",  # torch's AdamW refuses what has fewer rows than workers
    "sgd": "sp",  # the momentum of a norm is a sum that torch has not made: refused after a step
    **dict.fromkeys(("two", "groups"), "megatron zero"),
    "local": "one ddp fsdp rep tp sp pp ep cp",
    **dict.fromkeys(FREE.split(), ""),
}
"""All words, and the dimensions that cannot have them."""
ODDS: Final = {"memory": 0.2, "killed": 0.4, "local": 0.5, "experts": 0.5}


class Case:
    """Layouts and words, from a text such as `fsdp2.tp2 > pp2: tied killed`."""

    def __init__(self, text: str) -> None:
        layouts, _, words = text.partition(":")
        self.text, self.layouts, self.words = text, layouts.replace(" ", "").split(">"), {*words.split()}

    def is_refused(self, life: int) -> bool:
        """Whether a layout has to be refused; `Local` objects are those of the same layout alone."""
        changed = self.layouts[life] != self.layouts[max(0, life - 1)]
        return changed if "local" in self.words else not APART.isdisjoint(sizes(self.layouts[life]))


def sizes(layout: str) -> dict[str, int]:
    """Return the dimensions of a layout and their sizes, which multiply to its workers."""
    return {name: int(size) for name, size in re.findall(r"([a-z]+)(\d+)", layout)}


def draw(seed: int, number: int) -> Case:
    """Return the case of a number."""
    chance, all_ = Random(f"{seed}/{number}"), LAYOUTS.split()
    first, other = chance.choice(all_), chance.choice(all_)
    other = first if not APART.isdisjoint(sizes(other)) else other  # it would take a replica for its own
    layouts = chance.choice(((first, first), (first, other), (first, other, first)))
    dimensions = {name for layout in layouts for name in sizes(layout)}
    drawn = [word for word in UNABLE if chance.random() < ODDS.get(word, 0.22)]
    if any("fsdp" in each and not {"tp", "sp"}.isdisjoint(each) for each in map(sizes, layouts)):
        drawn = [word for word in drawn if word != "uneven"]  # torch trains its copies apart
    words = sorted(word for word in drawn if dimensions.isdisjoint(UNABLE[word].split()))
    return Case(f"{' > '.join(layouts)}: {' '.join(words)}")
