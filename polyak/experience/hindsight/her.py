"""SB3's face of hindsight experience replay: a replay buffer with the Hindsight relabelling."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from polyak.experience.hindsight.relabel import GOAL_KEYS, GoalSelectionStrategy, Hindsight
from polyak.experience.replay_buffer import DictReplayBuffer
from polyak.warning import warn_user


class HerReplayBuffer(DictReplayBuffer):
    """Hindsight experience replay, Andrychowicz et al. 2017 (arXiv:1707.01495): a buffer with :class:`Hindsight`.

    Draws only from finished episodes; :meth:`can_sample` returns whether there is one. All options of
    :class:`~polyak.experience.replay_buffer.ReplayBuffer` combine with it.

    Args:
        buffer_size, observation_space, action_space, device, n_envs, optimize_memory_usage, handle_timeout_termination:
            as for the replay buffer; the observation space is a Dict with "observation", "achieved_goal" and
            "desired_goal".
        env: the training VecEnv, whose ``compute_reward`` gives the relabelled rewards; None until :meth:`set_env`.
        n_sampled_goal: relabelled rows for each real one.
        goal_selection_strategy: "future", "final" or "episode".
        copy_info_dict: give ``compute_reward`` the rows' infos (slower).
        **kwargs: sampler, n_steps, gamma, reduce, columns, seed, storage_device.

    Raises:
        AssertionError: the observation space is not a Dict.
        ValueError: it lacks a key, or the environments have no ``compute_reward``.
    """

    relabel: Hindsight

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        env: Any,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        n_sampled_goal: int = 4,
        goal_selection_strategy: GoalSelectionStrategy | str = "future",
        copy_info_dict: bool = False,
        **kwargs: Any,
    ):
        assert isinstance(observation_space, spaces.Dict), (
            f"HerReplayBuffer needs a Dict observation space with the keys {GOAL_KEYS}, got {observation_space}: give "
            "the environment goals, or leave replay_buffer_class out."
        )
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            relabel=Hindsight(env, n_sampled_goal, goal_selection_strategy, copy_info_dict),
            **kwargs,
        )

    def set_env(self, env: Any) -> None:
        """Use this VecEnv's ``compute_reward``: see :meth:`use_env`.

        Raises:
            ValueError: the buffer has an environment, this one has no ``compute_reward``, or one that stored rewards
                cannot follow.
        """
        if self.env is not None:
            raise ValueError("The buffer has an environment already. To use another one, assign it: buffer.env = env.")
        self.env = env

    def truncate_last_trajectory(self) -> None:
        """End the running episodes by truncation at their newest row, with a warning if there is one.

        Right when training continues from a saved buffer with fresh environments; wrong if the same episodes continue.
        """
        if self.size() and (self.dones[self.storage.newest] == 0).any():
            warn_user(
                "The last trajectory in the replay buffer will be truncated: it has no end, and is taken as cut short "
                "at its newest row. If the same episode continues, load the buffer with truncate_last_traj=False."
            )
        self.cut_episodes()

    @property
    def env(self) -> Any:
        """The VecEnv whose ``compute_reward`` is used; it can be assigned: see :meth:`use_env`."""
        return self.relabel.env

    @env.setter
    def env(self, env: Any) -> None:
        self.use_env(env)

    @property
    def n_sampled_goal(self) -> int:
        """Relabelled rows for each real one."""
        return self.relabel.n_sampled_goal

    @property
    def her_ratio(self) -> float:
        """Share of relabelled rows."""
        return self.relabel.her_ratio

    @property
    def goal_selection_strategy(self) -> GoalSelectionStrategy:
        """The strategy by which new goals are chosen."""
        return self.relabel.goal_selection_strategy

    @property
    def copy_info_dict(self) -> bool:
        """Whether infos are kept."""
        return self.relabel.copy_info_dict

    @property
    def infos(self) -> np.ndarray | None:
        """[buffer_size, n_envs] dicts, None without ``copy_info_dict``."""
        return self.relabel.infos

    @property
    def ep_start(self) -> np.ndarray:
        """[buffer_size, n_envs] slot where each row's episode began."""
        return self.relabel.episodes.first % self.buffer_size

    @property
    def ep_length(self) -> np.ndarray:
        """[buffer_size, n_envs] length of each row's episode, 0 while it is running."""
        episodes = self.relabel.episodes
        return np.where(episodes.last < 0, 0, episodes.last - episodes.first + 1)

    @property
    def _current_ep_start(self) -> np.ndarray:
        return self.relabel.episodes.current % self.buffer_size
