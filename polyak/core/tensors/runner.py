"""The environment loop in tensors: act, step, and hand out columns. No value is read by the host."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import torch

from polyak.core.runner import Acting, flat, unflat
from polyak.core.tensors.episodes import Episodes
from polyak.core.watching.time_split import TimeSplit
from polyak.data.step import Step
from polyak.envs.batched import BatchedVecEnv
from polyak.experience.arrays import mapped, place


class TensorRunner:
    """Steps a batch of environments as an actor chooses, as :class:`~polyak.core.runner.Runner` does in numpy.

    Its steps have tensors for columns, no infos, and ``ended=False``, since whether an episode ended is not read.

    Args:
        env: the environments.
        actor: chooses the actions.
        split: where to add up how long acting and stepping take; of a device, how long it takes to ask for them.
        newest: how many ended episodes are kept for the logs.
        masks: whether the actor leaves alone what the environments forbid.
    """

    original_obs = None
    is_ahead = False

    def __init__(self, env: BatchedVecEnv, actor: Acting, split: TimeSplit, newest: int, masks: bool = False) -> None:
        self.steps, self._masks = 0, masks
        self.env, self.actor, self.split, self.batch = env, actor, split, env.batch
        self.device = torch.device(env.batch.device)
        self.episodes = Episodes(env.num_envs, newest, self.device)
        self.obs: Any = None
        self.allowed: Any = None
        """[N, M] which choices are allowed next; ``None``: all."""
        self.episode_starts: Any = torch.ones(env.num_envs, dtype=torch.bool, device=self.device)
        self._resets = env.resets

    @property
    def masks(self) -> Any:
        """Not ``None`` where environments say which choices they allow."""
        return self.allowed

    def reset(self) -> None:
        """Start new episodes everywhere."""
        with self.split.env:
            self.obs, allowed = self.env.reset_batch()
        self.allowed = allowed if self._masks else None
        self._resets = self.env.resets
        self.episode_starts = torch.ones_like(self.episode_starts)
        self.episodes.begin()

    def take_up(self, observations: Any) -> None:
        """Continue from observations [N, ...] that the caller has got from the environments."""
        self.obs, self._resets = mapped(lambda part: place(part, self.device), observations), self.env.resets

    @property
    def interrupted(self) -> bool:
        """Whether another program, such as an evaluation, has reset the environments: those in hand are out of date."""
        return self.env.resets != self._resets

    def cut(self, step: Step) -> Step:
        """``step`` as it is, or, where :attr:`interrupted`, as the last one of its episodes."""
        if not self.interrupted:
            return step
        self.reset()
        ones: Any = torch.ones_like(self.episode_starts)
        return step._replace(truncated=~place(step.terminated, self.device), dones=ones, new_obs=self.obs)

    def step(self) -> Step:
        """Act once in each environment."""
        if self.obs is None or self.interrupted:
            self.reset()
        observations, before = self.obs, self.allowed
        started = perf_counter()
        env_actions, actions, extras = self.actor.act(observations, self.episode_starts, before)
        chosen = perf_counter()
        outcome = self.batch.step(env_actions)
        self.split.env.seconds += perf_counter() - chosen
        self.split.inference.seconds += chosen - started
        self.steps += 1
        ended = outcome.terminated | outcome.truncated
        self.episodes.note(outcome.rewards, ended)
        starts, self.episode_starts = self.episode_starts, ended
        self.obs = outcome.observations
        if before is not None:
            self.allowed = outcome.masks
            after = outcome.masks | ended[:, None]  # of a final state nothing is known: all is allowed there
            extras = {**extras, "masks": before, "next_masks": after}
        return Step(
            observations,
            actions,
            env_actions,
            outcome.rewards,
            outcome.successors,
            outcome.terminated,
            outcome.truncated,
            ended,
            [],
            self.obs,
            starts,
            False,
            {**extras, **outcome.extras},
        )

    def close_thread(self) -> None:
        """There is none."""

    def state(self) -> dict[str, np.ndarray]:
        """The observations in hand and the running episodes, as arrays by name; empty before the first step."""
        if self.obs is None:
            return {}
        host = {"episode_starts": self.episode_starts, **flat("allowed", self.allowed), **flat("obs", self.obs)}
        episodes = {f"episodes/{name}": value for name, value in self.episodes.state().items()}
        return {**{name: place(value, None) for name, value in host.items()}, **episodes}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what :meth:`state` returned; the environments must be in the matching state."""
        if not state:
            return
        self._resets = self.env.resets

        def here(array: Any) -> Any:
            return place(np.array(array), self.device)

        self.episode_starts = here(state["episode_starts"]).bool()
        self.obs = mapped(here, unflat("obs", state))
        allowed = unflat("allowed", state)
        self.allowed = here(allowed).bool() if self._masks and allowed is not None else None
        if (episodes := unflat("episodes", state)) is not None:
            self.episodes.load_state(episodes)
