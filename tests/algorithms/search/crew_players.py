"""Players for the tests of :mod:`polyak.algorithms.search.crew`, in a file that processes import in no time."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polyak.algorithms.search.crew import Crew, Player
from polyak.algorithms.search.mcts import MCTS
from polyak.algorithms.search.rollouts import Playouts
from polyak.algorithms.search.self_play import SelfPlay
from polyak.envs.games.tictactoe import TicTacToe

SEEDS = [11, 12]


class Taking(Playouts):
    """Evaluates by random rollouts, and then by the weights that it was given."""

    weight = 0.0

    def __call__(self, positions: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        priors, values = super().__call__(positions, legal)
        if self.weight < 0:
            raise ArithmeticError(f"no weight may be {self.weight}")
        if self.weight > 99:
            os._exit(3)
        return priors, np.tanh(values * self.weight)


def make(n_games: int) -> Player:
    evaluator = Taking(TicTacToe())

    def take(weights: Any) -> None:
        evaluator.weight = float(weights[0])

    return Player(SelfPlay(MCTS(TicTacToe(), evaluator, 6), n_games, warm_moves=9), take)


class Weights:
    """A learner whose version is the number of moves learned from."""

    def __init__(self) -> None:
        self.version, self.value = 0, 0.5

    def __call__(self, known: int | None) -> tuple[int, list[np.ndarray] | None]:
        return self.version, None if known == self.version else [np.array(self.value)]

    def learn(self) -> None:
        self.version, self.value = self.version + 1, self.value + 0.1


def crew(weights: Weights, cls: type[Crew] = Crew, folder: Path | None = None) -> Crew:
    """Processes that leave their numbers in a folder, if there is one."""
    return cls(make if folder is None else partial(_noted, folder), 5, 2, weights, SEEDS)


def _noted(folder: Path, n_games: int) -> Player:
    (folder / str(os.getpid())).touch()
    return make(n_games)
