"""Parts that an algorithm holds, and attributes of it that belong to them."""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar, overload

from typing_extensions import Self

from polyak.logging.logger import Logger

Value = TypeVar("Value")


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


class Held(Generic[Value]):
    """An attribute of a part, read and set as one of the algorithm that holds the part.

    Args:
        path: the algorithm's name of the part, and the part's name of the attribute: ``"epsilon.rate"``.
    """

    def __init__(self, path: str) -> None:
        self._part, self._name = path.split(".")

    @overload
    def __get__(self, model: None, owner: type) -> Self: ...

    @overload
    def __get__(self, model: object, owner: type) -> Value: ...

    def __get__(self, model: Any, owner: type) -> Any:
        return self if model is None else getattr(getattr(model, self._part), self._name)

    def __set__(self, model: Any, value: Value) -> None:
        setattr(getattr(model, self._part), self._name, value)

    def __delete__(self, model: Any) -> None:
        delattr(getattr(model, self._part), self._name)
