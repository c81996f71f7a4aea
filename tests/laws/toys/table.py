"""A table of action values, learned while acting: neither network nor learner nor compiler.

Watkins and Dayan 1992, "Q-learning", Machine Learning 8. Shapes: N environments.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from polyak.algorithm import Algorithm, GymEnv
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved
from polyak.collecting.runner import Acted
from polyak.envs import VecEnv
from polyak.hyperparameters.declaration import Becomes, Fraction, later
from polyak.loops.training import restart_if_interrupted


class Greedy:
    """The best actions of a table, and random ones now and then.

    Args:
        model: whose table.
    """

    def __init__(self, model: "QTable") -> None:
        self.model = model

    def act(self, observations: Any, episode_starts: Any = None, masks: Any = None) -> Acted:
        """Actions [N] for states [N]."""
        actions, _ = self.model.predict(observations, deterministic=True)
        explores = np.random.rand(len(actions)) < self.model.epsilon
        random = np.array([self.model.action_space.sample() for _ in actions])
        actions = np.where(explores, random, actions)
        return Acted(actions, actions, {})

    def state(self) -> dict[str, np.ndarray]:
        """It remembers nothing."""
        return {}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """It has nothing to take back."""


class StepByStep:
    """Steps the environments, and learns from the step."""

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback = model, callback

    def iterate(self) -> bool:
        model = self.model
        step = model.runner.step()
        model.clock.steps += model.n_envs
        if not self.callback.on_step():
            return False
        if step.episodes:
            model.statistics.note(step.episodes)
        target = step.rewards + model.gamma * ~step.terminated * model.table[step.next_observations].max(1)
        cells = step.observations, step.actions
        model.table[cells] += model.learning_rate * (target - model.table[cells])
        model.clock.updates += 1
        restart_if_interrupted(model)
        return True


@dataclass(eq=False, repr=False)
class QTable(Algorithm):
    """One-step Q-learning over discrete states and actions."""

    env: Becomes[GymEnv | str | None, VecEnv | None] = later(None)
    """The environment to learn in."""
    learning_rate: Fraction = 0.5
    """Step size."""
    _: KW_ONLY
    gamma: Fraction = 0.95
    """Discount factor."""
    epsilon: Fraction = 0.3
    """Probability of a random action."""

    loop: ClassVar = StepByStep
    action_spaces: ClassVar = (spaces.Discrete,)

    small = {"env": "FrozenLake-v1"}

    def _setup_model(self) -> None:
        assert isinstance(self.observation_space, spaces.Discrete)
        assert isinstance(self.action_space, spaces.Discrete)
        self.table = np.ones((int(self.observation_space.n), int(self.action_space.n)))
        super()._setup_model()

    def make_actor(self) -> Greedy:
        return Greedy(self)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        return np.asarray(self.table[observation].argmax(-1)), state

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        saved.state["table"] = self.table.copy()

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        self.table[:] = saved.state["table"]
