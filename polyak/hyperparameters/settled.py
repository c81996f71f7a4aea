"""Hyper-parameters of base classes that an algorithm fixes."""

from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    Settled = Annotated[T, "fixed"]
    """``n_steps: Settled[int] = 1``: a base class's field that is no argument of this class, with its value.

    Type checkers read ``int``; dataclasses read ``ClassVar[int]``, which is no constructor argument.

    Type checkers read ``int``; a dataclass, which takes no argument for a class variable, reads ``ClassVar[int]``.
    """
else:
    Settled = ClassVar
