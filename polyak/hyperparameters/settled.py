"""Hyper-parameters of the classes above that an algorithm fixes."""

from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    Settled = Annotated[T, "fixed"]
    """``n_steps: Settled[int] = 1``: a field of a class above that is no argument of this one, and the value it has.

    Type checkers read ``int``; a dataclass, which takes no argument for a class variable, reads ``ClassVar[int]``.
    """
else:
    Settled = ClassVar
