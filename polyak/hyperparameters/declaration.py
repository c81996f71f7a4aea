"""Declaration and checks of hyper-parameters.

A hyper-parameter is one field of an algorithm, with its documentation below. Its annotation gives the allowed values:
type checkers read ``Fraction`` as ``float``, and constructors refuse values outside of [0, 1] ::

    tau: Fraction = 0.005
    \"\"\"Rate at which target networks follow, in [0, 1]; 1 copies.\"\"\"
"""

import functools
import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

import numpy as np

from polyak.envs.sizes import MOST_ENVS, MOST_PROCESSES, MOST_RUNNERS
from polyak.schedules import Schedule, get_schedule_fn
from polyak.suggestions import did_you_mean

# -- allowed values ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Only:
    """Part of an annotation, ``Annotated[float, Only(...)]``: restricts the values of the type.

    Args:
        words: describes them: "a number in [0, 1]".
        holds: whether a value of the type is allowed.
    """

    words: str
    holds: Callable[[Any], bool]


Count = Annotated[int, Only("an integer of at least 1", lambda n: n >= 1)]
AtLeastTwo = Annotated[int, Only("an integer of at least 2", lambda n: n >= 2)]
Natural = Annotated[int, Only("an integer of at least 0", lambda n: n >= 0)]
Parallel = Annotated[int, Only(f"an integer in [1, {MOST_ENVS:,}]", lambda n: 1 <= n <= MOST_ENVS)]
"""Number of environments or games."""
Processes = Annotated[int, Only(f"an integer in [0, {MOST_PROCESSES:,}]", lambda n: 0 <= n <= MOST_PROCESSES)]
"""Number of processes on this machine."""
Runners = Annotated[int, Only(f"an integer in [0, {MOST_RUNNERS:,}]", lambda n: 0 <= n <= MOST_RUNNERS)]
"""Number of processes on a cluster."""
FewestAndMost = Annotated[
    tuple[int, int], Only("a pair (min, max) of at least 1", lambda pair: 1 <= pair[0] <= pair[1] <= MOST_RUNNERS)
]
"""Smallest and largest number of processes on a cluster."""
Learners = Annotated[int, Only(f"an integer in [1, {MOST_PROCESSES:,}]", lambda n: 1 <= n <= MOST_PROCESSES)]
"""Number of processes that exchange gradients."""
Positive = Annotated[float, Only("a positive number", lambda x: x > 0)]
NonNegative = Annotated[float, Only("a number of at least 0", lambda x: x >= 0)]
Rate = Annotated[float, Only("a finite number of at least 0", lambda x: 0 <= x < math.inf)]
"""Learning rate of an optimizer."""
LearningRate = Rate | Schedule
"""Learning rate, or a function of the remaining progress."""
Fraction = Annotated[float, Only("a number in [0, 1]", lambda x: 0 <= x <= 1)]
Seed = Annotated[int, Only("an integer in [0, 2**32)", lambda n: 0 <= n < 2**32)]

T = TypeVar("T")
Scheduled = Annotated[T, get_schedule_fn]
"""A field held as a function of the remaining progress after the build, even if given as a number; ``None`` is kept."""
Mark = TypeVar("Mark")
Argument = TypeVar("Argument", contravariant=True)
Value = TypeVar("Value", covariant=True)

if TYPE_CHECKING:

    class Becomes(Generic[Argument, Value]):
        """A field whose constructor argument has another type than the attribute of the built model."""

        def __get__(self, instance: object, owner: type) -> Value: ...

        def __set__(self, instance: object, value: Argument) -> None: ...

else:

    class Becomes:
        def __class_getitem__(cls, types):
            return types[0]


def later(default: Any = MISSING) -> Any:
    """Declares the value of a :class:`Becomes` field: its default, if it has one."""
    return field(default=default)


# -- errors ------------------------------------------------------------------------------------------------------------


class HyperparameterError(ValueError, AssertionError):
    """An invalid hyper-parameter. Also an AssertionError, as Stable-Baselines3 raises in most such cases."""


def require(condition: bool, name: str, value: Any, fix: str) -> None:
    """Refuse an invalid hyper-parameter.

    Raises:
        HyperparameterError: ``condition`` does not hold; the message names the argument, its value and the fix.
    """
    if not condition:
        raise HyperparameterError(f"{name}={value!r} cannot be used: {fix}")


def declared(cls: type) -> Mapping[str, Any]:
    """Returns the fields of an algorithm and their annotations; ``Any`` if only a function's scope resolves it."""
    found = [item for base in reversed(cls.__mro__) for item in _annotations(base).items()]
    scheduled = {name for name, hint in found if get_schedule_fn in getattr(hint, "__metadata__", ())}
    hints = dict(found)
    return {f.name: cast(Any, Scheduled)[hints[f.name]] if f.name in scheduled else hints[f.name] for f in fields(cls)}


def marked(cls: type, name: str, mark: type[Mark]) -> Mark | None:
    """Returns the mark of a kind in a field's annotation, of the class or its nearest base with one, or ``None``."""
    parts = (part for base in cls.__mro__ for part in getattr(_annotations(base).get(name), "__metadata__", ()))
    return next((part for part in parts if isinstance(part, mark)), None)


_evaluated = functools.lru_cache(maxsize=512)(functools.partial(inspect.get_annotations, eval_str=True))


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return _evaluated(cls)
    except NameError:
        return dict.fromkeys(inspect.get_annotations(cls), Any)


def left_out(cls: type) -> frozenset[str]:
    """Returns the arguments of related algorithms that a class does not support: base-class fields that it declares as
    ``ClassVar``, and names in ``goes_without`` without a field."""
    above = {f.name for base in cls.__mro__[1:] if is_dataclass(base) for f in fields(base)}
    named = {name for base in cls.__mro__ for name in vars(base).get("goes_without", ())}
    return frozenset((above | named) - {f.name for f in fields(cls)})


def fitted(name: str, value: Any, declaration: Any) -> Any:
    """Returns ``value`` if the annotation ``declaration`` allows it; an integer written as a float (1e6) as an ``int``,
    a :data:`Scheduled` number as a function.

    Raises:
        HyperparameterError: the value is not allowed.
    """
    fit = _fit(value, declaration)
    if fit is _REFUSED:
        require(False, name, value, f"it must be {described(declaration)}.{_hint(name, value, declaration)}")
    moves = fit is not None and get_schedule_fn in getattr(declaration, "__metadata__", ())
    return get_schedule_fn(fit) if moves else fit


def as_declared(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``values`` as the fields of a class will hold them; unknown names and invalid values are unchanged."""
    kinds = declared(cls) if is_dataclass(cls) else {}
    fits = {name: _fit(value, kinds.get(name, Any)) for name, value in values.items()}
    return {name: values[name] if fit is _REFUSED else fit for name, fit in fits.items()}


def whole(name: str, value: Any) -> int:
    """Returns ``value`` as an ``int``, even if it is written as a float (1e4).

    Raises:
        HyperparameterError: it is not an integer.
    """
    return fitted(name, value, int)


_REFUSED = object()


def _fit(value: Any, declaration: Any) -> Any:
    """Returns ``value`` as an annotation declares it, or ``_REFUSED``."""
    kind, args = get_origin(declaration) or declaration, get_args(declaration)
    if kind is Annotated:
        fit = _fit(value, args[0])
        rules = (rule for rule in args[1:] if isinstance(rule, Only))
        return fit if fit is not _REFUSED and all(rule.holds(fit) for rule in rules) else _REFUSED
    if kind in (Union, types.UnionType):
        return next((fit for arg in args if (fit := _fit(value, arg)) is not _REFUSED), _REFUSED)
    if kind is int and isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    return value if _is(value, kind, args) else _REFUSED


def _is(value: Any, kind: Any, args: tuple[Any, ...]) -> bool:
    if kind is Any:
        return True
    if kind is bool:
        return isinstance(value, bool | np.bool_) or (isinstance(value, Integral) and value in (0, 1))
    if kind in (int, float):
        number = Integral if kind is int else Real
        return isinstance(value, number) and not isinstance(value, bool) and value == value  # nan is not a number
    if kind is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if kind is type:
        return isinstance(value, type) and issubclass(value, args)
    if kind is tuple:
        pairs = zip(value, args, strict=False) if isinstance(value, tuple | list) and len(value) == len(args) else None
        return pairs is not None and all(_fit(item, arg) is not _REFUSED for item, arg in pairs)
    if kind is Callable:
        return callable(value)
    return isinstance(value, Mapping if kind is dict else kind)


_WORDS = {Any: "anything", bool: "True or False", int: "an integer", float: "a number", str: "a string", dict: "a dict"}


def described(declaration: Any) -> str:
    """Returns an annotation in words: "a positive number, a function of the remaining progress or None"."""
    kind, args = get_origin(declaration) or declaration, get_args(declaration)
    if declaration == Schedule:
        return "a function of the remaining progress"
    if kind is Annotated:
        return next((rule.words for rule in args[1:] if isinstance(rule, Only)), None) or described(args[0])
    if kind in (Union, types.UnionType):
        words = [described(arg) for arg in args]
        between = ", or " if any(" or " in part for part in words) else " or "
        return between.join((", ".join(words[:-1]), words[-1]))
    if kind is Literal:
        return " or ".join(map(repr, args))
    if kind is tuple:
        return f"a tuple ({', '.join(map(described, args))})"
    if kind is type:
        return f"a subclass of {args[0].__name__}"
    if kind is Callable:
        return "a function"
    if kind is type(None):
        return "None"
    return _WORDS.get(kind) or f"an instance of {kind.__name__}"


def _hint(name: str, value: Any, declaration: Any) -> str:
    """Returns the fix for a value that was written as a string."""
    if not isinstance(value, str):
        return ""
    kind = get_args(declaration)[0] if get_origin(declaration) is Annotated else declaration
    if any(get_origin(part) is type for part in (kind, *get_args(kind))):
        return " Pass the class itself, not its name."
    try:
        number = float(value)
    except ValueError:
        return ""
    return f" Write {name}={value.strip()}, without quotes." if _fit(number, declaration) is not _REFUSED else ""


# -- names -------------------------------------------------------------------------------------------------------------


_NO_USE = "related algorithms have such an argument, but it has no use for one. Leave it out."


def check_names(cls: type, given: Iterable[str]) -> None:
    """Refuse keyword arguments that a class's constructor does not take.

    Raises:
        TypeError: like Python's, with the most similar name.
    """
    called = f"{cls.__name__}.__init__"
    if useless := sorted(left_out(cls).intersection(given)):
        raise TypeError(f"{called}() got an unexpected keyword argument {useless[0]!r}: {_NO_USE}")
    _check_names(called, cls.__init__, given)  # type: ignore[misc]


_signature = functools.lru_cache(maxsize=512)(inspect.signature)


def _check_names(called: str, function: Callable[..., Any], given: Iterable[str]) -> None:
    parameters = _signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for name in given:
        if name not in parameters:
            hint = did_you_mean(name, set(parameters) - {"self"})
            raise TypeError(f"{called}() got an unexpected keyword argument {name!r}.{hint}")


def lacking(function: Callable[..., Any], given: Iterable[str]) -> list[str]:
    """Returns the required arguments after the first that are not ``given``."""
    parameters = list(_signature(function).parameters.values())[1:]
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [name for name in needed if name not in given]


Method = TypeVar("Method", bound=Callable[..., Any])


def names_checked(method: Method) -> Method:
    """Wraps a method so that it refuses unknown keyword arguments and a missing ``total_timesteps`` with a TypeError
    that contains the fix."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        called = f"{type(self).__name__}.{method.__name__}"
        if kwargs:
            _check_names(called, method, kwargs)
        if not args and "total_timesteps" in lacking(method, kwargs):
            raise TypeError(f"{called}() missing the argument 'total_timesteps'. Write learn(100_000), say.")
        return method(self, *args, **kwargs)

    return cast(Method, checked)
