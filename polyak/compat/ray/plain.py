"""Polyak's algorithm as a config words it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.processes.experience import Outbox
from polyak.compat.ray.results import Means
from polyak.envs import VecEnv
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.kinds.on_policy import OnPolicyAlgorithm
from polyak.schedules import LinearSchedule


def part_of(
    config: AlgorithmConfig, env: VecEnv, turned: bool, policy_kwargs: Mapping[str, Any] | None = None, **changes: Any
) -> Any:
    """A model that does a part of the work, in a process of its own: collects, or learns.

    Args:
        config: what to make.
        env: some of the environments, or what stands for them.
        turned: whether there are images with the channels last.
        policy_kwargs: added to the config's.
        **changes: of the constructor's keyword arguments.
    """
    plain = config.plain(turned)
    kwargs = {**plain.kwargs, **changes, "policy_kwargs": {**plain.kwargs["policy_kwargs"], **(policy_kwargs or {})}}
    if issubclass(plain.algorithm, OffPolicyAlgorithm):
        kwargs |= {"replay_buffer_class": Outbox, "replay_buffer_kwargs": None}
    elif "asynchronous" in kwargs:
        kwargs["asynchronous"] = False
    if issubclass(plain.algorithm, OnPolicyAlgorithm) and "batch_size" in kwargs:
        kwargs["batch_size"] = min(kwargs["batch_size"], kwargs["n_steps"] * env.num_envs)
    model = plain.algorithm(plain.policy, env, **kwargs)
    model.set_logger(Means())
    take_exploration(config, model)
    return model


def acting_part_of(config: AlgorithmConfig, env: VecEnv, turned: bool, seed: int | None) -> Any:
    """A model that acts, with weights from elsewhere, and never learns.

    Args:
        config: what to make.
        env: the environments.
        turned: whether there are images with the channels last.
        seed: of what it draws; ``None``: any.
    """
    idle = {"optimizer_class": Idle, "optimizer_kwargs": {}}
    return part_of(config, env, turned, idle, seed=seed, compile=False, device="cpu")


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
