"""Noticing that modules are no longer what they were when something was made of them: numpy arrays that stand for their
weights, or a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

_OWN = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (bool, int, float, str, tuple, type(None), torch.dtype, FunctionType)


class Watch:
    """Notices other submodules, parameters, buffers, hooks, attributes (the switch between training and evaluation, and
    options such as a dropout's probability, among them), and what is frozen.

    Looked at often, so that it must cost little: dictionaries are compared with copies of themselves, which C code does
    by the identity of what is in them, and of those that were empty only that is asked.

    Args:
        modules: each on its own, without its submodules.
        views: tensors of theirs whose memory counts too.
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
        self._watched = [(own, n) for own in self._attributes for n, v in own.items() if _counts(n, v, moving)]
        self._values_then = self._values()
        self._free = [p for module in self.modules for p in module._parameters.values() if p is not None]
        self._free_then = list(map(_REQUIRES_GRAD, self._free))
        self._pointers_then = list(map(Tensor.data_ptr, self.views))
        self._strides_then = list(map(Tensor.stride, self.views))
        self._classes_then = list(map(type, self.modules))

    @property
    def hooks(self) -> list[dict[Any, Any]]:
        """What is called around calls of the modules, or of any module."""
        everywhere = [torch_module._global_forward_hooks, torch_module._global_forward_pre_hooks]
        return everywhere + [getattr(module, kind) for module in self.modules for kind in _HOOKS]

    @property
    def options(self) -> list[Any]:
        """Plain values of all attributes that are watched, and of others their class: what programs depend on."""
        values = [value if isinstance(value, _PLAIN) else type(value) for value in self._values_then]
        return [[name for _, name in self._watched], values, self._free_then]

    def current(self) -> bool:
        """Whether parts, hooks and memory are the same, and no attribute was added."""
        try:
            return (
                self._parts == self._parts_then
                and not any(self._empty)
                and list(map(len, self._attributes)) == self._counts_then
                and list(map(Tensor.data_ptr, self.views)) == self._pointers_then
            )
        except (RuntimeError, ValueError):  # two different tensors or arrays were compared
            return False

    def unchanged(self) -> bool:
        """:meth:`current`, and no attribute has another value, nor is something else frozen."""
        try:
            return (
                self.current()
                and self._values() == self._values_then
                and list(map(_REQUIRES_GRAD, self._free)) == self._free_then
                and list(map(type, self.modules)) == self._classes_then
                and list(map(Tensor.stride, self.views)) == self._strides_then
            )
        except (RuntimeError, ValueError, KeyError):  # as above, or an attribute is gone
            return False

    def _values(self) -> list[Any]:
        return [own[name] for own, name in self._watched]


_REQUIRES_GRAD = attrgetter("requires_grad")


def _counts(name: str, value: Any, moving: frozenset[str]) -> bool:
    return name not in _OWN and name not in moving and not isinstance(value, Tensor)
