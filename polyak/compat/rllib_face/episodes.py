"""Episodes as callbacks are shown them, while they are played and when they have ended."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from polyak.arrays import mapped
from polyak.callbacks.callback import BaseCallback
from polyak.hyperparameters.declaration import require

T = TypeVar("T")


class PlayedEpisode:
    """An episode of one environment, as far as it has been played: its actions, rewards and infos of all steps, and the
    latest observation.

    Args:
        observation: of its beginning.
        info: of its beginning.

    Attributes:
        custom_data: a program's own, by name.
        is_terminated, is_truncated: how it ended.
        id_: its own name.
    """

    def __init__(self, observation: Any = None, info: Mapping[str, Any] | None = None) -> None:
        self.id_ = uuid.uuid4().hex
        self.custom_data: dict[str, Any] = {}
        self.is_terminated = self.is_truncated = False
        self._observation = observation
        self._actions: list[Any] = []
        self._rewards: list[float] = []
        self._infos: list[Any] = [dict(info or {})]
        self._known: tuple[float, int] | None = None

    @classmethod
    def ended(cls, info: dict[str, Any]) -> PlayedEpisode:
        """One of which only the last info is known, with the statistics in it."""
        made = cls()
        made._infos = [info]
        made._end(info)
        return made

    def add(self, observation: Any, action: Any, reward: float, done: bool, info: dict[str, Any]) -> None:
        """One more step. ``observation`` is what it led to, of the next episode where it was the last."""
        self._actions.append(action)
        self._rewards.append(float(reward))
        self._infos.append(info)
        self._observation = info.get("terminal_observation", observation) if done else observation
        if done:
            self._end(info)

    def _end(self, info: Mapping[str, Any]) -> None:
        self.is_truncated = bool(info.get("TimeLimit.truncated", False))
        self.is_terminated = not self.is_truncated
        if "episode" in info:  # as the environment counted, before anything changed its rewards
            self._known = float(info["episode"]["r"]), int(info["episode"]["l"])

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.is_terminated or self.is_truncated

    def get_return(self) -> float:
        """Sum of rewards."""
        return sum(self._rewards) if self._known is None else self._known[0]

    def __len__(self) -> int:
        """Environment steps."""
        return len(self._rewards) if self._known is None else self._known[1]

    env_steps = agent_steps = __len__

    @property
    def t(self) -> int:
        """The latest step."""
        return len(self)

    def get_infos(self, index: int | slice | None = None) -> Any:
        """Infos, the first of the reset; of an episode that was played in another process the last one alone."""
        return _part("index", self._infos, index, len(self) + 1)

    def get_rewards(self, index: int | slice | None = None) -> Any:
        """Rewards as they are learned from."""
        return _part("index", self._rewards, index, len(self))

    def get_actions(self, index: int | slice | None = None) -> Any:
        """Actions in the units of the environment."""
        return _part("index", self._actions, index, len(self))

    def get_observations(self, index: int | slice | None = None) -> Any:
        """The latest observation: ``index`` must be -1, since no others are kept."""
        require(index == -1, "index", index, "only the latest observation is kept: use -1.")
        require(self._observation is not None, "index", index, "the episode was played in another process.")
        return self._observation


def _part(name: str, values: list[T], index: int | slice | None, length: int) -> T | list[T]:
    """All of some values, or those at an index, as far as they were kept."""
    fix = "the episode was played in another process, and only its last info is known: use -1."
    require(len(values) == length or (index == -1 and bool(values)), name, index, fix)
    return list(values) if index is None else values[index]


class EpisodesForHooks:
    """Shows hooks the episodes of a vector of environments, step by step.

    Args:
        show: called with a hook's name and what it is shown.
        env: the vector of environments.
    """

    def __init__(self, show: Callable[..., None], env: Any) -> None:
        self._show, self._env = show, env
        self._running: dict[int, PlayedEpisode] = {}
        self._touched: list[PlayedEpisode] = []

    def step(self, index: int, observation: Any, action: Any, reward: float, done: bool, info: dict[str, Any]) -> None:
        """One environment has made a step."""
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
        """Those that have not ended do not continue."""
        self._running = {}

    def sampled(self) -> None:
        """A series of steps is over."""
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
    """A callback of :func:`~polyak.evaluation.in_environments.evaluate` that shows each step."""

    def note(known: dict[str, Any], _: dict[str, Any]) -> None:
        index = known["i"]
        observation = mapped(itemgetter(index), known["new_observations"])
        action = np.asarray(known["actions"])[index]
        episodes.step(index, observation, action, known["reward"], bool(known["done"]), known["info"])

    return note
