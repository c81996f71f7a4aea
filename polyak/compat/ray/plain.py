"""Polyak's algorithm as a config words it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.vector.utils import create_empty_array
from torch import nn
from torch.optim import Optimizer

from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.processes.experience import Outbox
from polyak.compat.ray.results import Means
from polyak.data import Dataset
from polyak.envs import VecEnv
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.kinds.offline import OfflineAlgorithm
from polyak.kinds.on_policy import OnPolicyAlgorithm
from polyak.schedules import LinearSchedule


def acting_part_of(config: AlgorithmConfig, env: VecEnv, turned: bool, seed: int | None) -> Any:
    """A model that acts in a process of its own, with weights from elsewhere, and never learns.

    Args:
        config: what to make.
        env: the environments.
        turned: whether there are images with the channels last.
        seed: of what it draws; ``None``: any.
    """
    plain = config.plain(turned)
    idle = {"optimizer_class": Idle, "optimizer_kwargs": {}}
    kwargs = {**plain.kwargs, "policy_kwargs": {**plain.kwargs["policy_kwargs"], **idle}}
    kwargs |= {"seed": seed, "compile": False, "device": "cpu"}
    kwargs |= {"n_learners": 1} if "n_learners" in kwargs else {}
    if issubclass(plain.algorithm, OffPolicyAlgorithm):
        kwargs |= {"replay_buffer_class": Outbox, "replay_buffer_kwargs": None, "n_replay_shards": 0}
    elif "asynchronous" in kwargs:
        kwargs["asynchronous"] = False
    if issubclass(plain.algorithm, OnPolicyAlgorithm) and "batch_size" in kwargs:
        kwargs["batch_size"] = min(kwargs["batch_size"], kwargs["n_steps"] * env.num_envs)
    never_acts = issubclass(plain.algorithm, OfflineAlgorithm) and not issubclass(plain.algorithm, OffPolicyAlgorithm)
    model = plain.algorithm(plain.policy, one_step(env) if never_acts else env, **kwargs)
    model.set_logger(Means())
    take_exploration(config, model)
    return model


def one_step(env: VecEnv) -> Dataset:
    """Data of an environment's spaces, for a model that is built of data and learns from none."""
    seen = create_empty_array(env.observation_space, 2, fn=np.zeros)
    done = create_empty_array(env.action_space, 1, fn=np.zeros)
    spaces: Any = {"observation_space": env.observation_space, "action_space": env.action_space}
    return Dataset(seen, done, np.zeros(1), np.ones(1, bool), **spaces)


class Idle(Optimizer):
    """One that is never asked for a step. To make a real one takes a second and 70 MB: torch's compiler is imported."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        self.defaults, self.state = {"lr": lr}, defaultdict(dict)
        self.param_groups = [{"params": list(params), "lr": lr}]


def take_exploration(config: AlgorithmConfig, model: Any) -> None:
    """Let a model take random actions as often as the config says, which may be more than one straight line."""
    schedule = getattr(config, "exploration_schedule", lambda: None)()
    if schedule is not None and not isinstance(schedule, LinearSchedule):
        model.exploration_schedule = schedule
        model.exploration_rate = schedule(model._current_progress_remaining)
