"""What runs in other processes: a runner that collects, a learner that learns. Neither knows how it is reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector.utils import create_empty_array

from polyak.core.files.checkpoint import Saved
from polyak.core.files.parameters import restore, store
from polyak.core.group import ProcessGroup
from polyak.core.loops.asynchronous import AsynchronousAlgorithm
from polyak.core.loops.lessons import Lessons
from polyak.envs import VecEnv
from polyak.scale.callbacks import Hooks
from polyak.scale.config.base import HORIZON, AlgorithmConfig
from polyak.scale.environments import has_channels_last, make_environments, own_action_space
from polyak.scale.processes.fragments import Fragment, given_to, taken_from
from polyak.scale.processes.weights import put_back
from polyak.scale.results import Means

SEEDS_APART = 1000
"""Between the seeds of two runners."""
_KEPT_INFOS = ("episode", "is_success", "TimeLimit.truncated")


class Spaces(NamedTuple):
    """What must be known of environments that are elsewhere."""

    observations: gym.Space
    actions: gym.Space
    own_actions: gym.Space
    """Of the environments themselves, in their own units."""
    turned: bool
    """Whether there are pictures with the channels last."""

    @classmethod
    def of(cls, env: VecEnv) -> Spaces:
        """Those of environments that are here."""
        return cls(env.observation_space, env.action_space, own_action_space(env), has_channels_last(env))


class Elsewhere(VecEnv):
    """Environments that other processes step, as a model sees them that only learns from what they bring.

    Args:
        spaces: of one.
        number: how many.
    """

    def __init__(self, spaces: Spaces, number: int) -> None:
        super().__init__(number, spaces.observations, spaces.actions)

    def reset(self) -> Any:
        """Nothing to look at, in the shape of what there would be."""
        self._reset_seeds()
        self._reset_options()
        return create_empty_array(self.observation_space, self.num_envs, fn=np.zeros)

    def step_async(self, actions: Any) -> None:
        """Refuse.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("these environments are stepped by other processes.")

    step_wait: Any = step_async

    def close(self) -> None:
        """Nothing: whoever has them closes them."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None] * self.num_envs
        raise AttributeError(f"the environments are in other processes, and so is their {attr_name!r}.")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"the environments are in other processes, and so is their {attr_name!r}.")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise AttributeError(f"the environments are in other processes, and so is their {method_name!r}.")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def model_for(config: AlgorithmConfig, env: VecEnv, turned: bool, **changes: Any) -> Any:
    """Polyak's algorithm, as the config words it, on some of the environments."""
    plain = config.plain(turned)
    kwargs = {**plain.kwargs, **changes}
    if "asynchronous" in kwargs:
        kwargs["asynchronous"] = False
    if "batch_size" in kwargs:
        kwargs["batch_size"] = min(kwargs["batch_size"], kwargs["n_steps"] * env.num_envs)
    model = plain.algorithm(plain.policy, env, **kwargs)
    model.set_logger(Means())
    return model


class RunnerWorker:
    """Collects rollouts with the weights that it is given.

    Args:
        config: what to make.
        index: which of the runners, from 1.
    """

    def __init__(self, config: AlgorithmConfig, index: int) -> None:
        torch.set_num_threads(max(int(config.num_cpus_per_env_runner), 1))
        hooks, self.index = Hooks(config), index
        created: Callable[..., None] | None = None
        if hooks.wants("on_environment_created"):
            created = lambda **known: hooks("on_environment_created", env_runner=self, **known)  # noqa: E731
        env = make_environments(config, True, created, worker_index=index)
        self.spaces = Spaces.of(env)
        seed = None if config.seed is None else (config.seed + SEEDS_APART * (index - 1)) % 2**32
        self.model = model_for(config, env, self.spaces.turned, seed=seed, compile=False, device="cpu")
        self.model._update_info_buffer = self._note
        self._lessons: Lessons | None = None
        self._ends: list[tuple[int, list[dict[str, Any]]]] = []

    def describe(self) -> tuple[int, Spaces]:
        """Its process and the spaces of its environments."""
        return os.getpid(), self.spaces

    def sample(self, weights: np.ndarray, version: int) -> Fragment:
        """A rollout by a policy with these weights."""
        model, self._ends = self.model, []
        put_back(model.policy, weights)
        if self._lessons is None:
            self._lessons = Lessons(model, HORIZON)
        with self._lessons.under_way():
            if isinstance(model, AsynchronousAlgorithm):
                rollout = model.collect_rollout(self._lessons.callback, version)
                fragment = taken_from(model.rollout_buffer, version, rollout)
            else:
                model.collect(self._lessons.callback, model.rollout_buffer, model.n_steps)
                fragment = taken_from(model.rollout_buffer, version)
        fragment.infos = self._ends
        return fragment

    def _note(self, infos: Iterable[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        if dones is not None and dones.any():
            kept = [{name: info[name] for name in _KEPT_INFOS if name in info} for info in infos]
            self._ends.append((self.model.num_timesteps, kept))


class Lesson(NamedTuple):
    """What a learner says of one ``train()``."""

    metrics: dict[str, float]
    state: Saved | None
    """Of all that it has learned; only the first of several is asked for it."""
    values: dict[str, Any]
    """Hyper-parameters that learning has moved, and counters."""


MOVING = ("kl_coef", "_n_updates", "_since_broadcast")


class LearnerWorker:
    """Learns from rollouts, together with others.

    Args:
        config: what to make.
        spaces: of the environments.
        n_envs: how many a rollout is of.
        rank: which of the learners, from 0.
    """

    def __init__(self, config: AlgorithmConfig, spaces: Spaces, n_envs: int, rank: int) -> None:
        processors = config.num_cpus_per_learner
        torch.set_num_threads(1 if processors == "auto" else max(int(processors), 1))
        self.rank = rank
        device = "cuda:0" if config.num_gpus_per_learner > 0 else "cpu"
        self.model = model_for(config, Elsewhere(spaces, n_envs), spaces.turned, device=device)
        self._lessons = Lessons(self.model, HORIZON)

    def describe(self) -> tuple[int, tuple[str, int]]:
        """Its process, and an address that is free where it is."""
        with socket.socket() as found:
            found.bind(("", 0))
            port = found.getsockname()[1]
        return os.getpid(), (_own_address(), port)

    def join(self, address: tuple[str, int], size: int, state: Saved, values: dict[str, Any], timeout: float) -> None:
        """Go on from a state, as one with all that join at the same time."""
        self.load(state, values)
        if size > 1:
            torch.distributed.init_process_group(
                "nccl" if self.model.device.type == "cuda" else "gloo",
                init_method=f"tcp://{address[0]}:{address[1]}",
                rank=self.rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
            self.model.learner.join(ProcessGroup())

    def load(self, state: Saved, values: dict[str, Any]) -> None:
        """Take a state back."""
        bring(self.model, state, values)

    def train(self, fragments: list[Fragment], progress: float, whole: bool) -> Lesson:
        """Learn from rollouts.

        Args:
            fragments: its share.
            progress: what remains of training.
            whole: say what was learned.
        """
        model = self.model
        with self._lessons.under_way():
            model._current_progress_remaining = progress
            given_to(model, fragments)
            model.num_timesteps += sum(fragment.rows for fragment in fragments)
            model.train()
        log = model.logger
        assert isinstance(log, Means)
        return Lesson(log.taken(), state_of(model) if whole else None, values_of(model))

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """What a function returns of the learner."""
        return function(self.model.learner)


def state_of(model: Any) -> Saved:
    """All that a model has learned."""
    saved = Saved({})
    store(model.learner, saved)
    return saved


def bring(model: Any, state: Saved, values: dict[str, Any]) -> None:
    """Bring a model to what :func:`state_of` and :func:`values_of` said. Arrays that came from elsewhere are copied:
    nobody may write to those."""
    restore(model.learner, replace(state, networks=_own(state.networks), optimizers=_own(state.optimizers)))
    for name, value in values.items():
        setattr(model, name, value)


def _own(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(array) for name, array in arrays.items()}


def values_of(model: Any) -> dict[str, Any]:
    """What learning moves besides."""
    return {name: getattr(model, name) for name in MOVING if hasattr(model, name)}


def _own_address() -> str:
    """Of this machine, as others reach it; of one that has no network its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("10.255.255.255", 1))  # nothing is sent
            return str(found.getsockname()[0])
        except OSError:
            return "127.0.0.1"
