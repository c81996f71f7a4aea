"""Parts that an algorithm holds."""

from collections.abc import Mapping
from typing import Any

from polyak.logging.logger import Logger


class HeldPart:
    """A part with a state of its own, which is logged and saved with the algorithm that holds it."""

    def adopt(self, name: str, progress: float) -> None:
        """A hyper-parameter of the algorithm was set; ``progress``: what remains of training."""

    def record(self, logger: Logger) -> None:
        """Before logs are written."""

    def state(self) -> dict[str, Any]:
        """What files hold, as plain data."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state` returned, among other entries."""
