"""Recording of the operations that a function runs, and of the modules whose Python code it runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Untranslatable(Exception):
    """A function cannot be replaced by the operations of one of its calls. The message gives the reason."""


class Operation(NamedTuple):
    """One operation of a call."""

    operation: Any
    """An overload of ``torch.ops``."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: list[Tensor]
    """The tensors that it returned."""

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]

    @property
    def in_place(self) -> bool:
        """Whether the operation writes into an argument."""
        return bool(self.operation._schema.is_mutable)

    @property
    def random(self) -> bool:
        """Whether the operation draws from a generator."""
        return torch.Tag.nondeterministic_seeded in self.operation.tags

    @property
    def is_view(self) -> bool:
        """Whether the outputs only alias an argument's memory."""
        given = set(map(memory, self.tensors))
        return not self.in_place and bool(self.outputs) and all(memory(output) in given for output in self.outputs)


def memory(tensor: Tensor) -> int:
    """An identifier of the memory behind a tensor."""
    return int(tensor.untyped_storage()._cdata)


class Recording(TorchDispatchMode):
    """While the block runs, notes the operations of this thread in :attr:`steps`.

    Raises:
        Untranslatable: in the block, where the code reads a value, on which its next operations may depend.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Operation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Returns False: nothing is compiled here, and to skip it torch would import its whole compiler."""
        return False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation in _READ_VALUES:
            raise Untranslatable("the code reads values of tensors, on which its next operations may depend")
        found = operation(*args, **(kwargs or {}))
        outputs = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
        self.steps.append(Operation(operation, args, kwargs or {}, outputs))
        return found


_READ_VALUES = frozenset(
    (
        torch.ops.aten._local_scalar_dense.default,
        torch.ops.aten.equal.default,
        torch.ops.aten.is_nonzero.default,
        torch.ops.aten.nonzero.default,
    )
)


class Visited:
    """While the block runs, notes the modules whose methods run in this thread.

    Raises:
        Untranslatable: in the block, before code runs that is neither torch's nor polyak's: it may have side effects
            that no operation shows, such as a counter. At the start of the block, if a profiler is active.
    """

    def __init__(self) -> None:
        self._owners: dict[nn.Module, None] = {}
        self._before: Any = None

    @property
    def modules(self) -> list[nn.Module]:
        """The modules whose methods ran, in the order of their first call."""
        return list(self._owners)

    def __enter__(self) -> Visited:
        self._before = sys.getprofile()
        if self._before is not None and not callable(self._before):
            raise Untranslatable("a profiler runs in this thread")
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in _KNOWN and not module.startswith("namedtuple_") and not _imports(frame):
            raise Untranslatable(f"{module}.{code.co_name}() is a program's own code, which is called for each action")
        if _is_method(code):
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module):
                self._owners[owner] = None


_KNOWN = frozenset(sys.stdlib_module_names) | {"polyak", "torch", "numpy", "gymnasium", "typing_extensions"}
"""Packages whose functions have no effects besides their operations, as do classes that ``namedtuple`` makes. A
program's own file is ``__main__``."""


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported, which happens once."""
    while frame is not None and frame.f_globals.get("__name__") != "importlib._bootstrap":
        frame = frame.f_back
    return frame is not None


def _is_method(code: CodeType) -> bool:
    return code.co_varnames[:1] == ("self",)


def recorded(function: Callable[[], Any]) -> tuple[Any, list[Operation], Visited]:
    """Runs a function; returns its result, the operations that it ran, and the modules whose code ran.

    The generator of random numbers is left as it was.
    """
    recording, visited = Recording(), Visited()
    with torch.random.fork_rng(devices=()), torch.no_grad(), _no_collection(), recording, visited:
        result = function()
    return result, recording.steps, visited


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection within the block: finalizers would run unrelated code."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
