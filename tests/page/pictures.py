"""Pictures of the dashboard and of a report, in a folder: `python -m tests.page.pictures FOLDER [PAGE]`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from elasticjob.page.local import serving
from elasticjob.page.pages import Pages
from tests.kit.browser import browsing
from tests.page.scenes import TROUBLES, Scene, report

PAGES: Final[Mapping[str, tuple[Scene, str]]] = {
    "fleet-40": (Scene(40), "#/"),
    "fleet-200": (Scene(200), "#/"),
    "job": (Scene(40), "#/search/ranker-nightly"),
    **{f"fleet-{name}": (Scene(0, cluster), "#/") for name, cluster in TROUBLES.items()},
}


async def main(folder: Path, wanted: str = "") -> None:
    """Write a picture of each page in each width, light and dark."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        async with browsing(Path(place)) as tab:
            for name, (scene, anchor) in {**PAGES, "report": (Scene(), "")}.items():
                if wanted not in name:
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
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
