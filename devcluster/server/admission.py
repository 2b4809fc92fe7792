from typing import Any


class Webhooks:
    def __init__(self, store: Any) -> None:
        self.session: Any = None

    def concerns(self, attributes: Any) -> bool:
        return False

    async def mutate(self, attributes: Any, new: Any) -> Any:
        return new

    async def validate(self, attributes: Any, new: Any) -> list[str]:
        return []
