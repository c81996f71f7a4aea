"""REINFORCE: the Monte Carlo policy gradient on whole episodes, with or without a baseline.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", Machine
Learning 8; Sutton et al. 2000, "Policy Gradient Methods for Reinforcement Learning with Function Approximation",
NeurIPS 12. Equation numbers are those of Sutton and Barto 2018, "Reinforcement Learning: An Introduction", chapter 13.

Shapes: B rows, all steps of some episodes; T steps, N environments.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from polyak.algorithm_info import Card, Search, SearchPart, Task, tune
from polyak.algorithms.actor_critic import ActorCriticLearner
from polyak.callbacks.callback import BaseCallback
from polyak.collecting.rollout import RolloutWriter
from polyak.experience import EpisodeBuffer, RolloutSamples, Step
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, LearningRate, NonNegative, Scheduled, require
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, LearnerRecipe, Metrics, Objective, Tunable
from polyak.loops.on_policy import OnPolicyLoop
from polyak.loops.training import Loop
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.parts.part import MadeOf
from polyak.parts.rollouts import Rollouts

# -- returns -----------------------------------------------------------------------------------------------------------


def steps_since_start(episode_starts: np.ndarray) -> np.ndarray:
    """Step index t of each row within its episode. episode_starts [T, N], all 1 in row 0 -> [T, N]"""
    rows = np.arange(len(episode_starts))[:, None]
    return rows - np.maximum.accumulate(np.where(episode_starts > 0, rows, 0), axis=0)


def standardised(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values with mean 0 and standard deviation 1 over the chosen rows. values [T, N], rows [T, N] bool -> [T, N]"""
    chosen = values[rows]
    return (values - chosen.mean()) / (chosen.std(ddof=min(1, len(chosen) - 1)) + 1e-8)


# -- one gradient step -------------------------------------------------------------------------------------------------


class REINFORCELearner(ActorCriticLearner):
    """The sampled policy gradient theorem, eq. 13.8 and 13.11: a sum over each episode, a mean over episodes."""

    baseline: Tunable[bool]
    episodes_per_update: Tunable[int]
    tau: Settled[None] = None  # whole episodes do not bootstrap
    target_update_interval: Settled[int] = 1

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        if not self.baseline:
            nn.ParameterList(self.policy.critic_parameters()).requires_grad_(False)

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        if self.baseline:
            return super().evaluation(rows, acting)
        zeros = torch.zeros(len(rows[1]), device=rows[1].device)  # log-probabilities are unused
        return {"values": zeros, "log_probs": zeros}

    def actor_objective(self, batch: RolloutSamples, log_prob: Tensor, entropy: Tensor | None) -> Objective:
        objective = super().actor_objective(batch, log_prob, entropy)
        return objective._replace(loss=objective.loss * (len(log_prob) / self.episodes_per_update))

    def critic_objective(self, batch: RolloutSamples, values: Tensor) -> Objective:
        return super().critic_objective(batch, values) if self.baseline else Objective(values.mean())  # frozen


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def _critic_rate(trial: Any, task: Task, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return tune.rate(name="critic_learning_rate").draw(trial, task, drawn) if drawn["baseline"] else {}


class WholeEpisodeWriter(RolloutWriter):
    """Writes a number of whole episodes.

    Args:
        buffer: the episode buffer.
        model: the algorithm.
        steps: lower bound of the steps to make.
    """

    adopts = False
    buffer: EpisodeBuffer

    def __init__(self, buffer: EpisodeBuffer, model: Any, steps: int) -> None:
        super().__init__(buffer, model.runner.actor, steps)
        self.model = model

    def is_complete(self, series: Any) -> bool:
        series.wait(series.episodes)
        return self.buffer.is_complete(self.model.runner.episode_starts)

    def record(self, step: Step) -> None:
        if not self.model.bootstrap_truncated:  # returns end there, as at a terminal state
            step = step._replace(terminated=step.dones, truncated=np.zeros_like(step.truncated))
        super().record(step)

    def evaluate(self, learner: Any, runner: Any, policy: Any) -> Tensor:
        self.buffer.finish()
        return super().evaluate(learner, runner, policy)

    def estimate(self, last_values: Tensor, dones: np.ndarray) -> None:
        """Estimates returns G, and as advantages the policy gradient's weights: gamma^t (G - b)."""
        super().estimate(last_values, dones)
        buffer, model = self.buffer, self.model
        if model.normalize_returns:
            buffer.advantages = standardised(buffer.advantages, buffer.counted)
        if model.discount_states:
            ages = steps_since_start(buffer.episode_starts)
            buffer.advantages = (buffer.advantages * model.gamma**ages).astype(np.float32)


def begin_episodes(model: Any) -> None:
    """Start new episodes before a rollout: the rest of an episode that an older policy began is no sample."""
    if model.clock.series is None and not np.all(model.runner.episode_starts):
        model._start_episodes()


def episodes_loop(model: Any, callback: BaseCallback, log_interval: int | None) -> Loop:
    """Creates a rollout loop whose last episodes may overshoot the total number of steps."""
    loop = OnPolicyLoop.of(model, callback, log_interval)
    loop.tick = model.clock.tick_within
    return loop


def _episodes(trial: Any, task: Task, drawn: Mapping[str, Any]) -> dict[str, Any]:
    return {"episodes_per_update": task.n_envs * tune.draw_power_of_two(trial, "episodes_per_update", 1, 8)}


class WholeEpisodes(Rollouts):
    """Rollouts of whole episodes, whose lengths are not known in advance."""

    buffer_class = EpisodeBuffer
    beginning: ClassVar = (begin_episodes,)

    def check_ready(self, first: bool) -> None:
        super().check_ready(first)
        model = self.model
        fix = f"each of the n_envs={model.n_envs} environments makes at least one. Use {model.n_envs} or more."
        enough = model.env is None or model.episodes_per_update >= model.n_envs
        require(enough, "episodes_per_update", model.episodes_per_update, fix)

    def expected_updates(self, timesteps: int) -> tuple[int, int]:
        return 0, 1  # the lengths of episodes are unknown

    def writer(self, steps: int | None = None) -> WholeEpisodeWriter:
        self.buffer.episodes = self.model.episodes_per_update
        return WholeEpisodeWriter(self.buffer, self.model, steps or self.model.n_steps)


@dataclass(eq=False, repr=False)
class REINFORCE(OnPolicyAlgorithm):
    """REINFORCE: one policy gradient step on the returns of whole episodes (Williams 1992)."""

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY
    episodes_per_update: Count = 8
    """Episodes per update: the first ones that begin, in all environments together. Environments in the middle of
    another episode when an update is due are reset."""
    baseline: WithNetworks[bool] = True
    """Learn state values, and subtract them from the returns."""
    critic_learning_rate: Scheduled[LearningRate | None] = None
    """Learning rate of the baseline; ``None``: ``learning_rate``."""
    discount_states: bool = False
    """Weight step t of an episode by gamma^t, as in the exact gradient of the discounted return; ``False``: all steps
    have full weight, as is usual."""
    normalize_returns: bool = False
    """Scale the returns, minus the baseline, to mean 0 and standard deviation 1 within each update."""
    bootstrap_truncated: bool = False
    """Bootstrap truncated episodes from the baseline's value of their last state. Otherwise the return ends there,
    which is exact if the time limit is part of the task."""
    max_grad_norm: NonNegative | None = None
    """Largest global gradient norm, above which gradients are scaled down; ``None``: no clipping."""
    rollout_buffer_class: type[EpisodeBuffer] | None = None
    """A class to use instead of :class:`~polyak.experience.EpisodeBuffer`."""

    # the number of steps and the trace decay follow from whole episodes
    n_steps: Settled[int] = 512
    vf_coef: Settled[float] = 0.5
    normalize_advantage: Settled[bool] = False
    gae_lambda: Settled[float] = 1.0
    loop: ClassVar[Callable[..., Loop]] = episodes_loop
    made_of: ClassVar[MadeOf] = {"rollouts": WholeEpisodes}
    learner_class: ClassVar[type[Learner]] = REINFORCELearner
    policies: ClassVar = policy_aliases(ActorCriticPolicy, share_features_extractor=False)

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = "without a baseline there are no values to add. Give baseline=True as well, or leave it False."
        require(self.baseline or not self.bootstrap_truncated, "bootstrap_truncated", self.bootstrap_truncated, fix)

    card: ClassVar[Card] = Card(
        idea="one step along the policy gradient by the returns of whole episodes",
        learns_from="its own episodes",
        search=Search(
            tune.choice("baseline"),
            tune.rate(),
            SearchPart("critic_learning_rate", _critic_rate),
            tune.discount(),
            SearchPart("episodes_per_update", _episodes),
            tune.choice("normalize_returns"),
            tune.entropy(),
            tune.clipped_gradients(),
            tune.network(),
        ),
    )
