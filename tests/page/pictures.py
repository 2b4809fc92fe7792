"""Pictures of the dashboard and of a report, in pictures/: `python -m tests.page.pictures [PAGE...]`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from elasticjob.page.local import serving
from elasticjob.page.pages import Pages
from lab.chosen import chosen
from lab.paths import ROOT
from tests.kit.browser import browsing
from tests.page.scenes import TROUBLES, Scene, report

PAGES: Final[Mapping[str, tuple[Scene, str]]] = {
    "fleet-40": (Scene(40), "#/"),
    "fleet-200": (Scene(200), "#/"),
    "job": (Scene(40), "#/search/ranker-nightly"),
    **{f"fleet-{name}": (Scene(0, cluster), "#/") for name, cluster in TROUBLES.items()},
}


EVERY: Final = {**PAGES, "report": (Scene(), "")}
FOLDER: Final = ROOT / "pictures"


async def main(folder: Path, wanted: Collection[str]) -> None:
    """Write a picture of each page in each width, light and dark."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        async with browsing(Path(place)) as tab:
            for name, (scene, anchor) in EVERY.items():
                if name not in wanted:
                    continue
                async with serving(Pages(scene)) as url:
                    await tab.open(url)
                    address = url.partition("?")[0] + anchor if anchor else report(Path(place))
                    for wide, dark in product((400, 800, 1200, 1600), (False, True)):
                        await tab.open("about:blank")
                        await tab.open(address, dark=dark, wide=wide)
                        await asyncio.sleep(1.0)  # until curves are drawn: a picture is for people
                        await tab.picture(
                            folder / f"{name}-{wide}-{'dark' if dark else 'light'}.png", whole=True
                        )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    asyncio.run(main(FOLDER, chosen(__doc__, EVERY)))
