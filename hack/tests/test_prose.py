"""Pages are wrapped where they are prose, and nowhere else."""

import pytest

from hack import prose

LONG = "word " * 30
LINK = "[" + "a long text " * 7 + "](page.md)"


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        pytest.param(LONG, ["word " * 21 + "word", "word " * 7 + "word"], id="a paragraph"),
        pytest.param(
            f"- {LONG}", ["- " + "word " * 20 + "word", "  " + "word " * 8 + "word"], id="a list item"
        ),
        pytest.param(f"{'x' * 100}\n{LINK} end", ["x" * 100, f"{LINK} end"], id="a link stays whole"),
        pytest.param(
            f"{'x' * 80} {'y' * 29} - z", ["x" * 80, f"{'y' * 29} - z"], id="no line becomes an item"
        ),
        pytest.param("short\nlines", ["short", "lines"], id="a short paragraph"),
    ],
)
def test_prose_is_wrapped(page: str, lines: list[str]) -> None:
    wrapped = prose.wrap(page.strip())
    assert wrapped.split("\n") == lines
    assert prose.wrap(wrapped) == wrapped


@pytest.mark.parametrize(
    "page",
    [
        f"# {LONG}",
        f"| {LONG} |",
        f"```console\n{LONG}\n```",
        f"!!! note\n    {LONG}",
        f"---\ndescription: {LONG}\n---",
        f"<!-- rules: x -->\n{LONG}\n<!-- end -->",
        f"<!-- {LONG}\n{LONG} -->",
        f"<!-- Made by `make generate` -->\n{LONG}",
        f"{LONG.strip()}  \nafter a hard break",
    ],
)
def test_all_else_stays(page: str) -> None:
    assert prose.wrap(page) == page
