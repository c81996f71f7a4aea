"""Random actions now and then, fewer and fewer of them: how algorithms explore that act greedily by action values.

Such an algorithm holds an :class:`Epsilon`, names :class:`~polyak.collecting.exploration.EpsilonGreedy` among the parts
of its exploration, and takes its ``predict`` from here.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from polyak.collecting.exploration import ActingProgress
from polyak.kinds.held_part import HeldPart
from polyak.kinds.network_algorithm import NetworkAlgorithm
from polyak.logging.logger import Logger
from polyak.nn.policies.base import n_rows
from polyak.schedules import Schedule


class Epsilon(HeldPart):
    """The probability of a random action.

    Args:
        progress: hold it, for the parts of exploration to read.
        schedule: makes the probability by remaining progress, which is 1 at the start of training and 0 at the end.
    """

    def __init__(self, progress: ActingProgress, schedule: Callable[[], Schedule]) -> None:
        self._progress, self._make_schedule, self.schedule = progress, schedule, schedule()
        self.follow(1.0)

    @property
    def rate(self) -> float:
        """The present probability."""
        return self._progress.epsilon

    @rate.setter
    def rate(self, value: float) -> None:
        self._progress.epsilon = value

    def follow(self, progress: float) -> None:
        """Take the value of the schedule at this remaining progress."""
        self.rate = self.schedule(progress)

    def adopt(self, name: str, progress: float) -> None:
        if name.startswith("exploration_"):
            self.schedule = self._make_schedule()
            self.follow(progress)

    def record(self, logger: Logger) -> None:
        logger.record("rollout/exploration_rate", self.rate)

    def state(self) -> dict[str, Any]:
        return {"exploration_rate": self.rate}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.rate = state["exploration_rate"]


def predict(
    self: Any,
    observation: Any,
    state: tuple[np.ndarray, ...] | None = None,
    episode_start: np.ndarray | None = None,
    deterministic: bool = False,
    *,
    action_masks: np.ndarray | None = None,
) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
    """The policy's action for one observation or a batch of them; unless it is to be ``deterministic``, a random one
    with the probability ``exploration_rate``. All actions of a batch are random, or none is.

    Arguments and result: see :meth:`polyak.kinds.network_algorithm.NetworkAlgorithm.predict`.
    """
    greedy = partial(
        NetworkAlgorithm.predict, self, observation, state, episode_start, deterministic, action_masks=action_masks
    )
    if deterministic or np.random.rand() >= self.exploration_rate:
        return greedy()
    policy = self.policy
    if state is not None or policy.acting_memory(1) is not None:  # a recurrent state advances with each action
        state = greedy()[1]
    masks, vectorized = self._allowed(observation, action_masks), policy.is_vectorized_observation(observation)
    rows = n_rows(observation) if vectorized else 1
    masks = None if masks is None else policy.checked_masks(masks, rows)
    actions = policy.to_env(self._random_actions()(rows, masks))
    return (actions if vectorized else np.array(actions[0])), state


def follow(model: Any) -> None:
    """Before a rollout: the exploration rate of this moment."""
    model.epsilon.follow(model.clock.remaining)
