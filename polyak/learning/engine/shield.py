"""Confines torch's process-wide patches during tracing and compilation to one thread.

A tracer replaces ``nn.Module.__call__`` and ``__getattr__`` by functions of its own; some of them refuse modules that
they do not trace. While a graph is exported, every step or ``state_dict()`` of an optimizer adds an entry to one
dictionary and removes it again. Both would fail in other threads that predict, learn or save at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any

import torch.fx._symbolic_trace
import torch.fx.traceback
from torch import nn


@contextmanager
def unseen_by_others() -> Iterator[None]:
    """Confine the effects of tracing to this thread. One thread at a time may be inside the block.

    A release of torch with other internals is left unchanged.
    """
    with ExitStack() as stack:
        patcher = getattr(torch.fx._symbolic_trace, "_Patcher", None)
        if hasattr(patcher, "patch_method"):
            stack.enter_context(_exchanged(patcher, "patch_method", _for_this_thread))
        if hasattr(torch.fx.traceback, "annotate"):
            stack.enter_context(_exchanged(torch.fx.traceback, "annotate", _without_notes_of_others))
        yield


@contextmanager
def _exchanged(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    plain = getattr(owner, name)
    setattr(owner, name, make(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)


def _for_this_thread(patch_method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a patch function whose patches apply to the tracing thread only; others call the original."""
    mine = threading.get_ident()

    @wraps(patch_method)
    def patch(self: Any, cls: type, name: str, traced: Callable[..., Any], **options: Any) -> Any:
        plain = getattr(cls, name)

        @wraps(traced)
        def either(*args: Any, **kwargs: Any) -> Any:
            return (traced if threading.get_ident() == mine else plain)(*args, **kwargs)

        here = cls is nn.Module and threading.get_ident() == mine
        return patch_method(self, cls, name, either if here else traced, **options)

    return patch


def _without_notes_of_others(annotate: Callable[..., Any]) -> Callable[..., Any]:
    mine = threading.get_ident()

    @wraps(annotate)
    def noted(*args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = (
            annotate(*args, **kwargs) if threading.get_ident() == mine else nullcontext()
        )
        return context

    return noted
