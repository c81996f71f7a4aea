"""Experience collected, and learned from, in this process: what the groups of an algorithm are without
further processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.config.base import HORIZON
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.models.multi import MultiRLModule

Weights = dict[str, np.ndarray]


def beside(learner: Any) -> dict[str, Any]:
    """Name -> module of those that only a learner has."""
    return dict(learner.beside.items()) if isinstance(learner, TorchLearner) else {}


class LocalRunner:
    """Experience collected in this process, and learned from as soon as it is there: the iterations of a model's
    training, one by one, for programs that never say how many.

    As many steps as were made are expected to follow, so that gradient steps are compiled once a run has become long.

    Args:
        model: polyak's algorithm, with its environments.
        callback: called at each step; ``None``: nothing is.
        restart: begin to count at zero.
        local_env_runner: as programs are shown it.
    """

    num_healthy_env_runners = num_restarts = 0
    _loop: Any

    def __init__(self, model: Any, callback: Any, restart: bool, local_env_runner: Any) -> None:
        self.model, self.local_env_runner = model, local_env_runner
        self._callback, self._restart = callback, restart
        self._began: int | None = None
        """Environment steps before training."""

    @property
    def env(self) -> Any:
        """The vector of environments; ``None`` where there are none."""
        return self.model.get_env()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around the training steps of one iteration."""
        model = self.model
        if self._began is None:
            _, self._callback = model._setup_learn(1, self._callback, self._restart, type(model).__name__)
            model._total_timesteps, model._num_timesteps_at_start = HORIZON, 0
            self._callback.on_training_start(model._callback_locals(callback=self._callback), globals())
            self._began = model.num_timesteps
        model._total_timesteps = model.num_timesteps + max(model.num_timesteps - self._began, 1)
        model._prepare_to_learn(False)
        model._total_timesteps = HORIZON
        self._loop = type(model).loop(model, self._callback, None)
        with model._while_learning():
            yield

    def iterate(self) -> bool:
        """Collect one batch and learn from it. False: a callback asked to stop."""
        return bool(self._loop.iterate())

    def num_remote_env_runners(self) -> int:
        """Runners in other processes."""
        return 0

    def foreach_env_runner(self, func: Callable[[Any], Any], *, local_env_runner: bool = True) -> list[Any]:
        """What a function returns of the runner, unless ``local_env_runner`` is false."""
        return [func(self.local_env_runner)] if local_env_runner else []

    def follow(self) -> None:
        """Count on from where the model has been brought."""
        self._restart = False

    def stop(self) -> None:
        """Close the environments."""
        if self._began is not None:
            self._callback.on_training_end()
            self.model._split.stop()
            self._began = None
        if self.env is not None:
            self.env.close()


class LocalLearner:
    """The learner, in this process.

    Args:
        model: polyak's algorithm, which has it.
        module: its networks, under RLlib's contract.
    """

    is_local, is_remote = True, False

    def __init__(self, model: Any, module: Any) -> None:
        self.model, self._module = model, module

    @property
    def _learner(self) -> Any:
        """The learner, as programs reach its modules: ``learner_group._learner.module["default_policy"]``."""
        learner = self.model.learner
        return learner if isinstance(learner, TorchLearner) else ModulesOf(self.model)

    def get_weights(self, module_ids: Any = None) -> dict[str, Weights]:
        """Arrays by name, under the module's name: what its ``get_state()`` returns.

        Args:
            module_ids: of which modules; ``None``: of all.
        """
        modules = self._modules
        wanted = list(modules) if module_ids is None else list(module_ids)
        if unknown := sorted({*wanted} - {*modules}):
            raise ValueError(f"module_ids={unknown}: there is only {', '.join(map(repr, modules))}.")
        return {name: modules[name].get_state() for name in wanted}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Put back what :meth:`get_weights` returned, or that of some modules.

        Raises:
            ValueError: another module, names or shapes. Nothing has changed then.
        """
        modules = self._modules
        if unknown := sorted(weights.keys() - {*modules}):
            raise ValueError(f"weights name the modules {unknown}, but there is only {', '.join(map(repr, modules))}.")
        for module_id, given in weights.items():
            own = modules[module_id].get_state()
            wrong = sorted(name for name in own.keys() | given.keys() if not _fits(own.get(name), given.get(name)))
            if wrong:
                raise ValueError(
                    f"weights do not fit the module {module_id!r}: {wrong} are missing, not its own, or of another "
                    "shape."
                )
        for module_id, given in weights.items():
            modules[module_id].set_state(given)

    @property
    def _modules(self) -> dict[str, Any]:
        """Name -> module."""
        return {DEFAULT_MODULE_ID: self._module, **beside(self.model.learner)}

    def follow(self) -> None:
        """Learn on from where the model has been brought: it is the learner's own."""

    def settle(self) -> None:
        """Bring the model to where the learner is: it is there."""

    def foreach_learner(self, func: Callable[[Any], Any]) -> list[Any]:
        """What a function returns of each learner."""
        return [func(self.model.learner)]

    def stop(self) -> None:
        """Let a learner of a program's own end what it has begun."""
        if isinstance(self.model.learner, TorchLearner):
            self.model.learner.shutdown()


class ModulesOf:
    """A learner by its modules.

    Args:
        model: polyak's algorithm.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def module(self) -> MultiRLModule:
        """The modules that learn, by name, themselves and not copies.

        Raises:
            AttributeError: the networks are polyak's own.
        """
        module = getattr(self.model.policy, "rl_module", None)
        if module is None:
            raise AttributeError(f"{type(self.model).__name__} trains networks of polyak's: use algo.get_module().")
        return MultiRLModule({DEFAULT_MODULE_ID: module})


def _fits(own: Any, given: Any) -> bool:
    return own is not None and given is not None and tuple(own.shape) == np.shape(given)
