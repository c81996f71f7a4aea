"""Self-play for any algorithm: a callback that adds copies of the learner to the pool of opponents."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.callbacks.callback import BaseCallback
from polyak.collecting.actor import copy_of
from polyak.envs.games.self_play import Opponent, SelfPlayVecEnv, points
from polyak.envs.wrappers.normalize import VecNormalize, unwrap_vec_normalize
from polyak.evaluation.elo import rating
from polyak.evaluation.undisturbed import undisturbed


class Frozen:
    """A frozen copy of a policy, as an opponent. It takes raw observations, and normalises them like the model.

    Args:
        model: its policy is copied, with the statistics of ``VecNormalize``.
        first: index of the first action.
        deterministic: take the most likely moves instead of samples.
    """

    def __init__(self, model: Any, first: int = 0, deterministic: bool = False) -> None:
        self.policy: Any = copy_of(model.policy).requires_grad_(False)
        learned = getattr(model, "normalisation", None)
        self.normalizer: VecNormalize | None = None if learned is None else learned.frozen()
        self.first, self.deterministic = first, deterministic

    def __call__(self, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        if self.normalizer is not None:
            observations = self.normalizer.normalize_obs(observations)
        chosen, _ = self.policy.predict(observations, deterministic=self.deterministic, action_masks=masks)
        return np.asarray(chosen) - self.first


class PastSelves(BaseCallback):
    """Adds copies of the learner to the opponents of a :class:`~polyak.envs.SelfPlayVecEnv` during training.

    Each copy gets an Elo rating before it is added, from games against the pool, in which the random player has rating
    0: ``eval/elo`` in the logs, and :attr:`ratings`. It supports every algorithm whose policy is not recurrent; those
    with masks make allowed moves only.

    Args:
        freq: environment steps between two copies.
        rated_games: games against each opponent for the rating.
        rated_against: number of opponents for the rating: the first one, and the latest ones.
        verbose: 1 prints ratings.

    Raises:
        ValueError: an argument below 1; at the start of training, if the model is not trained in a
            :class:`~polyak.envs.SelfPlayVecEnv`, has a recurrent policy, or normalises observations.
    """

    needs_locals = False

    def __init__(self, freq: int = 10_000, rated_games: int = 50, rated_against: int = 3, verbose: int = 0) -> None:
        super().__init__(verbose)
        for name, value in (("freq", freq), ("rated_games", rated_games), ("rated_against", rated_against)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1.")
        self.freq, self.rated_games, self.rated_against = freq, rated_games, rated_against
        self.ratings: list[tuple[int, float]] = []
        """(environment steps, rating) of all copies, the earliest first."""
        self._pool: list[tuple[Opponent, float]] = []

    def _on_training_start(self) -> None:
        env = self.training_env.unwrapped
        if not isinstance(env, SelfPlayVecEnv):
            raise ValueError(
                f"PastSelves needs a model that learns in a SelfPlayVecEnv, not in {type(env).__name__}: "
                "PPO('MlpPolicy', SelfPlayVecEnv('tictactoe'))."
            )
        normalizer = unwrap_vec_normalize(self.training_env)
        if normalizer is not None and normalizer.norm_obs:
            raise ValueError("opponents see observations as they are: use VecNormalize(..., norm_obs=False).")
        if self.model.policy.initial_memory(1) is not None:
            raise ValueError("a recurrent policy cannot be an opponent: its state is not kept. Use another policy.")
        self.env = env
        kept = {id(opponent): elo for opponent, elo in self._pool}
        self._pool = [(opponent, kept.get(id(opponent), 0.0)) for opponent in env.opponents]
        self._next = self.num_timesteps + self.freq

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._next:
            self._next += self.freq
            self.add()
        return True

    def add(self) -> float:
        """Rate the present policy, and add it to the opponents; returns its rating."""
        present = Frozen(self.model, self.env.first)
        rated = [self._pool[0], *self._pool[1:][-(self.rated_against - 1) :]][: self.rated_against]
        games = [self.rated_games] * len(rated)
        with undisturbed(self.model, owners=(self.env, *(other for other, _ in rated))):
            made = [points(self.env.game, present, other, self.rated_games, self.env.rng) for other, _ in rated]
        elo = rating([elo for _, elo in rated], made, games)
        self.env.add_opponent(present)
        self._pool.append((present, elo))
        known = {id(opponent) for opponent in self.env.opponents}
        self._pool = [one for one in self._pool if id(one[0]) in known]
        self.ratings.append((self.num_timesteps, elo))
        self.logger.record("eval/elo", elo)
        self.logger.record("eval/score_against_last", made[-1] / self.rated_games)
        if self.verbose >= 1:
            print(f"{self.num_timesteps:,} steps: rated {elo:.0f}")
        return elo
