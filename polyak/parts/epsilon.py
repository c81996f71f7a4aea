"""Epsilon-greedy exploration with a decaying probability, for algorithms that act greedily by action values."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from polyak.arrays import Flags, Memory, Predicted
from polyak.collecting.exploration import EpsilonGreedy, EpsilonGreedyEach, Exploration
from polyak.nn.policies.base import n_rows
from polyak.parts.acting import allowed, predict, random_actions
from polyak.parts.part import Part
from polyak.schedules import LinearSchedule, Schedule


def follow(model: Any) -> None:
    """Sets the exploration rate by the present progress."""
    model.epsilon.follow(model.clock.remaining)


def log_rate(model: Any) -> None:
    """Logs the present exploration rate."""
    model.logger.record("rollout/exploration_rate", model.epsilon.rate)


class Epsilon(Part):
    """The probability of a random action."""

    logs: ClassVar = (log_rate,)
    kind: ClassVar[type[EpsilonGreedy]] = EpsilonGreedy
    schedule: Schedule
    """The probability as a function of the remaining progress, 1 at the start of training and 0 at the end."""

    @property
    def rate(self) -> float:
        """The present probability of a random action."""
        rate: float = self.model._progress.epsilon
        return rate

    @rate.setter
    def rate(self, value: float) -> None:
        self.model._progress.epsilon = value

    def make_schedule(self) -> LinearSchedule:
        """Returns the schedule that the hyper-parameters define."""
        model = self.model
        return LinearSchedule(model.exploration_initial_eps, model.exploration_final_eps, model.exploration_fraction)

    def follow(self, progress: float) -> None:
        """Sets the probability by the schedule at this remaining progress."""
        self.rate = self.schedule(progress)

    def prepare(self) -> None:
        self.schedule = self.make_schedule()
        self.follow(1.0)

    def adopt(self, name: str, before: Any) -> None:
        if name.startswith("exploration_"):
            self.schedule = self.make_schedule()
            self.follow(self.model.clock.remaining)

    def exploration(self) -> dict[str, Exploration]:
        return {"epsilon_greedy": self.kind(self.model._progress, random_actions(self.model))}

    def predict(
        self,
        observation: Any,
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
        *,
        action_masks: Flags = None,
    ) -> Predicted:
        """Returns the policy's action for one observation or a batch of them; unless ``deterministic``, a random one
        with probability ``exploration_rate``, decided once for the batch.

        Arguments and result: see :meth:`polyak.network_algorithm.NetworkAlgorithm.predict`.
        """
        model, policy = self.model, self.model.policy
        greedy = partial(predict, model, observation, state, episode_start, deterministic, action_masks=action_masks)
        if deterministic or np.random.rand() >= self.rate:
            return greedy()
        if state is not None or policy.acting_memory(1) is not None:  # a recurrent state advances with each action
            state = greedy()[1]
        masks, vectorized = allowed(model, observation, action_masks), policy.is_vectorized_observation(observation)
        rows = n_rows(observation) if vectorized else 1
        masks = None if masks is None else policy.checked_masks(masks, rows)
        actions = policy.to_env(random_actions(model)(rows, masks))
        return (actions if vectorized else np.array(actions[0])), state

    def state(self) -> dict[str, Any]:
        return {"exploration_rate": self.rate}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.rate = state["exploration_rate"]


class EpsilonOfSteps(Epsilon):
    """Epsilon of algorithms with replay, updated after each step."""

    after_step: ClassVar = (follow,)


class EpsilonOfRollouts(Epsilon):
    """Epsilon of algorithms with rollouts, updated before each rollout."""

    beginning: ClassVar = (follow,)


class EpsilonOfEach(EpsilonOfRollouts):
    """Decides for each environment separately whether to act at random."""

    kind: ClassVar = EpsilonGreedyEach
