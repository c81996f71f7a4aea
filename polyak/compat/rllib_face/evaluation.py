"""Evaluation: episodes played without learning, in this process."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.connectors.actions import ActsByPieces
from polyak.compat.rllib_face.connectors.environments import layers_of, load_state_of_pieces, state_of_pieces
from polyak.compat.rllib_face.environments import make_environments
from polyak.compat.rllib_face.episodes import EpisodesForHooks, PlayedEpisode, shown_by
from polyak.compat.rllib_face.filters import filter_around
from polyak.distributed.statistics import moments_in, take_moments
from polyak.envs import as_vec_env
from polyak.evaluation.in_environments import evaluate

SEEDS_APART = 1_000_003
"""Between the seed of training and that of the first evaluation, so that they play other episodes."""


class Played(NamedTuple):
    """Episodes."""

    returns: list[float]
    lengths: list[int]


class EvaluationOrder(NamedTuple):
    """A request to play episodes."""

    duration: int
    in_steps: bool
    """Whether the duration counts steps, which the last episodes may exceed, instead of episodes."""
    explores: bool
    """Whether actions are sampled as in training."""
    seed: int


def play(model: Any, env: Any, order: EvaluationOrder, callback: Any = None) -> Played:
    """Play the requested episodes; ``callback``: see :func:`~polyak.evaluation.in_environments.evaluate`."""
    seed = order.seed % (2**32 - env.num_envs)
    returns: list[float] = []
    lengths: list[int] = []
    while not returns or (order.in_steps and sum(lengths) < order.duration):
        number = env.num_envs if order.in_steps else order.duration
        found = evaluate(model, as_vec_env(env), number, deterministic=not order.explores, seed=seed, callback=callback)
        returns += found.returns.tolist()
        lengths += found.lengths.tolist()
        seed = (seed + number) % (2**32 - env.num_envs)
    return Played(returns, lengths)


def order_of(config: AlgorithmConfig, played: int) -> EvaluationOrder:
    """Returns the next evaluation, after so many others."""
    own = config.evaluation_settings()
    duration = 1 if config.evaluation_duration == "auto" else config.evaluation_duration
    seed = (config.seed or 0) + SEEDS_APART * (played + 1)
    return EvaluationOrder(duration, config.evaluation_duration_unit == "timesteps", own.explore, seed)


class LocalEvaluators:
    """Evaluates in this process, when the result is read.

    Args:
        config: the algorithm's config.
        created: called with each environment and its context, unless ``None``.

    Attributes:
        metrics: the logger of pieces before the module.
        show: gets episodes step by step, see :class:`~polyak.compat.rllib_face.episodes.EpisodesForHooks`; may be
            ``None``.
    """

    show: Callable[..., None] | None = None
    metrics: Any = None
    num_restarts = 0

    def __init__(self, config: AlgorithmConfig, created: Callable[..., None] | None) -> None:
        self._config, self._created = config.evaluation_settings(), created
        self._env: Any = None
        self._order: tuple[Any, EvaluationOrder] | None = None
        self._sampled: list[PlayedEpisode] = []

    @property
    def env(self) -> Any:
        """The environments, made at the first access."""
        if self._env is None:
            self._env = make_environments(self._config, training=False, created=self._created)
        return self._env

    def begin(self, model: Any, order: EvaluationOrder) -> None:
        """Take an order."""
        self._order = model, order

    def iterate(self) -> None:
        """Does nothing: episodes are played in :meth:`result`."""

    def result(self) -> Played:
        """Plays the requested episodes and returns their statistics."""
        assert self._order is not None
        return self._played(*self._order, self.show)

    def _played(self, model: Any, order: EvaluationOrder, show: Callable[..., None] | None) -> Played:
        own, its = filter_around(self.env), filter_around(model.get_env())
        if own is not None and its is not None:
            take_moments(own, moments_in(its))
        self._follow(model, order)
        episodes = None if show is None else EpisodesForHooks(show, self.env)
        with model.evaluated_in(self.env, order.explores) if isinstance(model, ActsByPieces) else nullcontext():
            played = play(model, self.env, order, None if episodes is None else shown_by(episodes))
        if episodes is not None:
            episodes.sampled()
        return played

    def _follow(self, model: Any, order: EvaluationOrder) -> None:
        """Copy the learned state of the training pieces to the pieces here."""
        theirs = layers_of(model.get_env())
        for layer in layers_of(self.env):
            layer.rl_module, layer.metrics, layer.explore = theirs[0].rl_module, self.metrics, order.explores
        state = copy.deepcopy(state_of_pieces(model.get_env()))
        load_state_of_pieces(self.env, state)

    def renewed(self) -> list[int]:
        """Returns an empty list: no process is ever replaced."""
        return []

    def sample(self, model: Any, order: EvaluationOrder) -> list[PlayedEpisode]:
        """Plays and returns new episodes."""
        ended: list[PlayedEpisode] = []

        def show(name: str, **known: Any) -> None:
            if name == "on_episode_end":
                ended.append(known["episode"])
            if self.show is not None:
                self.show(name, **known)

        self._played(model, order._replace(seed=order.seed + len(self._sampled)), show)
        self._sampled += ended
        return ended

    def taken(self) -> list[PlayedEpisode]:
        """Returns the episodes of :meth:`sample` since the last call."""
        found, self._sampled = self._sampled, []
        return found

    def stop(self) -> None:
        """Close the environments."""
        if self._env is not None:
            self._env.close()
