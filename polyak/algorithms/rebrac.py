"""ReBRAC: revisited behaviour-regularised actor-critic.

Tarasov, Kurenkov, Nikulin and Kolesnikov 2023, "Revisiting the Minimalist Approach to Offline Reinforcement Learning",
arXiv:2305.09836. Equation numbers refer to it. TD3+BC with a penalty in the critics' targets as well as in the actor's
loss, and layer normalisation in the critics.

Shapes: B batch rows, A action dimensions, K critics, N transitions. Actions are in units of the action space scaled to
[-1, 1].
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.td3 import TD3Learner, smoothed
from polyak.envs.spaces import get_action_dim
from polyak.experience import Column, Dataset, Transition
from polyak.experience.datasets.episodes import Parts
from polyak.experience.step import Step
from polyak.fields.actor_critic import Smoothed
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.declaration import LearningRate, NonNegative, require
from polyak.learning.learner import Learner, Objective, Tunable
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.layers import create_mlp
from polyak.nn.policies.continuous import ContinuousCritic, ContinuousPolicy
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay

NEXT_ACTIONS, CONTINUES = "next_actions", "continues"
"""Columns: the action [A] recorded in the next step, in the networks' units; and whether there was one."""

# -- losses ------------------------------------------------------------------------------------------------------------


def squared_distance(actions: Tensor, recorded: Tensor) -> Tensor:
    """(pi(s) - a)^2, summed over dimensions. [B, A] each -> [B]"""
    return ((actions - recorded) ** 2).sum(1)


def penalised_value(q: Tensor, distance: Tensor, continues: Tensor, beta: Tensor) -> Tensor:
    """min_k Q_k(s', a') - beta_2 (a' - a'_data)^2, eq. 4; without the penalty if no next action was recorded.

    q [K, B], distance [B], continues [B] bool, beta_2 [] -> [B]
    """
    return q.amin(0) - beta * continues * distance


def actor_loss(q: Tensor, distance: Tensor, beta: Tensor, normalises: bool) -> Tensor:
    """E[beta_1 (pi(s) - a)^2 - lambda min_k Q_k(s, pi(s))], eq. 3. q [K, B], distance [B], beta_1 [] -> []

    lambda is 1 / mean |Q| without a gradient, or 1.
    """
    value = q.amin(0)
    scale = 1 / value.detach().abs().mean() if normalises else 1.0
    return (beta * distance - scale * value).mean()


# -- critics and data --------------------------------------------------------------------------------------------------


class NormalisedCritic(ContinuousCritic):
    """K Q-functions with layer normalisation after each hidden activation, section 3.2."""

    def make_q_network(self, inputs: int) -> nn.Module:
        """Returns one of the K perceptrons on concatenated features and actions: [B, inputs] -> [B, 1]."""
        layers: list[nn.Module] = []
        for width in self.net_arch:
            layers += [*create_mlp(inputs, 0, [width], self.activation_fn), nn.LayerNorm(width)]
            inputs = width
        return nn.Sequential(*layers, nn.Linear(inputs, 1))


def with_next_actions(dataset: Dataset, encode: Callable[[np.ndarray], np.ndarray]) -> Dataset:
    """Returns a dataset with the next recorded action of each step: none after the last step of an episode.

    Args:
        dataset: of Box actions.
        encode: converts actions [N, ...] from the environment's units to the networks'.
    """
    continues = np.ones(len(dataset), bool)
    continues[dataset.ends - 1] = False
    following = np.zeros((len(dataset), get_action_dim(dataset.action_space)), np.float32)
    following[:-1] = encode(np.asarray(dataset.actions[1:])).reshape(len(dataset) - 1, -1)
    following[~continues] = 0.0
    columns = {**dataset.columns, NEXT_ACTIONS: following, CONTINUES: continues}
    parts = Parts(dataset.observations, dataset.actions, dataset.rewards, dataset.ends, dataset.terminated, columns)
    return Dataset.from_parts(parts, dataset.observation_space, dataset.action_space, dataset.env_id)


# -- one gradient step -------------------------------------------------------------------------------------------------


class ReBRACLearner(TD3Learner):
    """TD3's gradient steps with behaviour-cloning penalties in actor and critics."""

    actor_bc_coef: Tunable[Tensor]
    critic_bc_coef: Tunable[Tensor]
    normalize_q: Tunable[bool]

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns the smaller target critic's value of smoothed target actions, minus the penalty, eq. 4. -> [B]"""
        next_actions = self.policy.actor_target(batch.next_observations)
        next_actions = smoothed(next_actions, self.target_policy_noise, self.target_noise_clip)
        next_q = self.policy.critic_target.q_values(batch.next_observations, next_actions)
        distance = squared_distance(next_actions, batch.extras[NEXT_ACTIONS])
        value = penalised_value(next_q, distance, batch.extras[CONTINUES], self.critic_bc_coef)
        return batch.rewards + batch.discounts * value

    def q_of_policy(self, batch: Transition, actions: Tensor) -> Tensor:
        """Returns all critics' Q-values of the actor's actions [B, A]. -> [K, B]"""
        return self.policy.critic.q_values(batch.observations, actions)

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        """Returns the actor's loss. Its own actions [B, A] and their q [K, B]"""
        distance = squared_distance(actions, batch.actions.flatten(1))
        loss = actor_loss(q, distance, self.actor_bc_coef, self.normalize_q)
        return Objective(loss, {"distance": distance.detach().mean()})


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def without_next_actions(model: Any, step: Step) -> Step:
    """Adds the dataset's columns to a step of the environments, whose next action is not known yet."""
    n, width = len(step.rewards), get_action_dim(model.action_space)
    none = {NEXT_ACTIONS: np.zeros((n, width), np.float32), CONTINUES: np.zeros(n, bool)}
    return step._replace(extras={**step.extras, **none})


class NextActions(ExperienceReplay):
    """Replays transitions with the next recorded action of each."""

    storing: ClassVar = (without_next_actions,)

    def columns(self) -> tuple[Column, ...]:
        width = get_action_dim(self.model.action_space)
        return Column(NEXT_ACTIONS, np.float32, (width,)), Column(CONTINUES, np.bool_)

    def read_dataset(self) -> None:
        assert self.memory.dataset is not None
        self.memory.dataset = with_next_actions(self.memory.dataset, self.model.policy.codec.from_env)
        super().read_dataset()


@dataclass(eq=False, repr=False)
class ReBRAC(Smoothed, OfflineAlgorithm, OffPolicyAlgorithm):
    """ReBRAC: TD3+BC with penalties in actor and critics, and layer-normalised critics (arXiv:2305.09836).

    The authors use minibatches of 1024 transitions (``batch_size``), and a discount of 0.999 in AntMaze (``gamma``).
    The critics' penalty needs the next recorded action. At the end of an episode there is none and so no penalty, and
    neither for the model's own experience, when it learns online.
    """

    _: KW_ONLY
    learning_rate: LearningRate = 1e-3
    """Learning rate of actor and critics, or a function of the remaining progress (1 -> 0): the authors', except in
    Adroit, where it is 3e-4."""
    actor_bc_coef: NonNegative = 0.01
    """Weight of the actor's squared distance from the recorded actions, beta_1. The authors use 0.0005 to 1."""
    critic_bc_coef: NonNegative = 0.01
    """Weight of that distance in the critics' targets, beta_2: the authors use 0 to 0.5."""
    normalize_q: bool = True
    """Divide the actor's Q-values by their mean magnitude, so that ``actor_bc_coef`` does not depend on the scale of
    rewards."""

    made_of: ClassVar[MadeOf] = {"replay": NextActions}
    learner_class: ClassVar[type[Learner]] = ReBRACLearner
    policies: ClassVar = policy_aliases(
        ContinuousPolicy, ContinuousPolicy, actor="deterministic", critic=NormalisedCritic, net_arch=[256, 256, 256]
    )

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = "the penalty of the critics belongs to the next step. Use n_steps=1."
        require(self.n_steps == 1, "n_steps", self.n_steps, fix)

    card: ClassVar[Card] = Card(
        idea="TD3 with penalties in actor and critics for leaving the data, and layer normalisation",
        learns_from="a dataset",
        refuses=("n_steps",),
        search=Search(
            tune.from_data(),
            tune.log_uniform("actor_bc_coef", 1e-3, 1.0),
            tune.log_uniform("critic_bc_coef", 1e-3, 1.0),
        ),
    )
