"""The pages for people who see little or use no mouse: axe-core finds no serious fault, keys do all."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from elasticjob.page.local import serving
from elasticjob.page.pages import Pages
from tests.kit.browser import Tab, browsing
from tests.page.scenes import TROUBLES, Scene, report

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

AXE: Final = Path(sys.prefix) / "axe.min.js"
JOB: Final = "#/search/ranker-nightly"
SERIOUS: Final = """axe.run(document, {resultTypes: ["violations"]}).then(({ violations }) => violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => [each.id, each.nodes.slice(0, 3).map(node => node.html + node.failureSummary)]))"""
REACHABLE: Final = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")
  ].filter(each => each.checkVisibility({ visibilityProperty: true })).length"""
FOCUSED: Final = """(() => { const each = document.activeElement
  each.number ??= globalThis.numbers = (globalThis.numbers ?? 0) + 1
  const name = each.getAttribute("aria-label") || each.textContent.trim() || each.tagName
  return [each.number, name, each === document.body || getComputedStyle(each).outlineStyle !== "none"] })()"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tab]:
    if not AXE.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("fetch axe-core: make axe")
    async with browsing(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


async def faults(tab: Tab, url: str, shown: str) -> list[Any]:
    """Return the serious faults of a page, light and dark."""
    found = []
    for dark in (False, True):
        await tab.open("about:blank")
        await tab.open(url, dark=dark, wide=1200)
        await tab.shows(shown)
        await tab.run(AXE.read_text())
        found += await tab.run(SERIOUS)
    return found


async def test_pages_have_no_serious_fault_of_accessibility(tab: Tab, tmp_path: Path) -> None:
    pages = [(Scene(), "", "ranker-nightly"), (Scene(), JOB, "exit code 1, ValueError")]
    pages += [(Scene(0, cluster), "", cluster.api.act or "No jobs in") for cluster in TROUBLES.values()]
    for scene, place, shown in pages:
        async with serving(Pages(scene)) as url:
            await tab.open(url)
            await tab.shows("elasticjob")
            assert await faults(tab, url.partition("?")[0] + place, shown) == []
    assert await faults(tab, report(tmp_path), "What happened") == []


async def walked(tab: Tab, until: str = "") -> list[str]:
    """Press Tab until something has the focus, or all had it; return what had, each seen to have it."""
    found: dict[int, str] = {}
    for _ in range(await tab.run(REACHABLE) + 1):  # the last one leads out of the page
        await tab.press("Tab")
        number, name, is_seen = await tab.run(FOCUSED)
        assert is_seen, name
        found[number] = name
        if until and name.startswith(until):
            return list(found.values())
    assert not until, f"no key leads to {until}: {found.values()}"
    return list(found.values())


async def test_keys_reach_and_do_everything(tab: Tab) -> None:
    async with serving(Pages(Scene(80))) as url:
        await tab.open(url)
        await tab.shows("60 of 80 jobs")
        await walked(tab, "! In trouble")
        await tab.press("Enter")
        await tab.shows("5 of 80 jobs")
        assert await tab.run("location.hash") == "#/?trouble=1"
        await tab.run("document.activeElement.blur()")
        reached = await walked(tab)
        assert len(reached) == await tab.run(REACHABLE) + 1
        first = reached.index("Skip to content")
        assert reached[first + 1 : first + 4] == [
            "elasticjob: all jobs",
            "Theme: as the system",
            "! In trouble5",
        ]
        await walked(tab, "ranker-nightly")
        await tab.press("Enter")
        await tab.shows("lost worker-4", "ValueError: record 8121", "look at its machine")
        assert len(await walked(tab)) == await tab.run(REACHABLE) + 1
        await walked(tab, "Log of ranker-nightly-worker-11")
        await tab.press("Enter")
        await tab.shows("ranker-nightly-worker-11 has no machine yet")
        await tab.press("Escape")
        await tab.shows("5 of 80 jobs")
        assert tab.complaints == []
