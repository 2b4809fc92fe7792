"""How files become sources: lines, duplicate keys, Lists, JSON, command lines."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from elasticjob.cli.convert.reading import sources
from elasticjob.cli.errors import Exit, Failure

LETTERS = "abcdefghijklmnopqrst"


def test_fields_know_their_lines() -> None:
    [source] = sources("job.yaml", "# one\nkind: A\nspec:\n  roles:\n  - name: x\n    a.b/c: 1\n")
    assert source.line("kind") == 2
    assert source.line("spec.roles[0]") == 5
    assert source.line("spec.roles[0][a.b/c]") == 6
    assert source.line("spec.absent") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("true", True),
        ("2020-01-01", "2020-01-01"),
        ("12", 12),
        ("'12'", "12"),
        ("0x10", 16),
        ("1.5", 1.5),
        ("1e999", "1e999"),
        ("1:30", "1:30"),
        ("~", None),
        ("", None),
        ("!!str 5", "5"),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(text: str, value: Any) -> None:
    [source] = sources("job.yaml", f"a: {text}\n")
    assert source.manifest == {"a": value}


def test_json_is_read_with_tabs() -> None:
    [source] = sources("job.json", '{\n\t"kind": "A",\n\t"spec": {"n": 1}\n}')
    assert source.manifest == {"kind": "A", "spec": {"n": 1}}
    assert source.line("spec.n") == 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\nspec:\n  b: 1\n  c: 2\n  b: 3\n",
         "job.yaml has spec.b twice, in lines 3 and 5; leave one of them out"),
        ("{a: 1, a: 2}", "job.yaml has a twice, in lines 1 and 1; leave one of them out"),
        ("a: [1\n", "job.yaml is not YAML in line 2: did not find expected ',' or ']'; correct it there"),
        ("- a\n- b\n", "job.yaml has no object in line 1; write a manifest, with apiVersion and kind"),
        ("? [a]\n: 1\n",
         "job.yaml has a key that is no text in line 1; write a name; "
         "a template is rendered first: helm template"),
        ("a: &a [1, 1]\n" + "".join(f"{b}: &{b} [{'*' + a}{', *' + a}]\n" for a, b in pairwise(LETTERS)),
         "job.yaml has more than 200000 values; give one manifest at a time, without aliases"),
        ("a: " + "[" * 200 + "]" * 200, "job.yaml is too deep; give one manifest at a time, without aliases"),
        ("a: &a {b: *a}", "job.yaml is too deep; give one manifest at a time, without aliases"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_a_sentence(text: str, why: str) -> None:
    with pytest.raises(Failure) as caught:
        sources("job.yaml", text)
    assert str(caught.value) == why
    assert caught.value.code is Exit.USAGE


def test_aliases_and_merges_are_followed() -> None:
    [source] = sources("job.yaml", "base: &b {x: 1, y: 2}\nmade:\n  <<: *b\n  y: 3\n")
    assert source.manifest["made"] == {"y": 3, "x": 1}


def test_documents_and_lists_are_taken_apart() -> None:
    text = "kind: A\n---\n---\napiVersion: v1\nkind: List\nitems:\n- kind: B\n  spec: {n: 1}\n- kind: C\n"
    found = sources("job.yaml", text)
    assert [each.manifest["kind"] for each in found] == ["A", "B", "C"]
    assert found[1].line("spec.n") == 8


@pytest.mark.parametrize(
    "text",
    [
        "torchrun --nnodes 2:4 train.py",
        "#!/bin/bash\n#SBATCH --nodes=4\nsrun torchrun train.py\n",
        "# comment\naccelerate launch train.py -- x: y\n",
        "python -m torch.distributed.run train.py",
        "A=1 deepspeed train.py",
    ],
)
def test_scripts_and_command_lines_are_texts(text: str) -> None:
    [source] = sources("train.sh", text)
    assert source.text == text
    assert source.manifest == {}


def test_nothing_is_no_document() -> None:
    assert sources("job.yaml", "# only a comment\n") == []
