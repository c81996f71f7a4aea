"""Environments and wrappers under RLlib's names: Atari as its programs prepare it, and several agents in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from polyak.envs import EpisodicLifeEnv, FireResetEnv, MaxAndSkipEnv, NoopResetEnv, WarpFrame
from polyak.hyperparameters.declaration import require

LONGEST_GAME = 108_000
"""Frames of a game of Atari, which are half an hour."""


def is_atari(env: gym.Env | str) -> bool:
    """Whether an environment, or its name, is a game of Atari."""
    return env.startswith(("ALE/", "ale_py:")) if isinstance(env, str) else "AtariEnv<ALE" in str(env)


def wrap_atari_for_new_api_stack(
    env: gym.Env, dim: int = 64, frameskip: int = 4, framestack: int | None = None, grayscale: bool = True
) -> gym.Env:
    """Wraps an Atari game as RLlib's programs do: observations [dim, dim, framestack or 1], float32 in [-1, 1].

    Args:
        env: the game itself, without frame skip.
        dim: height and width.
        frameskip: number of frames per action.
        framestack: number of stacked frames; ``None``: one.
        grayscale: must be ``True``.

    Raises:
        HyperparameterError: ``grayscale=False``.
    """
    require(grayscale, "grayscale", grayscale, "frames are grey here. Leave it out.")
    env = WarpFrame(gym.wrappers.TimeLimit(env, LONGEST_GAME), dim, dim)
    shape = (dim, dim, 1)
    env = gym.wrappers.TransformObservation(env, _in_units, gym.spaces.Box(-1.0, 1.0, shape, np.float32))
    if frameskip > 1:
        env = MaxAndSkipEnv(env, frameskip)
    env = EpisodicLifeEnv(NoopResetEnv(env))
    if "FIRE" in env.unwrapped.get_action_meanings():  # type: ignore[attr-defined]
        env = FireResetEnv(env)
    if not framestack:
        return env
    space = gym.spaces.Box(-1.0, 1.0, (dim, dim, framestack), np.float32)
    stacked = gym.wrappers.FrameStackObservation(env, framestack, padding_type="zero")
    return gym.wrappers.TransformObservation(stacked, lambda frames: np.concatenate(list(frames), -1), space)


def _in_units(frame: np.ndarray) -> np.ndarray:
    return frame.astype(np.float32) / 128 - 1


class MultiAgentEnv(gym.Env[Any, Any]):
    """Several agents in one environment, by name: arguments and results of ``reset`` and ``step`` are dicts.

    Algorithms here train one agent, and refuse it.

    Attributes:
        possible_agents: names of all possible agents.
        agents: names of the present agents.
        observation_spaces: name -> space.
        action_spaces: name -> space.
    """

    def __init__(self) -> None:
        self.agents = list(vars(self).get("agents", []))
        self.possible_agents = list(vars(self).get("possible_agents", self.agents))
        self.observation_spaces: Mapping[Any, gym.Space] | None = vars(self).get("observation_spaces")
        self.action_spaces: Mapping[Any, gym.Space] | None = vars(self).get("action_spaces")

    def get_observation_space(self, agent_id: Any) -> gym.Space:
        """Returns the observation space of an agent; the common one, if there are none by name."""
        return self.observation_space if self.observation_spaces is None else self.observation_spaces[agent_id]

    def get_action_space(self, agent_id: Any) -> gym.Space:
        """Returns the action space of an agent; the common one, if there are none by name."""
        return self.action_space if self.action_spaces is None else self.action_spaces[agent_id]

    @property
    def num_agents(self) -> int:
        """The number of present agents."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """The number of possible agents."""
        return len(self.possible_agents)


def make_multi_agent(env_name_or_creator: str | Callable[[Any], gym.Env]) -> type[MultiAgentEnv]:
    """Returns a class of environments with ``config["num_agents"]`` copies of one, each played by an agent 0, 1, ..."""

    class Copies(MultiAgentEnv):
        """Agents that do not meet."""

        source: ClassVar[Any] = staticmethod(
            (lambda config: gym.make(env_name_or_creator))
            if isinstance(env_name_or_creator, str)
            else env_name_or_creator
        )

        def __init__(self, config: Mapping[str, Any] | None = None) -> None:
            config = dict(config or {})
            self.envs = [self.source(config) for _ in range(config.pop("num_agents", 1))]
            self.possible_agents = list(range(len(self.envs)))
            super().__init__()
            self.agents = list(self.possible_agents)
            self.observation_spaces = {agent: env.observation_space for agent, env in enumerate(self.envs)}
            self.action_spaces = {agent: env.action_space for agent, env in enumerate(self.envs)}
            self._over: set[int] = set()

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            self._over = set()
            found = [env.reset(seed=seed, options=options) for env in self.envs]
            return tuple({agent: one[part] for agent, one in enumerate(found)} for part in (0, 1))

        def step(self, action: Any) -> Any:
            found = {agent: self.envs[agent].step(one) for agent, one in action.items()}
            self._over |= {agent for agent, one in found.items() if one[2] or one[3]}
            parts = [{agent: one[part] for agent, one in found.items()} for part in range(5)]
            all_over = len(self._over) == len(self.envs)
            cut = all_over and any(parts[3].values())
            parts[2]["__all__"], parts[3]["__all__"] = all_over and not cut, cut
            return tuple(parts)

        def close(self) -> None:
            for env in self.envs:
                env.close()

    return Copies
