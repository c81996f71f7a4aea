"""Random actions now and then, fewer and fewer of them: how algorithms explore that act greedily by action values."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from polyak.collecting.exploration import EpsilonGreedy, Exploration
from polyak.hyperparameters.declaration import Fraction
from polyak.kinds.collecting_algorithm import Collecting
from polyak.nn.policies.base import n_rows
from polyak.schedules import LinearSchedule


@dataclass(eq=False, repr=False)
class ActsEpsilonGreedily(Collecting):
    """Algorithms that take a random action with a probability that falls linearly."""

    _: KW_ONLY
    exploration_fraction: Fraction = 0.1
    """Fraction of training over which the exploration rate falls."""
    exploration_initial_eps: Fraction = 1.0
    """Probability of a random action at the start."""
    exploration_final_eps: Fraction = 0.05
    """Probability of a random action once it has fallen."""

    _epsilon_greedy: ClassVar[type[EpsilonGreedy]] = EpsilonGreedy

    def _after_setup(self) -> None:
        super()._after_setup()
        self.exploration_schedule = self._exploration_schedule()
        self.exploration_rate = self.exploration_schedule(1.0)

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        if name.startswith("exploration_"):
            self.exploration_schedule = self._exploration_schedule()
            self._follow_schedule()

    def _exploration_schedule(self) -> LinearSchedule:
        """The exploration rate by remaining progress."""
        return LinearSchedule(self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction)

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action at present."""
        return self._dials.epsilon

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        self._dials.epsilon = value

    def _follow_schedule(self) -> None:
        """Let the exploration rate follow the progress of training."""
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)

    def _exploration(self) -> dict[str, Exploration]:
        return {**super()._exploration(), "epsilon_greedy": self._epsilon_greedy(self._dials, self._random_actions())}

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
        *,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        if deterministic or np.random.rand() >= self.exploration_rate:
            return super().predict(observation, state, episode_start, deterministic, action_masks=action_masks)
        if state is not None or self.policy.acting_memory(1) is not None:  # a memory moves on, whoever acts
            state = super().predict(observation, state, episode_start, deterministic, action_masks=action_masks)[1]
        masks, vectorized = self._allowed(observation, action_masks), self.policy.is_vectorized_observation(observation)
        if masks is not None:
            masks = self.policy.checked_masks(masks, n_rows(observation) if vectorized else 1)
            actions = self.policy.to_env(self._random_actions()(len(masks), masks))
        elif vectorized:
            actions = np.array([self.action_space.sample() for _ in range(n_rows(observation))])
        else:
            actions = np.array([self.action_space.sample()])
        return (actions if vectorized else np.array(actions[0])), state

    predict.__doc__ = Collecting.predict.__doc__

    def _write_logs(self, **counts: Any) -> None:
        self.logger.record("rollout/exploration_rate", self.exploration_rate)
        super()._write_logs(**counts)

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "exploration_rate": self.exploration_rate}

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        super()._load_extra_state(state)
        self.exploration_rate = state["exploration_rate"]
