"""Episodes as callbacks are shown them, while they are played and when they have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from polyak.arrays import mapped
from polyak.callbacks.callback import BaseCallback
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode
from polyak.hyperparameters.declaration import require


class PlayedEpisode(SingleAgentEpisode):
    """An episode of one environment, as far as it has been played: its actions in the units of the environment, rewards
    as they are learned from and infos of all steps, and the latest observation alone.

    Args:
        observation: the first observation.
        info: the info of the reset.
    """

    _known: tuple[float, int] | None = None

    def __init__(self, observation: Any = None, info: Mapping[str, Any] | None = None) -> None:
        super().__init__(observations=[observation], infos=[info or {}])

    @classmethod
    def ended(cls, info: dict[str, Any]) -> PlayedEpisode:
        """Makes an episode that was played in another process from its last info, which holds its statistics."""
        made = cls(None, info)
        made.is_truncated = bool(info.get("TimeLimit.truncated", False))
        made.is_terminated = not made.is_truncated
        made._count(info)
        return made

    def add(self, observation: Any, action: Any, reward: float, done: bool, info: dict[str, Any]) -> None:
        """Adds a step. ``observation`` is its successor, or the first of the next episode if the step was the last."""
        cut = done and bool(info.get("TimeLimit.truncated", False))
        last = info.get("terminal_observation", observation) if done else observation
        self.observations.clear()
        self.add_env_step(last, action, reward, info, terminated=done and not cut, truncated=cut)
        if done:
            self._count(info)

    def _count(self, info: Mapping[str, Any]) -> None:
        if "episode" in info:  # as the environment counted, before anything changed its rewards
            self._known = float(info["episode"]["r"]), int(info["episode"]["l"])

    def get_return(self) -> float:
        return super().get_return() if self._known is None else self._known[0]

    def __len__(self) -> int:
        return super().__len__() if self._known is None else self._known[1]

    env_steps = agent_steps = __len__

    def get_infos(self, indices: Any = None, **how: Any) -> Any:
        self._check(self.infos, len(self) + 1, indices)
        return super().get_infos(indices, **how)

    def _got(self, values: list[Any], indices: Any, *space: Any, **how: Any) -> Any:
        if values is self.observations:
            fix = "only the latest observation is kept: use -1."
            require(indices == -1, "indices", indices, fix)
            require(values[0] is not None, "indices", indices, "the episode was played in another process.")
        else:
            self._check(values, len(self), indices)
        return super()._got(values, indices, *space, **how)

    def _check(self, values: list[Any], length: int, indices: Any) -> None:
        fix = "the episode was played in another process, and only its last info is known: use -1."
        require(len(values) == length or (indices == -1 and bool(values)), "indices", indices, fix)


class EpisodesForHooks:
    """Passes the episodes of a vector of environments to hooks, step by step.

    Args:
        show: called with a hook's name and its arguments.
        env: the vector of environments.
    """

    def __init__(self, show: Callable[..., None], env: Any) -> None:
        self._show, self._env = show, env
        self._running: dict[int, PlayedEpisode] = {}
        self._touched: list[PlayedEpisode] = []

    def step(self, index: int, observation: Any, action: Any, reward: float, done: bool, info: dict[str, Any]) -> None:
        """Record a step of one environment."""
        if (episode := self._running.get(index)) is None:
            infos = getattr(self._env, "reset_infos", None)
            episode = self._running[index] = PlayedEpisode(None, infos[index] if infos else None)
            self._call("on_episode_created", index, episode)
            self._call("on_episode_start", index, episode)
        if not self._touched or self._touched[-1] is not episode:
            self._touched.append(episode)
        episode.add(observation, action, reward, done, info)
        self._call("on_episode_step", index, episode)
        if done:
            self._call("on_episode_end", index, episode)
            del self._running[index]

    def drop(self) -> None:
        """Drop the running episodes."""
        self._running = {}

    def sampled(self) -> None:
        """Called after a series of steps."""
        samples = list({id(episode): episode for episode in self._touched}.values())
        self._touched = []
        self._show("on_sample_end", samples=samples)

    def _call(self, name: str, index: int, episode: PlayedEpisode) -> None:
        self._show(name, episode=episode, env_index=index, env=self._env)


class EpisodesOfTraining(BaseCallback):
    """Shows hooks the episodes of training in this process.

    Args:
        show: see :class:`EpisodesForHooks`.
    """

    def __init__(self, show: Callable[..., None]) -> None:
        super().__init__()
        self._show = show
        self._episodes: EpisodesForHooks | None = None
        self._round = 0

    def _on_step(self) -> bool:
        if self._episodes is None:
            self._episodes = EpisodesForHooks(self._show, self.training_env)
        if (number := max(getattr(part, "rounds", 0) for part in self.model.parts.values())) != self._round:
            self._round = number
            self._episodes.drop()
        known = self.locals
        actions: Any = known["clipped_actions"] if "clipped_actions" in known else known["actions"]
        observations, rewards = known["new_obs"], known["rewards"]
        for index, info in enumerate(known["infos"]):
            observation = mapped(itemgetter(index), observations)
            self._episodes.step(index, observation, actions[index], rewards[index], bool(known["dones"][index]), info)
        return True

    def _on_rollout_end(self) -> None:
        if self._episodes is not None:
            self._episodes.sampled()


class EndsElsewhere(BaseCallback):
    """Shows hooks the episodes of training that have ended in other processes.

    Args:
        show: see :class:`EpisodesForHooks`.
    """

    def __init__(self, show: Callable[..., None]) -> None:
        super().__init__()
        self._show = show

    def _on_step(self) -> bool:
        for index, info in enumerate(self.locals["infos"]):
            if "episode" in info:
                self._show("on_episode_end", episode=PlayedEpisode.ended(dict(info)), env_index=index, env=None)
        return True


def shown_by(episodes: EpisodesForHooks) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Returns a callback of :func:`~polyak.evaluation.in_environments.evaluate` that shows each step."""

    def note(known: dict[str, Any], _: dict[str, Any]) -> None:
        index = known["i"]
        observation = mapped(itemgetter(index), known["new_observations"])
        action = np.asarray(known["actions"])[index]
        episodes.step(index, observation, action, known["reward"], bool(known["done"]), known["info"])

    return note
