"""Code of one's own that runs during training, and a place for its numbers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from polyak.core.hyperparameters import require
from polyak.core.watching.callbacks import BaseCallback
from polyak.scale import not_called
from polyak.scale.config.base import AlgorithmConfig
from polyak.scale.config.settings import CallbackSettings
from polyak.scale.overrides import refuse

HOOKS = tuple(name for name in CallbackSettings.__annotations__ if name.startswith("on_"))
"""What can be written of a callback."""


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

    def on_episode_end(
        self, *, episode: Any, env_index: int, algorithm: Any, metrics_logger: Any = None, **kwargs: Any
    ) -> None:
        """For each episode of training that ends."""


DefaultCallbacks = RLlibCallback
"""Its name in earlier versions of RLlib."""


class EndedEpisode:
    """What is known of an episode that has ended.

    Args:
        info: the last info of the environment, which the statistics are in.
    """

    def __init__(self, info: dict[str, Any]) -> None:
        self.info = info
        self.is_terminated = not info.get("TimeLimit.truncated", False)
        self.is_truncated = not self.is_terminated

    def get_return(self) -> float:
        """Sum of rewards."""
        return float(self.info["episode"]["r"])

    def __len__(self) -> int:
        """Environment steps."""
        return int(self.info["episode"]["l"])

    def get_infos(self, index: int = -1) -> dict[str, Any]:
        """The last info: no others are kept."""
        require(index == -1, "index", index, "only the last info is kept: use -1.")
        return self.info


class MetricsLogger:
    """Numbers of callbacks, reported under ``env_runners``."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, deque[float]]] = {}

    def log_value(
        self, key: Any, value: Any, *, reduce: str = "mean", window: int | None = None, **kwargs: Any
    ) -> None:
        """Note a number.

        Args:
            key: its name, or a tuple of names.
            value: the number.
            reduce: ``"mean"``, ``"sum"``, ``"min"``, ``"max"``, ``"lifetime_sum"`` or ``"item"``, the last one.
            window: of how many; ``None``: of those of one iteration.

        Raises:
            HyperparameterError: another ``reduce``, or an unknown option.
        """
        require(reduce in REDUCTIONS, "reduce", reduce, f"there are {', '.join(REDUCTIONS)}.")
        for name, given in kwargs.items():
            require(given is None, name, given, "there are reduce and window.")
        name = "/".join(key) if isinstance(key, tuple) else str(key)
        kept = self._values.setdefault(name, (reduce, deque(maxlen=window)))[1]
        kept.append(float(value) + (kept.pop() if reduce == "lifetime_sum" and kept else 0.0))

    def reduced(self) -> dict[str, float]:
        """All numbers; those of one iteration are forgotten."""
        found = {name: REDUCTIONS[reduce](values) for name, (reduce, values) in self._values.items() if values}
        for reduce, values in self._values.values():
            if values.maxlen is None and reduce != "lifetime_sum":
                values.clear()
        return found


REDUCTIONS: dict[str, Callable[[Any], float]] = {
    "mean": lambda values: float(np.mean(values)),
    "sum": lambda values: float(np.sum(values)),
    "min": min,
    "max": max,
    "lifetime_sum": lambda values: values[-1],
    "item": lambda values: values[-1],
}


class Hooks:
    """All callbacks of a config.

    Args:
        config: whose callbacks.

    Raises:
        HyperparameterError: a class or a function that is none, or a method that nobody calls.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        given = config.callbacks_class
        classes = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
        self.metrics_logger = MetricsLogger()
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
        """Whether anybody is to be told."""
        return bool(self._functions[name])

    def __call__(self, name: str, **known: Any) -> None:
        """Tell all who want to know."""
        for function in self._functions[name]:
            function(metrics_logger=self.metrics_logger, **known)


class EpisodeEnds(BaseCallback):
    """Tells hooks of episodes that end.

    Args:
        hooks: whom.
        algorithm: whose episodes.
    """

    def __init__(self, hooks: Hooks, algorithm: Any) -> None:
        super().__init__()
        self._hooks, self._algorithm = hooks, algorithm

    def _on_step(self) -> bool:
        self.tell(self.locals["infos"])
        return True

    def tell(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Of a step with these infos."""
        for index, info in enumerate(infos):
            if "episode" in info:
                self._hooks(
                    "on_episode_end", episode=EndedEpisode(dict(info)), env_index=index, algorithm=self._algorithm
                )
