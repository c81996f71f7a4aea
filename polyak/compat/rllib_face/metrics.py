"""Numbers that callbacks and learners log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from polyak.hyperparameters.declaration import require


class MetricsLogger:
    """Logs numbers of callbacks, reported under ``env_runners``, of learners, under ``learners``, and of an algorithm's
    own training steps.

    Args:
        known: functions that return further counts, by name, for :meth:`peek`.
    """

    def __init__(self, known: Mapping[tuple[str, ...], Callable[[], Any]] | None = None) -> None:
        self._values: dict[tuple[str, ...], tuple[str, deque[float]]] = {}
        self._known = known or {}

    def log_value(
        self,
        key: Any,
        value: Any,
        *,
        reduce: str | None = "mean",
        window: int | None = None,
        ema_coeff: float | None = None,
        clear_on_reduce: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Log a number.

        Args:
            key: its name, or a tuple of names, by which results are nested.
            value: the number.
            reduce: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"lifetime_sum"``, ``"item"`` (the last one),
                ``"ema"`` (an exponential moving average) or ``"item_series"`` (all); ``None``: the mean.
            window: number of latest values; ``None``: the values of one iteration.
            ema_coeff: weight of a new number in ``"ema"``; ``None``: 0.01.
            clear_on_reduce: restart at zero in each iteration; ``None``: by ``reduce``.

        Raises:
            HyperparameterError: another ``reduce``, or an unknown option.
        """
        reduce = reduce or ("mean" if ema_coeff is None else "ema")
        require(reduce in REDUCTIONS, "reduce", reduce, f"there are {', '.join(REDUCTIONS)}.")
        for name, given in kwargs.items():
            require(given is None, name, given, "there are reduce, window, ema_coeff and clear_on_reduce.")
        if reduce == "sum" and clear_on_reduce is False:
            reduce = "lifetime_sum"
        kept = self._values.setdefault(_names(key), (reduce, deque(maxlen=window)))[1]
        value = float(value.detach() if isinstance(value, Tensor) else value)
        if reduce == "lifetime_sum" and kept:
            value += kept.pop()
        elif reduce == "ema" and kept:
            share = 0.01 if ema_coeff is None else ema_coeff
            value = share * value + (1 - share) * kept.pop()
        kept.append(value)

    def log_dict(self, value_dict: Mapping[str, Any], *, key: Any = (), **options: Any) -> None:
        """Log each entry of nested dicts under ``key``: see :meth:`log_value`."""
        above = _names(key)
        for name, value in value_dict.items():
            if isinstance(value, Mapping):
                self.log_dict(value, key=(*above, name), **options)
            else:
                self.log_value((*above, name), value, **options)

    @contextmanager
    def log_time(self, key: Any, **options: Any) -> Iterator[None]:
        """Logs the seconds of a block: see :meth:`log_value`."""
        began = time.perf_counter()
        yield
        self.log_value(key, time.perf_counter() - began, **options)

    def aggregate(self, metrics: Iterable[Any], *, key: Any = None) -> None:
        """Does nothing: the results of runners and learners are reported already."""

    def peek(self, key: Any, default: Any = None) -> Any:
        """Returns the current reduced value of a number; ``default`` if there is none."""
        if (count := self._known.get(_names(key))) is not None:
            return count()
        reduce, values = self._values.get(_names(key), ("mean", ()))
        return REDUCTIONS[reduce](values) if values else default

    def get_state(self) -> list[Any]:
        """Returns all numbers that are kept: names, reduction, values and window of each."""
        return [(names, reduce, list(kept), kept.maxlen) for names, (reduce, kept) in self._values.items()]

    def set_state(self, state: Iterable[Any]) -> None:
        """Restore a state that :meth:`get_state` returned."""
        self._values = {tuple(names): (reduce, deque(kept, maxlen=most)) for names, reduce, kept, most in state}

    def reduced(self) -> dict[str, Any]:
        """Returns all numbers, nested by their keys; drops those of one iteration."""
        found: dict[str, Any] = {}
        for names, (reduce, values) in self._values.items():
            if values:
                place = found
                for name in names[:-1]:
                    place = place.setdefault(name, {})
                place[names[-1]] = REDUCTIONS[reduce](values)
            if values.maxlen is None and reduce not in ("lifetime_sum", "ema"):
                values.clear()
        return found


def _names(key: Any) -> tuple[str, ...]:
    """Returns a key as the names by which results are nested."""
    return tuple(map(str, key)) if isinstance(key, tuple | list) else (str(key),)


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda values: float(np.mean(values)),
    "sum": lambda values: float(np.sum(values)),
    "min": min,
    "max": max,
    "lifetime_sum": lambda values: values[-1],
    "item": lambda values: values[-1],
    "ema": lambda values: values[-1],
    "item_series": list,
}
