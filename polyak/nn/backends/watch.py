"""Detection of changes to modules since something was derived from them: numpy views of their weights, or a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from operator import itemgetter
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

OF_ANY = frozenset(vars(nn.Module())) | {"_switch"}
"""Attributes that are not options of a module; for some modules the mode is one."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_INDIFFERENT = (nn.Linear, nn.ReLU, nn.Tanh, nn.Identity, nn.Sequential, nn.ModuleList)
"""Classes whose ``forward`` reads no attribute that changes."""
_SWITCHES = ("train", "eval", "set_training_mode", "predict")
"""Methods that switch between training and evaluation: they read the mode to check whether it must change."""
_PLAIN = (bool, int, float, str, tuple, type(None), torch.dtype, FunctionType)


class Watch:
    """Detects changed submodules, parameters, buffers, hooks and attributes, such as a dropout's probability, and the
    switch between training and evaluation where it changes the result of a module.

    It is checked often, so it must be cheap: dictionaries are compared with copies of themselves, which C code does by
    the identity of their entries; of empty ones only their emptiness is checked.

    Args:
        modules: each without its submodules.
        views: their tensors whose memory is watched too, and with it the modules' classes.
        moving: names of attributes that may change.
    """

    def __init__(self, modules: Iterable[nn.Module], views: Iterable[Tensor] = (), moving: Iterable[str] = ()) -> None:
        self.modules, self.views, moving = list(dict.fromkeys(modules)), list(views), frozenset(moving)
        parts = [d for m in self.modules for d in (m._modules, m._parameters, m._buffers)]
        parts += self.hooks
        self._parts, self._empty = [d for d in parts if d], [d for d in parts if not d]
        self._parts_then = [dict(part) for part in self._parts]
        self._attributes = [vars(module) for module in self.modules]
        self._counts_then = list(map(len, self._attributes))
        read = [module for module in self.modules if type(module) not in _INDIFFERENT]
        self._names = [_names(m, moving if hasattr(m, "counters") else frozenset()) for m in read]
        watched = [(module, names) for module, names in zip(read, self._names, strict=True) if names]
        self._picks = [(_getter(names), vars(module)) for module, names in watched]
        self._kept_by = [(still, _form) if is_own(type(module)) else (tuple, _kind) for module, _ in watched]
        self._values_then = [keep(picked) for (keep, _), picked in zip(self._kept_by, self._values(), strict=True)]
        self._pointers_then = list(map(Tensor.data_ptr, self.views))
        self._classes_then = list(map(type, self.modules))
        self._strides_then = list(map(Tensor.stride, self.views))
        own = dict.fromkeys(base for module in self.modules for base in type(module).__mro__[:-1] if is_own(base))
        self._of_classes = [vars(base) for base in own]
        self._of_classes_then = [still(dict(held)) for held in self._of_classes]
        loose = [(vars(m), name, v) for m in self.modules if is_own(type(m)) for name, v in vars(m).items()]
        self._loose = [each for each in loose if isinstance(each[2], Tensor)]

    @property
    def hooks(self) -> list[dict[Any, Any]]:
        """The hooks of the modules, and the global hooks of all modules."""
        everywhere = [getattr(torch_module, f"_global{kind}") for kind in _HOOKS]
        return everywhere + [getattr(module, kind) for module in self.modules for kind in _HOOKS]

    @property
    def options(self) -> list[Any]:
        """Plain values of all watched attributes, and the classes of the others: a program depends on these."""
        kept = zip(self._kept_by, self._values_then, strict=True)
        return [self._names, [[form(value) for value in picked] for (_, form), picked in kept], self._of_classes_then]

    def current(self) -> bool:
        """Whether submodules, parameters, buffers, hooks and memory are the same, and no attribute was added."""
        try:
            return (
                self._parts == self._parts_then
                and not any(self._empty)
                and list(map(len, self._attributes)) == self._counts_then
                and (not self.views or list(map(Tensor.data_ptr, self.views)) == self._pointers_then)
            )
        except (RuntimeError, ValueError):  # two different tensors or arrays were compared
            return False

    def unchanged(self) -> bool:
        """Whether :meth:`current` holds, and no attribute has another value."""
        try:
            same = self.current() and self._values() == self._values_then
        except (RuntimeError, ValueError, KeyError):  # as above, or an attribute is gone
            return False
        return same and (not self.views or self._lies_as_then()) and (not self._of_classes or self._own_as_then())

    def _own_as_then(self) -> bool:
        """Whether a program's own classes have the same attributes, and its modules the same tensors beside
        parameters and buffers."""
        try:
            classes = self._of_classes == self._of_classes_then
        except (RuntimeError, ValueError):
            return False
        return classes and all(held.get(name) is then for held, name, then in self._loose)

    def _lies_as_then(self) -> bool:
        """Whether the modules' classes and the strides of their tensors are unchanged."""
        classes, strides = list(map(type, self.modules)), list(map(Tensor.stride, self.views))
        return classes == self._classes_then and strides == self._strides_then

    def _values(self) -> list[Any]:
        return [pick(own) for pick, own in self._picks]


def still(value: Any) -> Any:
    """Returns a value with copies of the lists, dictionaries and sets in it, to detect that they have changed."""
    if isinstance(value, dict):
        return {key: still(part) for key, part in value.items()}
    kind = next((kind for kind in (list, tuple, set) if isinstance(value, kind)), None)
    return value if kind is None else kind(map(still, value))


def _form(value: Any) -> Any:
    """Returns a value with the classes of those parts of lists and dictionaries that are not plain."""
    if isinstance(value, dict):
        return {key: _form(part) for key, part in value.items()}
    return list(map(_form, value)) if isinstance(value, list) else _kind(value)


def _kind(value: Any) -> Any:
    return value if isinstance(value, _PLAIN) else type(value)


def is_own(cls: type) -> bool:
    """Whether a class of modules is a program's own, neither torch's nor polyak's."""
    return not cls.__module__.startswith(("torch.nn.", "polyak.")) and cls.__module__ not in ("abc", "typing")


def _names(module: nn.Module, moving: frozenset[str]) -> list[str]:
    """Returns names of the attributes to check."""
    names = [name for name, value in vars(module).items() if _counts(name, value, moving)]
    return ["training", *names] if "training" in vars(module) and _depends_on_mode(module) else names


def _counts(name: str, value: Any, moving: frozenset[str]) -> bool:
    return name not in OF_ANY and name not in moving and not isinstance(value, Tensor)


def _getter(names: list[str]) -> Callable[[dict[str, Any]], tuple[Any, ...]]:
    return itemgetter(*names) if len(names) > 1 else itemgetter(*names, *names)  # a single name would give no tuple


def _depends_on_mode(module: nn.Module) -> bool:
    """Whether a module may compute different results in training and evaluation. For others the mode is not checked:
    predicting switches it, also in another thread and in the middle of an update."""
    cls: type = type(module)
    return "forward" in vars(module) or any(getattr(module, kind) for kind in _HOOKS) or _class_reads_mode(cls)


@cache
def _class_reads_mode(cls: type) -> bool:
    """Whether a class may read its mode to compute; a class that is neither torch's nor polyak's is assumed to."""
    for base in cls.__mro__[:-1]:
        if base is nn.Module or base.__module__ in ("abc", "typing"):
            continue
        if is_own(base):
            return True
        own = [part for name, part in vars(base).items() if name not in _SWITCHES]
        beside = [part for part in vars(sys.modules[base.__module__]).values() if isinstance(part, FunctionType)]
        if any(map(_reads_mode, own + [part for part in beside if part.__module__ == base.__module__])):
            return True
    return False


def _reads_mode(part: Any) -> bool:
    """Whether a method or a property, or a function inside of it, reads the attribute ``training``."""
    part = getattr(part, "fget", getattr(part, "__func__", part))
    part = getattr(part, "__wrapped__", part)
    codes = [part.__code__] if isinstance(part, FunctionType) else []
    while codes:
        code = codes.pop()
        if "training" in code.co_names or "training" in code.co_consts:
            return True
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
    return False
