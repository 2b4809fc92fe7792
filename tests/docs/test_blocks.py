"""Each code block of the pages: run by a test, or held against the program that reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kit.blocks import Block, blocks, python_problems, shell_problems, yaml_problems

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "design"),
]
"""All but the design notes, which show what was planned at their time."""
BLOCKS: Final = [block for page in PAGES for block in blocks(page)]
RUN: Final = {
    ("docs/walkthrough.md", "console"): "tests/docs/test_followed.py",
    ("docs/tutorial.md", "console"): "tests/docs/test_followed.py",
    ("docs/tutorial.md", "python"): "tests/docs/test_followed.py",
    ("docs/gitops.md", "console"): "tests/docs/test_followed.py",
    ("docs/install.md", "console"): "tests/docs/test_followed.py",
    ("docs/kueue.md", "console"): "tests/docs/test_followed.py",
    ("docs/monitoring.md", "console"): "tests/docs/test_followed.py",
    ("docs/framework.md", "python"): "tests/docs/test_framework.py",
    ("docs/framework.md", "yaml"): "tests/docs/test_framework.py",
}
"""The blocks that a test runs as they stand, and the test."""
READ: Final[dict[str, Callable[[str], list[str]]]] = {
    "python": python_problems,
    "yaml": yaml_problems,
    "console": shell_problems,
    "bash": shell_problems,
    "sh": shell_problems,
    "": shell_problems,
}
"""Languages whose blocks are read as the program reads them that they are for."""
SHOWN: Final = {
    "mermaid": "drawn when the site is built: tests/docs/test_site.py",
    "text": "output, files and formulas",
    "json": "output",
    "dockerfile": "no image is built in tests",
}
"""Languages whose blocks are no input."""


READABLE: Final = [each for each in BLOCKS if (each.page, each.language) not in RUN and each.language in READ]


@pytest.mark.parametrize("block", READABLE, ids=str)
def test_block_is_right_for_the_program_that_reads_it(block: Block) -> None:
    assert READ[block.language](block.text) == []


def test_every_block_is_run_read_or_shown() -> None:
    known = {*READ, *SHOWN}
    assert [f"{each}: {each.language}" for each in BLOCKS if each.language not in known] == []


def test_no_code_is_indented_where_no_test_would_find_it() -> None:
    found = [(page.name, line) for page in PAGES for line in _indented(page)]
    assert found == []


def _indented(page: Path) -> Iterator[str]:
    """Lines of code blocks without a fence: indented by four, after an empty line, outside of lists."""
    fenced, before, listed = False, "", False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif line and not line[0].isspace():
            listed = line.startswith(("- ", "* ")) or line[:1].isdigit()
        elif line.startswith("    ") and not before.strip() and not fenced and not listed and line.strip():
            yield line
        before = line


def test_most_blocks_are_run_or_read() -> None:
    counts = Counter(
        "run" if (each.page, each.language) in RUN else "shown" if each.language in SHOWN else "read"
        for each in BLOCKS
    )
    assert counts["shown"] < len(BLOCKS) / 3


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("", "elasticjob run --no-such-flag train.py", "no-such-flag"),
        ("", "elasticjob frobnicate", "no command frobnicate"),
        ("console", "$ kubectl get pods --selectro a=b\nNAME\n", "--selectro"),
        ("", "helm install it charts/elasticjob --set imagine.tag=1", "imagine.tag"),
        ("", "make coffee", "coffee"),
        ("", "pip install 'elasticjob[tourch]'", "tourch"),
        ("", "echo a | elasticjop run", "no program elasticjop"),
        ("yaml", "spec: {replicaSpecs: {worker: {replica: 2, template: {…}}}}", "replica"),
        ("yaml", "spec: {replicaSpecs: {worker: {replicas: -1, template: {…}}}}", "-1"),
        ("python", "from elasticjob.trainer.torch import Elastik", "Elastik"),
        ("python", "for x in", "invalid syntax"),
    ],
)
def test_a_wrong_block_is_found(language: str, text: str, why: str) -> None:
    assert why in str(READ[language](text))
