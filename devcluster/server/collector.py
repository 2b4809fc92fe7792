import asyncio
from typing import Any


class Collector:
    def __init__(self, objects: Any) -> None: ...
    async def run(self) -> None:
        await asyncio.Event().wait()
