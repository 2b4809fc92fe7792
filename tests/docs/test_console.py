"""The reader of console blocks."""

from __future__ import annotations

import pytest

from tests.kit.console import Command, commands, matches

PAGE = """\
# A page

```console
$ kubectl get pods
NAME   READY
a      1/1
$ kubectl apply -f wrong.yaml  # exits 1
…
```

```yaml
kind: Pod
```

```console
$ cat <<EOF \\
  | kubectl apply -f -
created
```
"""


def test_commands_of_all_blocks_are_found_with_their_output_and_place() -> None:
    assert list(commands(PAGE)) == [
        Command(4, "kubectl get pods", ("NAME   READY", "a      1/1")),
        Command(7, "kubectl apply -f wrong.yaml", ("…",), exits=1),
        Command(16, "cat <<EOF \\\n  | kubectl apply -f -", ("created",)),
    ]


def test_block_that_begins_with_output_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(commands("```console\nNAME\n```\n"))


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (("a  b",), "a      b\n", True),
        (("a b",), "ab\n", False),
        (("pod …-0 created",), "pod digits-0 created\n", True),
        (("pod …",), "pod a\nmore\n", False),
        (("pod …", "…"), "pod a\nmore\nand more\n", True),
        (("…", "last"), "first\nlast", True),
        (("…",), "", True),
        ((), "", True),
        ((), "something\n", False),
        (("a.b",), "axb\n", False),
        (("age  …",), "age  5s   \n", True),
    ],
)
def test_output_matches_where_it_is_what_the_page_shows(
    expected: tuple[str, ...], printed: str, same: bool
) -> None:
    assert matches(expected, printed) is same
