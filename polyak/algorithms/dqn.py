"""Deep Q-Network (DQN).

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Nature 518.

Shapes: B batch rows, A actions.
"""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional as F

from polyak.core.acting.exploration import EpsilonGreedy, Exploration
from polyak.core.deep import Part
from polyak.core.hyperparameters import Becomes, Count, Fraction, NonNegative, later
from polyak.core.learner import Dial, Learner, LearnerRecipe, Objective, Update
from polyak.core.loops.off_policy import OffPolicyAlgorithm, TrainFreq
from polyak.core.schedules import LinearSchedule, Schedule
from polyak.data import Transition
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.value import ValuePolicy
from polyak.ops.updates import polyak_update

# -- losses ------------------------------------------------------------------------------------------------------------


def q_target(rewards: Tensor, discounts: Tensor, next_q: Tensor) -> Tensor:
    """y = r + gamma max_a Q_target(s', a), algorithm 1. rewards [B], discounts [B], next_q [B, A] -> [B]"""
    return rewards + discounts * next_q.amax(1)


def q_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Huber loss: its gradient is the error Q - y clipped to [-1, 1], Methods. q [B], target [B], weights [B] -> []"""
    return (weights * F.smooth_l1_loss(q, target, reduction="none")).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class DQNLearner(Learner):
    """Action values and their target."""

    policy: ValuePolicy
    tau: Dial[Tensor]
    max_grad_norm: Dial[Tensor]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.add_optimizer("policy", self.policy, recipe.make_optimizer, recipe.lr)

    def update(self, batch: Transition) -> Update:
        """One gradient step. The target follows on the environment's clock: see :meth:`update_target`."""
        self.steps += 1
        update: Update = self.run(self.gradient_step, batch)
        return update

    def update_target(self) -> None:
        """Move the target network towards the online one."""
        polyak_update(self.policy.q_net, self.policy.q_net_target, self.tau)

    def gradient_step(self, batch: Transition) -> Update:
        """Regress the values of the actions taken on their targets."""
        target = self.td_target(batch)
        objective = self.objective(batch, self.policy.q_net(batch.observations), target)
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update({"loss": objective.loss.detach(), **objective.metrics}, objective.td_error)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """What the values of the actions taken are regressed on. -> [B]"""
        return q_target(batch.rewards, batch.discounts, self.policy.q_net_target(batch.next_observations))

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """q [B, A] of every action, target [B] of those taken"""
        taken = q.gather(1, batch.actions.long().view(-1, 1)).squeeze(1)
        return Objective(q_loss(taken, target, batch.weights), td_error=(taken - target).detach().abs())


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DQN(OffPolicyAlgorithm):
    """Deep Q-Network: Q-learning with replay and a target network, for discrete actions (Nature 518, 2015)."""

    learning_rate: NonNegative | Schedule = 1e-4
    _: KW_ONLY
    batch_size: Count = 32
    """Transitions per gradient step."""
    tau: Fraction = 1.0
    """Rate at which the target network follows at each of its updates, in [0, 1]; 1 copies."""
    train_freq: Becomes[int | tuple[int, str], TrainFreq] = later(4)
    """Collect this long before each update: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    target_update_interval: Count = 10_000
    """Environment steps between two target updates."""
    exploration_fraction: Fraction = 0.1
    """Fraction of training over which the exploration rate falls."""
    exploration_initial_eps: Fraction = 1.0
    """Probability of a random action at the start."""
    exploration_final_eps: Fraction = 0.05
    """Probability of a random action once it has fallen."""
    max_grad_norm: NonNegative = 10
    """Largest global norm of the gradient; beyond it the gradient is scaled down."""

    learner_class: ClassVar[type[Learner]] = DQNLearner
    policies: ClassVar = policy_aliases(ValuePolicy)
    action_spaces: ClassVar = (spaces.Discrete,)
    q_net, q_net_target = Part("policy.q_net"), Part("policy.q_net_target")

    # -- exploration and the target's clock ----------------------------------------------------------------------------

    def _after_setup(self) -> None:
        super()._after_setup()
        if self.n_envs > self.target_update_interval:
            warnings.warn(
                f"The number of environments used is greater than target_update_interval ({self.n_envs} > "
                f"{self.target_update_interval}): the target network is updated at every step of all of them, that is, "
                f"every {self.n_envs} environment steps.",
                stacklevel=2,
            )
        self.exploration_schedule = LinearSchedule(
            self.exploration_initial_eps, self.exploration_final_eps, self.exploration_fraction
        )
        self.exploration_rate = self.exploration_schedule(1.0)
        self._n_calls = 0

    @property
    def exploration_rate(self) -> float:
        """Probability of a random action at present."""
        return self._dials.epsilon

    @exploration_rate.setter
    def exploration_rate(self, value: float) -> None:
        self._dials.epsilon = value

    def _exploration(self) -> dict[str, Exploration]:
        return {**super()._exploration(), "epsilon_greedy": EpsilonGreedy(self._dials, self._random_actions())}

    def _on_step(self) -> None:
        self._n_calls += 1
        if self._n_calls % max(self.target_update_interval // self.n_envs, 1) == 0:
            assert isinstance(self.learner, DQNLearner)
            self.learner.set(tau=self.tau)
            self.learner.update_target()
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        if deterministic or np.random.rand() >= self.exploration_rate:
            return super().predict(observation, state, episode_start, deterministic=True)
        if not self.policy.is_vectorized_observation(observation):
            return np.array(self.action_space.sample()), state
        rows = len(next(iter(observation.values())) if isinstance(observation, dict) else observation)
        return np.array([self.action_space.sample() for _ in range(rows)]), state

    predict.__doc__ = OffPolicyAlgorithm.predict.__doc__

    def dump_logs(self) -> None:
        self.logger.record("rollout/exploration_rate", self.exploration_rate)
        super().dump_logs()

    dump_logs.__doc__ = OffPolicyAlgorithm.dump_logs.__doc__

    def _extra_state(self) -> dict[str, Any]:
        return {"_n_calls": self._n_calls, "exploration_rate": self.exploration_rate}

    def _load_extra_state(self, state: dict[str, Any]) -> None:
        self._n_calls, self.exploration_rate = state["_n_calls"], state["exploration_rate"]
