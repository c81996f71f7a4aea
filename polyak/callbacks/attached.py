"""Conversion of the ``callback`` argument of ``learn`` to one callback of a model."""

from typing import Any

from polyak.callbacks.callback import BaseCallback, CallbackList, as_object
from polyak.callbacks.progress_bar import ProgressBarCallback


def as_callback(maybe_callback: Any, model: Any, progress_bar: bool = False) -> BaseCallback:
    """Returns the ``callback`` argument of ``learn`` as one callback that is attached to the model.

    Args:
        maybe_callback: ``None``, a callback, a function, or a sequence of callbacks and functions.
        model: the model to train.
        progress_bar: add a :class:`ProgressBarCallback`.

    Raises:
        TypeError: it is none of these.
        ImportError: a progress bar is requested but its packages are not installed.
    """
    if maybe_callback is None:
        callback: BaseCallback = CallbackList([])
    elif isinstance(maybe_callback, list | tuple):
        callback = CallbackList(maybe_callback)
    else:
        callback = as_object(maybe_callback)
    if progress_bar:
        callback = CallbackList([callback, ProgressBarCallback()])
    callback.init_callback(model)
    return callback
