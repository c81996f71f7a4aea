"""Code of one's own that runs during training, and a place for its numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from polyak.compat.overrides import refuse
from polyak.compat.ray import not_called
from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.config.settings import CallbackSettings
from polyak.compat.ray.env_runners import EnvRunner
from polyak.hyperparameters.declaration import require

HOOKS = tuple(name for name in CallbackSettings.__annotations__ if name.startswith("on_"))
"""What can be written of a callback."""
STEPS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_sample_end")
"""Those that only episodes of this process are shown to."""


class RLlibCallback:
    """Subclass it, and write those methods that are needed; all of them take keyword arguments only."""

    def on_algorithm_init(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """Once it is built."""

    def on_train_result(self, *, algorithm: Any, metrics_logger: Any = None, result: dict, **kwargs: Any) -> None:
        """After each ``train()``; it may change the result."""

    def on_evaluate_start(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """Before each evaluation."""

    def on_evaluate_end(
        self, *, algorithm: Any, metrics_logger: Any = None, evaluation_metrics: dict, **kwargs: Any
    ) -> None:
        """After it."""

    def on_checkpoint_loaded(self, *, algorithm: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """After ``restore_from_path()``."""

    def on_environment_created(self, *, env: Any, env_context: Any, metrics_logger: Any = None, **kwargs: Any) -> None:
        """For each environment that is made in this process."""

    def on_episode_created(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """For each :class:`~polyak.compat.ray.episodes.Episode`, in training and in evaluation, with its first step."""

    def on_episode_start(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """After :meth:`on_episode_created`."""

    def on_episode_step(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """For each step of an episode."""

    def on_episode_end(
        self,
        *,
        episode: Any,
        env_runner: Any = None,
        metrics_logger: Any = None,
        env: Any = None,
        env_index: int,
        rl_module: Any = None,
        **kwargs: Any,
    ) -> None:
        """For each episode that ends; of those in other processes, the ones of training."""

    def on_sample_end(
        self, *, env_runner: Any = None, metrics_logger: Any = None, samples: list, **kwargs: Any
    ) -> None:
        """After each fragment of experience, and after each evaluation, with its episodes."""


DefaultCallbacks = RLlibCallback
"""Its name in earlier versions of RLlib."""


class MetricsLogger:
    """Numbers of callbacks, reported under ``env_runners``."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], tuple[str, deque[float]]] = {}

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
        """Note a number.

        Args:
            key: its name, or a tuple of names, by which results are nested.
            value: the number.
            reduce: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"lifetime_sum"``, ``"item"`` (the last one),
                ``"ema"`` (a mean in which older ones count less and less) or ``"item_series"`` (all); ``None``: the
                mean.
            window: of how many; ``None``: of those of one iteration.
            ema_coeff: what each new number counts in ``"ema"``; ``None``: 0.01.
            clear_on_reduce: begin again at zero with each iteration; ``None``: as ``reduce`` says.

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
        value = float(value)
        if reduce == "lifetime_sum" and kept:
            value += kept.pop()
        elif reduce == "ema" and kept:
            share = 0.01 if ema_coeff is None else ema_coeff
            value = share * value + (1 - share) * kept.pop()
        kept.append(value)

    def log_dict(self, value_dict: Mapping[str, Any], *, key: Any = (), **options: Any) -> None:
        """:meth:`log_value` of each entry, nested as they are, under ``key``."""
        above = _names(key)
        for name, value in value_dict.items():
            if isinstance(value, Mapping):
                self.log_dict(value, key=(*above, name), **options)
            else:
                self.log_value((*above, name), value, **options)

    def peek(self, key: Any, default: Any = None) -> Any:
        """What a number would be reported as now; ``default`` if there is none."""
        reduce, values = self._values.get(_names(key), ("mean", ()))
        return REDUCTIONS[reduce](values) if values else default

    def get_state(self) -> list[Any]:
        """All numbers that are kept: of each its names, how it is reduced, its values and of how many."""
        return [(names, reduce, list(kept), kept.maxlen) for names, (reduce, kept) in self._values.items()]

    def set_state(self, state: Iterable[Any]) -> None:
        """Put back what :meth:`get_state` returned."""
        self._values = {tuple(names): (reduce, deque(kept, maxlen=most)) for names, reduce, kept, most in state}

    def reduced(self) -> dict[str, Any]:
        """All numbers, nested by their keys; those of one iteration are dropped."""
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
    """A key as the names by which results are nested."""
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


class Hooks:
    """All callbacks of a config.

    Args:
        config: whose callbacks.

    Raises:
        HyperparameterError: a class or a function that is none, or a method that is never called.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        given = config.callbacks_class
        classes = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
        self.metrics_logger, self.evaluation_logger = MetricsLogger(), MetricsLogger()
        self._functions: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}
        for cls in classes:
            is_class = isinstance(cls, type) and issubclass(cls, RLlibCallback)
            require(is_class, "callbacks_class", cls, "give a subclass of RLlibCallback.")
            refuse("callbacks_class", cls, RLlibCallback, not_called.CALLBACKS)
            one = cls()
            for name in HOOKS:
                if getattr(cls, name) is not getattr(RLlibCallback, name):
                    self._functions[name].append(getattr(one, name))
        for name in HOOKS:
            function = getattr(config, name)
            require(function is None or callable(function), name, function, "give a function, or None.")
            if function is not None:
                self._functions[name].append(function)

    def wants(self, name: str) -> bool:
        """Whether there is a function for it."""
        return bool(self._functions[name])

    def wants_steps(self) -> bool:
        """Whether any is to see more of episodes than their ends."""
        return any(map(self.wants, STEPS))

    def __call__(self, name: str, evaluating: bool = False, **known: Any) -> None:
        """Call all that want to know."""
        logger = self.evaluation_logger if evaluating else self.metrics_logger
        for function in self._functions[name]:
            function(metrics_logger=logger, **known)

    def shown(self, algorithm: Any, evaluating: bool) -> Callable[..., None]:
        """What shows episodes of an algorithm, see :class:`~polyak.compat.ray.episodes.Episodes`."""
        runner = EnvRunner(self, algorithm, evaluating)

        def show(name: str, **known: Any) -> None:
            if name != "on_sample_end":
                known["rl_module"] = runner.module
            if name == "on_episode_end":
                known |= {"algorithm": algorithm, "prev_episode_chunks": []}
            self(name, evaluating, env_runner=runner, **known)

        return show
