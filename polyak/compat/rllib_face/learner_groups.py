"""The learner of an algorithm in this process, and learners by themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from polyak.checkpoint.parameters import load_optimizer
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.environments import has_channels_last
from polyak.compat.rllib_face.groups import beside
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.models.multi import MultiRLModule, of_one_agent
from polyak.compat.rllib_face.places import made
from polyak.compat.rllib_face.results import Means, named
from polyak.compat.rllib_face.states import ComponentChoice
from polyak.envs import DummyVecEnv
from polyak.hyperparameters.declaration import require
from polyak.loops.training import tasks
from polyak.loops.updates import Gained, record_means

Weights = dict[str, np.ndarray]
MOVING = frozenset(["kl_coef", "_n_updates"])
"""Attributes of a model, outside of its learner, that learning changes."""

_LEARNS: ContextVar[tuple[Any, Any] | None] = ContextVar("model and module", default=None)
"""The model and module of the learner group that an algorithm is making."""


@contextmanager
def learns_with(model: Any, module: Any) -> Iterator[None]:
    """While the block runs, a new learner group is that of a model."""
    token = _LEARNS.set((model, module))
    try:
        yield
    finally:
        _LEARNS.reset(token)


class LearnerGroup:
    """The learner of this process: an algorithm's, or one by itself that gets episodes.

    Args:
        config: the algorithm's config.
        module_spec: the module, with its spaces, without an algorithm.
        placement_group: RLlib's, which must be ``None``.
    """

    is_local, is_remote = True, False

    def __init__(self, *, config: Any, module_spec: Any = None, placement_group: Any = None) -> None:
        require(placement_group is None, "placement_group", placement_group, "processes are placed by Ray itself.")
        self.config = config
        self.model, self._module = _LEARNS.get() or _alone(config, module_spec)

    def update(
        self,
        *,
        episodes: Any = None,
        timesteps: Mapping[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        **others: Any,
    ) -> list[dict[str, Any]]:
        """Learn from episodes: see :meth:`~polyak.compat.rllib_face.learners.base.TorchLearner.learn_from_episodes`.

        Args:
            others: RLlib's other arguments, which must be unset.

        Returns:
            one dict: name of a module -> its metrics.
        """
        for name, value in others.items():
            require(not value, name, value, "a learner here learns from episodes=[...]. Leave it out.")
        model, learner = self.model, self.model.learner
        fix = f"{type(learner).__name__} learns from no episodes. Use PPO's, or a TorchLearner of your own."
        require(getattr(learner, "pipeline", None) is not None, "learner_class", type(learner), fix)
        learner.policy.set_training_mode(True)
        model._following()()
        metrics = learner.learn_from_episodes(
            list(episodes or ()),
            timesteps=timesteps,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle_batch_per_epoch=shuffle_batch_per_epoch,
        )
        model.clock.updates += num_epochs
        record_means(metrics, model.logger, model.host)
        for watch in tasks(model, "watching"):
            watch(Gained(metrics, num_epochs))
        means = {name: float(torch.stack(values).mean()) for name, values in metrics.items()}
        return [{DEFAULT_MODULE_ID: named(means), "__all_modules__": {}}]

    def get_state(
        self, components: Any = None, *, not_components: Any = None, inference_only: bool = False
    ) -> dict[str, Any]:
        """Returns a copy of the learned state.

        Args:
            components: names of parts, such as ``"learner/rl_module"``; ``None``: all.
            not_components: names of parts to leave out.
            inference_only: only the tensors of modules that acting needs.

        Returns:
            ``{"learner": {"rl_module": name -> arrays, "optimizer": name -> state, "learning": the rest}}``.

        Raises:
            HyperparameterError: there is no part of that name.
        """
        self.settle()
        model, learner, above = self.model, self.model.learner, "learner_group/"
        chosen = ComponentChoice(components, not_components, beside(learner), above)
        found: dict[str, Any] = {}
        if chosen.has("learner/rl_module"):
            names = [name for name in self._modules if chosen.has(f"learner/rl_module/{name}")]
            found["rl_module"] = self.get_weights(names, inference_only=inference_only)
        if chosen.has("learner/optimizer"):
            learner.adopt_optimizers()
            own = {tensor.data_ptr() for module in self._modules.values() for tensor in module._tensors().values()}
            others = {name: one for name, one in learner.networks().items() if one.data_ptr() not in own}
            found["optimizer"] = {name: copy.deepcopy(one.state_dict()) for name, one in learner.optimizers.items()}
            found["learning"] = {
                "networks": {name: tensor.numpy(force=True).copy() for name, tensor in others.items()},
                "steps": learner.steps,
                "values": {name: getattr(model, name) for name in MOVING if hasattr(model, name)},
            }
        return {"learner": found} if found else {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned, or parts of it.

        Raises:
            ValueError: another module, names or shapes.
        """
        found, learner = state.get("learner", {}), self.model.learner
        self.set_weights(found.get("rl_module", {}))
        for name, kept in found.get("optimizer", {}).items():
            require(name in learner.optimizers, "state", name, f"there are optimizers {sorted(learner.optimizers)}.")
            load_optimizer(learner, name, copy.deepcopy(kept))
        if "learning" in found:
            self._learn_on(found["learning"])
        self.follow()

    def _learn_on(self, state: Mapping[str, Any]) -> None:
        learner = self.model.learner
        own = learner.networks()
        for name, array in state["networks"].items():
            fits = name in own and tuple(own[name].shape) == array.shape
            require(fits, "state", name, "it is of another algorithm or of other networks.")
            with torch.no_grad():
                own[name].copy_(torch.from_numpy(array.copy()))
        learner.steps = int(state["steps"])
        for name in state["values"].keys() & MOVING:
            setattr(self.model, name, state["values"][name])

    def __len__(self) -> int:
        return 1

    @property
    def _learner(self) -> Any:
        """The learner, as programs reach its modules: ``learner_group._learner.module["default_policy"]``."""
        learner = self.model.learner
        return learner if isinstance(learner, TorchLearner) else SimpleNamespace(module=MultiRLModule(self._modules))

    def get_weights(self, module_ids: Any = None, inference_only: bool = False) -> dict[str, Weights]:
        """Returns the results of the modules' ``get_state()``, by name of the module.

        Args:
            module_ids: names of modules; ``None``: all.
            inference_only: only the tensors that acting needs.
        """
        modules = self._modules
        wanted = list(modules) if module_ids is None else list(module_ids)
        if unknown := sorted({*wanted} - {*modules}):
            raise ValueError(f"module_ids={unknown}: there is only {', '.join(map(repr, modules))}.")
        return {name: modules[name].get_state(inference_only=inference_only) for name in wanted}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore weights that :meth:`get_weights` returned, of all or some modules.

        Raises:
            ValueError: another module, names or shapes; nothing is changed then.
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
        """Update the model from the learner: it is there."""

    def foreach_learner(self, func: Callable[[Any], Any]) -> list[Any]:
        """Returns the results of a function of each learner."""
        return [func(self.model.learner)]

    def stop(self) -> None:
        """Let a program's own learner end its work."""
        if isinstance(self.model.learner, TorchLearner):
            self.model.learner.shutdown()

    def shutdown(self) -> None:
        """RLlib's other name of :meth:`stop`."""
        self.stop()


def _fits(own: Any, given: Any) -> bool:
    return own is not None and given is not None and tuple(own.shape) == np.shape(given)


class Unplayed(gym.Env[Any, Any]):
    """Environments that are never played, which give a model its spaces.

    Args:
        observation_space, action_space: the spaces.
    """

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def _alone(config: Any, module_spec: Any) -> tuple[Any, Any]:
    """Returns a model that has a learner and no environments, and its module."""
    spec = of_one_agent(module_spec or config.get_multi_rl_module_spec())
    spaces = spec.observation_space, spec.action_space
    fix = "a learner without an algorithm must know what its module reads: give get_multi_rl_module_spec(spaces=...)."
    require(None not in spaces, "module_spec", spec, fix)
    fix = "a learner without an algorithm learns in this process: set num_learners=0."
    require(config.num_learners == 0, "num_learners", config.num_learners, fix)
    own = config.copy(copy_frozen=False)
    own.__dict__["by_episodes"] = True
    own.freeze()
    env = DummyVecEnv([partial(Unplayed, *spaces)])
    model = made(own, own.plain(has_channels_last(env)), env)
    model.set_logger(Means())
    return model, model.policy.rl_module
