"""A loop that plays games: search against itself, whose visit counts are a column of what it learns from.

Silver et al. 2017, "Mastering the Game of Go without Human Knowledge", Nature 550, in miniature: the game is Nim, the
prior a table. Shapes: S sticks, C choices.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from polyak.algorithm import Algorithm
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved
from polyak.experience import Column, ReplayBuffer
from polyak.hyperparameters.declaration import Count, Fraction

CHOICES = 3


class Games:
    """Plays a game, then learns."""

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback = model, callback

    def iterate(self) -> bool:
        model = self.model
        left = model.sticks
        while left > 0:
            visits = model.search(left)
            action = int(np.random.choice(CHOICES, p=visits / visits.sum()))
            model.store(left, action, visits)
            left -= action + 1
            model.clock.steps += 1
            if not self.callback.on_step():
                return False
        model.learn_positions()
        return True


@dataclass(eq=False, repr=False)
class NimSearch(Algorithm):
    """Takes one to three sticks; who takes the last one wins."""

    _: KW_ONLY
    sticks: Count = 10
    """Sticks at the start of a game."""
    simulations: Count = 30
    """Games tried out for each move."""
    learning_rate: Fraction = 0.2
    """How far the prior moves towards the visits."""
    batch_size: Count = 8
    """Positions of a minibatch."""

    loop: ClassVar = Games
    steps_environments: ClassVar[bool] = False

    def __post_init__(self, _init_setup_model: bool) -> None:
        super().__post_init__(_init_setup_model)
        self.observation_space = spaces.Discrete(self.sticks + 1)
        self.action_space = spaces.Discrete(CHOICES)
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        self.prior = np.full((self.sticks + 1, CHOICES), 1 / CHOICES)
        columns = [Column("visits", np.int64, (CHOICES,))]
        self.positions = ReplayBuffer(200, self.observation_space, self.action_space, "cpu", columns=columns)

    def store(self, left: int, action: int, visits: np.ndarray) -> None:
        after = max(left - action - 1, 0)
        rows = np.array([left]), np.array([after]), np.array([[action]]), np.zeros(1), np.array([after == 0])
        self.positions.add(*rows, [{}], extras={"visits": visits[None]})

    def learn_positions(self) -> None:
        batch = self.positions.sample(self.batch_size)
        assert batch.extras is not None
        visits = batch.extras["visits"].double().numpy()
        for left, share in zip(
            batch.observations.flatten().tolist(), visits / visits.sum(1, keepdims=True), strict=True
        ):
            self.prior[left] += self.learning_rate * (share - self.prior[left])
        self._n_updates += 1

    def search(self, left: int) -> np.ndarray:
        """Visit counts [C] of the moves with so many sticks left."""
        visits, wins = np.zeros(CHOICES, np.int64), np.zeros(CHOICES)
        legal = np.arange(CHOICES) < left
        for played in range(self.simulations):
            value = wins / np.maximum(visits, 1) + self.prior[left] * (played + 1) ** 0.5 / (1 + visits)
            move = int(np.where(legal, value, -np.inf).argmax())
            visits[move] += 1
            wins[move] += not self._wins(left - move - 1)
        return visits

    def _wins(self, left: int) -> bool:
        """Whether who is to move wins a game by the prior."""
        mover = True
        while left > 0:
            share = self.prior[left] * (np.arange(CHOICES) < left)
            left -= int(np.random.choice(CHOICES, p=share / share.sum())) + 1
            mover = not mover
        return not mover

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        return np.asarray(self.prior[observation].argmax(-1)), state

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        saved.state["prior"] = self.prior.copy()
        saved.state |= {f"positions/{k}": v for k, v in self._kept().items()}

    def _kept(self) -> dict[str, np.ndarray]:
        size = self.positions.size()
        names = ("observations", "next_observations", "actions", "dones")
        kept = {name: np.array(getattr(self.positions, name)[:size]) for name in names}
        return {**kept, "visits": np.array(self.positions.extras["visits"][:size])}

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        self.prior[:] = saved.state["prior"]
        kept = saved.state_of("positions")
        for i in range(len(kept["actions"])):
            row = [kept[name][i] for name in ("observations", "next_observations", "actions")]
            extras = {"visits": kept["visits"][i]}
            self.positions.add(*row, np.zeros(1), kept["dones"][i], [{}], extras=extras)
