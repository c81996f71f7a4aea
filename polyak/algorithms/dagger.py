"""Dataset Aggregation (DAgger).

Ross, Gordon and Bagnell 2011, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
Learning", arXiv:1011.0686. Algorithm 3.1 refers to it.

Shapes: N environments, B batch rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from polyak.algorithm import GymEnv
from polyak.algorithm_info import Card
from polyak.algorithms.bc import BC, BCLearner, Cloning
from polyak.callbacks.callback import BaseCallback
from polyak.collecting.actor import Actor
from polyak.collecting.exploration import Exploration
from polyak.collecting.runner import Acted
from polyak.collecting.train_freq import TrainFreq, TrainFrequencyUnit
from polyak.envs import VecEnv, VecNormalize
from polyak.envs.normalisation_scale import shown_to
from polyak.experience import Dataset, HerReplayBuffer, ReplayBuffer
from polyak.experience.datasets.checks import as_actions
from polyak.experience.step import Observations, Step
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm, RewardScaling
from polyak.hyperparameters.changing import Reload, WithNetworks
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Fraction,
    LearningRate,
    Natural,
    NonNegative,
    later,
    require,
)
from polyak.hyperparameters.held import Held
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner
from polyak.loops.off_policy import OffPolicyLoop
from polyak.loops.training import Loop
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.parts.part import KeptAttributes, MadeOf
from polyak.parts.replay import ExperienceReplay
from polyak.schedules import Schedule

_ROWS = 8192
_ONE_STEP = TrainFreq(1, TrainFrequencyUnit.STEP)

# -- the actor ---------------------------------------------------------------------------------------------------------


def share_of_expert(kind: str, round_number: int, rounds: int, decay: float) -> float:
    """Returns beta_i of round i, counted from 0: the probability that the expert acts. -> []

    ``"first"``: 1, then 0, the indicator of section 3.1; ``"linear"``: max(0, 1 - i / rounds); ``"exponential"``:
    decay^i.
    """
    if kind == "first":
        return float(round_number == 0)
    return max(0.0, 1 - round_number / rounds) if kind == "linear" else decay**round_number


class Teacher:
    """An expert that acts in N environments.

    Args:
        expert: a model, or a function of one observation.
        space: action space of the environments.
        normalizer: its normalisation is undone for the expert.
    """

    def __init__(self, expert: Any, space: spaces.Space, normalizer: VecNormalize | None) -> None:
        self.expert, self.space, self.normalizer = expert, space, normalizer
        self.state: Any = None

    @property
    def _named(self) -> str:
        return f"expert={getattr(self.expert, '__qualname__', type(self.expert).__name__)}"

    def __call__(self, observations: Observations, starts: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        """Returns the expert's actions [N, ...] in the environments' units, for observations [N, ...], episode starts
        [N] and masks.

        Raises:
            DatasetError: the expert's result is not a valid action.
        """
        if self.normalizer is not None:
            observations = self.normalizer.get_original_obs()
        if not hasattr(self.expert, "predict"):
            chosen = [self.expert(row) for row in _rows(observations, len(starts))]
            return as_actions(chosen, self.space, len(starts), self._named)
        observations = shown_to(self.expert, observations)
        supports = masks is not None and getattr(self.expert, "_uses_masks", False)
        more = {"action_masks": masks} if supports else {}
        actions, self.state = self.expert.predict(observations, self.state, starts, deterministic=True, **more)
        return as_actions(actions, self.space, len(starts), self._named)


class Apprentice(Actor):
    """An actor that lets the expert act with probability beta, and queries the expert at every step.

    Args:
        teacher: the expert to query.
        kwargs: as of :class:`~polyak.collecting.actor.Actor`.

    Attributes:
        beta: probability that the expert acts.
    """

    def __init__(self, *args: Any, teacher: Teacher, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.teacher, self.beta = teacher, 1.0

    def act(
        self, observations: Observations, episode_starts: np.ndarray | None = None, masks: np.ndarray | None = None
    ) -> Acted:
        """Returns actions like :meth:`Actor.act`; the expert's actions are the extra ``expert_actions``."""
        allowed = masks if self.policy.supports_masks else None
        own, actions, extras = super().act(observations, episode_starts, allowed)
        starts = np.zeros(len(own), bool) if episode_starts is None else episode_starts
        wanted = self.teacher(observations, starts, masks)
        teaches = torch.rand(len(own)).numpy() < self.beta
        taken = np.where(teaches.reshape(-1, *[1] * (own.ndim - 1)), wanted, own)
        return Acted(taken, actions, {**extras, "expert_actions": wanted})


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def as_the_expert(model: Any, step: Step) -> Step:
    """Replaces the actions of a step by the expert's."""
    extras = dict(step.extras)
    wanted = model.policy.codec.from_env(extras.pop("expert_actions"))
    model._new_steps += 1
    return step._replace(actions=wanted, extras=extras)


class Round(NamedTuple):
    """The length of a round."""

    steps: int
    """Steps of the vectorised environment."""
    episodes: int

    def is_complete(self, series: Any) -> bool:
        """Whether the round has enough experience."""
        series.wait(series.episodes)
        return series.steps >= self.steps and series.episodes >= self.episodes

    def missing(self, series: Any) -> int:
        """Returns a lower bound of the steps that are missing."""
        return 1


class RoundLoop:
    """Acts for a round, then learns from all data so far.

    Args:
        model: the algorithm.
        callback: called after every step; may stop training.
        log_interval: episodes between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.plain = model, OffPolicyLoop.acting(model, callback, log_interval)

    def iterate(self) -> bool:
        """Collect a round and learn from all rounds. Returns False if a callback stops training."""
        model, plain = self.model, self.plain
        actor, updates = plain.collector.actor, plain.updates
        actor.beta = model._beta()
        round_ = Round(-(-model.steps_per_round // model.n_envs), model.episodes_per_round)
        if plain.collector.collect(round_, plain.store, (plain.count,)) is None:
            return False
        model._rounds += 1
        buffer = model.memory.own
        if model.units.standardises:
            model.units.measure(model._unmeasured(buffer))
        known = buffer.size() * buffer.n_envs + (0 if model.dataset is None else len(model.dataset))
        steps = model.updates_per_round or model.n_epochs * -(-known // model.batch_size)
        with updates.split.update:
            updates.make(steps, model.batch_size, model.gamma, model.dataset_share, model.normalisation.replay)
        model.logger.record("rollout/beta", actor.beta)
        model.logger.record("train/dataset_size", known)
        for check in plain.between:
            check()
        return True


class WhatTheExpertSaid(ExperienceReplay):
    """Stores the expert's actions, which each round learns from."""

    few_updates: ClassVar = True
    storing: ClassVar = (as_the_expert,)


@dataclass(eq=False, repr=False)
class DAgger(OfflineAlgorithm, OffPolicyAlgorithm):
    """DAgger: clones an expert, which it queries in the states that its own mistakes lead to (arXiv:1011.0686).

    In each round some whole episodes are played, the expert labels every step, and the actor is trained by behaviour
    cloning on all rounds together. ``learn`` counts environment steps. The expert's actions are in the replay buffer,
    whose rewards are not used.
    """

    env: Becomes[GymEnv | str | None, VecEnv | None] = later()
    """An environment, a vector of environments, or a registered name; ``None`` for a model that only predicts. After
    construction the vectorised environment with every wrapper."""
    learning_rate: LearningRate = 1e-3
    """Step size of the optimizer: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    stochastic: WithNetworks[bool] = False
    """For continuous actions: fit a Gaussian by likelihood, and sample from it, like :class:`~polyak.BC`."""
    ent_coef: NonNegative = 0.0
    """Weight of an entropy bonus, for likelihood."""
    l2_coef: NonNegative = 0.0
    """Weight of a penalty on half the sum of squared weights."""
    expert: Reload[Any] = None
    """The expert: a model, or a function of one observation. Models get observations before ``VecNormalize``. A model
    that only predicts needs none, and files do not hold it."""
    demonstrations: Reload[Dataset | None] = None
    """Demonstrations of the expert, used in all rounds; files do not hold them."""
    beta: Literal["first", "linear", "exponential"] | Schedule = "linear"
    """Probability that the expert acts: in all steps of the first round and never after, falling linearly over
    ``beta_rounds``, or by ``beta_decay`` each round; or a function of the remaining progress."""
    beta_rounds: Count = 15
    """Rounds after which the expert no longer acts, with ``beta="linear"``."""
    beta_decay: Fraction = 0.5
    """Factor per round, with ``beta="exponential"``."""
    episodes_per_round: Count = 3
    """Least number of episodes per round."""
    steps_per_round: Natural = 500
    """Least number of environment steps per round."""
    batch_size: Count = 64
    """Steps per minibatch."""
    n_epochs: Count = 10
    """Passes over all collected steps after each round."""
    updates_per_round: Count | None = None
    """Gradient steps after each round; ``None``: by ``n_epochs``."""
    buffer_size: Count = 1_000_000
    """Steps that the replay buffer holds."""
    dataset_share: Fraction | None = None
    """Share of each minibatch that comes from ``demonstrations``; ``None`` draws from both in proportion to their size.
    """

    # rounds determine when it acts and learns; rewards are ignored
    learning_starts: Settled[int] = 0
    random_warm_up: Settled[bool] = False
    train_freq: Settled[TrainFreq] = _ONE_STEP
    gradient_steps: Settled[int] = 1
    n_steps: Settled[int] = 1
    overlap: Settled[bool] = False
    gamma: Settled[float] = 1.0
    prioritized: Settled[bool] = False
    reward_scaling: Settled[RewardScaling] = "none"
    loop: ClassVar[Callable[..., Loop]] = RoundLoop
    made_of: ClassVar[MadeOf] = {
        "replay": WhatTheExpertSaid,
        "cloning": Cloning,
        "kept": partial(KeptAttributes, names={"rounds": "_rounds", "new_steps": "_new_steps"}),
    }
    learner_class: ClassVar[type[Learner]] = BCLearner
    policies: ClassVar = BC.policies
    action_spaces: ClassVar = SINGLE_SPACES
    actor = Held("policy.actor")
    """The actor network."""
    _rounds = 0
    _new_steps = 0

    # -- construction --------------------------------------------------------------------------------------------------

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        able = self.expert is None or callable(self.expert) or hasattr(self.expert, "predict")
        require(able, "expert", self.expert, "it must be a model, or a function of one observation.")
        buffer = self.replay_buffer_class
        fix = "what the expert said is not learned for other goals. Leave it out."
        require(buffer is None or not issubclass(buffer, HerReplayBuffer), "replay_buffer_class", buffer, fix)
        fix = "after each round DAgger reads what it stored, which must be here. Pass n_replay_shards=0."
        require(self.n_replay_shards == 0, "n_replay_shards", self.n_replay_shards, fix)

    def _attach_env(self, env: Any) -> None:
        if isinstance(env, Dataset):
            raise ValueError(f"env={env!r}: DAgger acts in an environment. Give it the data as demonstrations=.")
        super()._attach_env(env)
        self.dataset = self.demonstrations
        for what in ("observation_space", "action_space"):
            if self.dataset is not None and getattr(self.dataset, what) != getattr(self, what):
                raise ValueError(
                    f"demonstrations have {what}={getattr(self.dataset, what)}, but the environment "
                    f"{getattr(self, what)}. Use demonstrations.for_env(env) with the environment."
                )

    def _check_ready(self) -> None:
        super()._check_ready()
        if self.expert is None:
            raise ValueError("expert=None: there is none to ask. Pass one: `DAgger.load(path, env=..., expert=...)`.")

    def make_actor(self) -> Actor:
        """Returns an actor that mixes the present policy with the expert, and queries the expert."""
        teacher = Teacher(self.expert, self.action_space, self.get_vec_normalize_env())
        return Apprentice(self.policy, self._exploration(), teacher=teacher)

    def _exploration(self) -> dict[str, Exploration]:
        return {}

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _beta(self) -> float:
        if callable(self.beta):
            return float(self.beta(self._current_progress_remaining))
        return share_of_expert(self.beta, self._rounds, self.beta_rounds, self.beta_decay)

    def _unmeasured(self, buffer: ReplayBuffer) -> Any:
        """Yields the observations of the last round, in pieces."""
        steps, self._new_steps = min(self._new_steps, buffer.buffer_size), 0
        slots = np.arange(buffer.pos - steps, buffer.pos) % buffer.buffer_size
        cells = (slots[:, None] * buffer.n_envs + np.arange(buffer.n_envs)).reshape(-1)
        for start in range(0, len(cells), _ROWS):
            yield buffer.storage.read(cells[start : start + _ROWS])["observations"]

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        rounds = max(timesteps // max(self.steps_per_round, 1), 1)
        each = self.updates_per_round or self.n_epochs * -(-timesteps // (2 * self.batch_size))
        return rounds * each, self.batch_size

    # -- files ---------------------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        values = super().hyperparameters()
        return {name: value for name, value in values.items() if name not in ("expert", "demonstrations")}

    card: ClassVar[Card] = Card(
        idea="clone the expert where one's own mistakes lead",
        learns_from="an expert, asked while it acts",
        refuses=("replay_buffer_class",),
        needs="expert",
    )


def _rows(observations: Observations, count: int) -> list[Any]:
    """Returns the observations as a list of single ones."""
    if isinstance(observations, Mapping):
        return [{key: part[i] for key, part in observations.items()} for i in range(count)]
    return list(observations)
