"""Off-policy learning that replays imagined steps beside real ones.

Janner et al. 2019, "When to Trust Your Model: Model-Based Policy Optimization" (MBPO), arXiv:1906.08253, algorithm 2:
at intervals a model is fitted to all experience, and the policy acts in it for a few steps from real states.

Shapes: E elites of the model, B rollouts, S dimensions of an observation, A of an action, D = S + 1.
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from polyak.algorithms.model_based.dynamics import DynamicsModel
from polyak.algorithms.model_based.fitting import FitsModel, ModelLearner, model_optimizer, rows_of
from polyak.arrays import under
from polyak.checkpoint.parameters import restore, store
from polyak.checkpoint.saved import Saved, join_state, prefixed, split_state
from polyak.experience import ReplayBuffer
from polyak.experience.base_buffer import Normalizer
from polyak.experience.record import Experience
from polyak.experience.replay_memory import Batches, ReplayMemory, joined
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.changing import Reload, WithNetworks
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate, require
from polyak.learning.host import LearnerHost, Load
from polyak.learning.learner import LearnerRecipe
from polyak.loops.updates import record_means, updates_of
from polyak.nn.options import check_counts, check_keywords, keywords_of
from polyak.nn.policies.base import Policy
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay
from polyak.schedules import Schedule

if TYPE_CHECKING:  # it calls methods of the algorithm that follows it in the bases
    Base = OffPolicyAlgorithm
else:
    Base = object


@dataclass
class ImaginingMemory(ReplayMemory):
    """Replays imagined steps beside real ones, once there are any."""

    imagined: ReplayBuffer | None = None
    """The replay buffer of imagined steps."""
    real_share: float = 0.05
    """Share of real rows in a minibatch: exact if that is a whole number of rows, otherwise on average."""

    def batches(
        self,
        batch_size: int,
        gamma: float,
        steps: int = 1,
        share: float | None = None,
        normalizer: Normalizer | None = None,
        late: bool = False,
    ) -> Batches:
        """Draw minibatches: see :meth:`ReplayMemory.batches`."""
        imagined = self.imagined
        if imagined is None or imagined.size() == 0:
            yield from super().batches(batch_size, gamma, steps, share, normalizer, late)
            return
        for _ in range(steps):
            rows = self.real_share * batch_size
            real = int(rows) if rows == int(rows) else int(imagined.rng.binomial(batch_size, self.real_share))
            draws = [super().batches(real, gamma, 1, share, normalizer)] if real else []
            draws += [imagined.transitions(batch_size - real, gamma, normalizer)] if real < batch_size else []
            yield joined([next(iter(draw))[0] for draw in draws]), None

    def discount_by(self, gamma: float) -> None:
        super().discount_by(gamma)
        if self.imagined is not None:
            self.imagined.discount_by(gamma)


@torch.no_grad()
def imagine(
    model: DynamicsModel, policy: Policy, starts: Tensor, steps: int, normalizer: Normalizer | None = None
) -> Experience:
    """Let a policy act in a model.

    At each step every rollout is continued by one of the elites, drawn so that each continues equally many. A rollout
    ends when the model predicts termination; after the last step it is truncated.

    Args:
        model: the dynamics model.
        policy: samples actions as it does in environments.
        starts: [B, S] observations; B is a multiple of E.
        steps: of each rollout.
        normalizer: of the policy's observations.

    Returns:
        the steps in the form of a replay buffer of one environment, rollout by rollout, [T, 1, ...].
    """
    seen, shape = starts, policy.observation_space.shape or ()
    steps_made: list[tuple[Tensor, ...]] = []
    alive = torch.ones(len(starts), dtype=torch.bool, device=starts.device)
    for t in range(steps):
        shown: Any = seen.reshape(-1, *shape)
        if normalizer is not None:
            shown = torch.as_tensor(normalizer.normalize_obs(shown.numpy(force=True)), device=seen.device).float()
        actions = policy.decide(shown, policy.draw_noise(len(seen))).actions.flatten(1)
        order = torch.randperm(len(seen), device=seen.device).reshape(model.n_elites, -1)
        drawn = torch.randn(*order.shape, model.n_observed + 1, device=seen.device)
        found = model.advance(seen[order], actions[order], drawn)
        back = order.flatten().argsort()
        then, rewards, terminated = (column.flatten(0, 1)[back] for column in found)
        cut = ~terminated if t == steps - 1 else torch.zeros_like(terminated)
        steps_made.append((alive, seen, then, actions, rewards, (terminated | cut).float(), cut.float()))
        seen, alive = then, alive & ~terminated
    made, *columns = (torch.stack(column, 1).flatten(0, 1) for column in zip(*steps_made, strict=True))
    names = "observations", "next_observations", "actions", "rewards", "dones", "timeouts"
    rows = {name: column[made].unsqueeze(1).numpy(force=True) for name, column in zip(names, columns, strict=True)}
    for name in names[:2]:
        rows[name] = rows[name].reshape(-1, 1, *shape)
    return Experience(rows)


class ImaginedUpdates:
    """Fits a model at intervals, lets the policy act in it, and makes gradient steps on real and imagined steps.

    Args:
        model: the algorithm.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.plain = model, updates_of(model)
        self.memory, self.clock, self.split = model.memory, model.clock, model._split

    def make(self, steps: int, *replay: Any) -> None:
        """Make gradient steps: see :meth:`~polyak.loops.updates.Updates.make`."""
        model = self.model
        if self.memory.imagined.size() == 0 or self.clock.steps - model.replay.fitted_at >= model.model_freq:
            model.replay.imagine()
        self.plain.make(steps, *replay)


class Imagination(ExperienceReplay):
    """Replays imagined steps, too, and owns the model."""

    memory: ImaginingMemory
    numpy_alone: ClassVar = "a model is fitted to rows in main memory"
    fitted_at = 0
    """Environment steps at the last fit of the model."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.memory = ImaginingMemory(real_share=model.real_share)

    def check(self) -> None:
        super().check()
        own = {"reward_function", "termination_function"}
        check_keywords("model_kwargs", self.model.model_kwargs or {}, keywords_of(DynamicsModel) - own)
        check_counts((DynamicsModel,), self.model.model_kwargs or {})

    def build(self) -> None:
        super().build()
        model = self.model
        chosen: dict[str, Any] = {"n_members": 7, "n_elites": 5, **(model.model_kwargs or {})}
        chosen |= {"reward_function": model.reward_function, "termination_function": model.termination_function}
        make: Any = partial(DynamicsModel, model.observation_space, model.action_space, **chosen)
        optimizer, rate = model_optimizer(), self._now(model.model_learning_rate)
        recipe = LearnerRecipe(ModelLearner, make, optimizer, rate, self._options_of_fits())
        model.model_host = LearnerHost(model._compiles, model.precision)
        model.model_learner = model.model_host.take(recipe(), model.device)
        fix = "a model imagines no recurrent states. Use a policy without memory."
        require(not model._columns(), "policy_kwargs", model.policy_kwargs, fix)
        self.memory.imagined = self.make(model.imagined_size, n_envs=1)
        fix = "a model imagines no goals. Leave it out."
        require(self.memory.imagined.relabel is None, "replay_buffer_kwargs", model.replay_buffer_kwargs, fix)

    def _now(self, value: float | Schedule) -> float:
        return value(self.model.clock.remaining) if callable(value) else value

    def _options_of_fits(self) -> dict[str, float]:
        model = self.model
        return {"holdout": model.holdout, "patience": model.patience, "bounds_weight": model.bounds_weight}

    def adopt(self, name: str, before: Any) -> None:
        super().adopt(name, before)
        if name == "real_share":
            self.memory.real_share = self.model.real_share

    def updates(self) -> ImaginedUpdates:
        return ImaginedUpdates(self.model)

    def begin(self, reset: bool) -> None:
        super().begin(reset)
        model = self.model
        if reset:
            self.fitted_at = 0
        fits = max(model.clock.total - model.clock.steps, 0) // model.model_freq
        model.model_host.expect(Load(fits * model.model_gradient_steps, model.model_batch_size))

    def imagine(self) -> None:
        """Fits the model to all experience, and lets the policy act in it."""
        model, memory = self.model, self.memory
        rows = rows_of((memory.own, memory.recorded), model.device)
        if len(rows.rewards) < 2:
            return
        self.fitted_at = model.clock.steps
        learner: ModelLearner = model.model_learner
        learner.set(learning_rate=self._now(model.model_learning_rate), **self._options_of_fits())
        fit = learner.fit(rows, model.model_gradient_steps, model.model_batch_size)
        record_means(fit.metrics, model.logger, model.host)
        model.policy.set_training_mode(False)
        dynamics, length = learner.model, max(round(self._now(model.rollout_length)), 1)
        n = math.ceil(model.n_rollouts / dynamics.n_elites) * dynamics.n_elites
        starts = cast(Tensor, rows.observations)[torch.randint(len(rows.rewards), (n,), device=model.device)]
        assert memory.imagined is not None
        memory.imagined.take_over(imagine(dynamics, model.policy, starts, length, model.normalisation.replay))

    # -- files ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {**super().state(), "fitted_at": self.fitted_at}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.fitted_at = int(state["fitted_at"])

    def save(self, saved: Saved, include: set[str]) -> None:
        super().save(saved, include)
        part = Saved({})
        store(self.model.model_learner, part)
        saved.info["model"] = part.info
        saved.state |= prefixed("model/networks", part.networks) | prefixed("model/optimizers", part.optimizers)
        if "replay_buffer" in include and self.memory.imagined is not None:
            saved.info["imagined"], arrays = split_state(self.memory.imagined.state_dict())
            saved.replay = {**saved.replay, **prefixed("imagined", arrays)}

    def load(self, saved: Saved) -> None:
        networks, optimizers = (under(f"model/{kind}", saved.state) for kind in ("networks", "optimizers"))
        restore(self.model.model_learner, Saved(saved.info["model"], networks, optimizers))

    def resume(self, saved: Saved, resume: bool) -> None:
        real = {name: array for name, array in saved.replay.items() if not name.startswith("imagined/")}
        super().resume(replace(saved, replay=real), resume)
        if resume and "imagined" in saved.info and self.memory.imagined is not None:
            state = join_state(saved.info["imagined"], under("imagined", saved.replay))
            self.memory.imagined.load_state_dict(state)


@dataclass(eq=False, repr=False)
class Imagining(FitsModel, Base):
    """Lets an off-policy algorithm with continuous actions learn from imagined steps, too.

    It comes first among the base classes::

        @dataclass(eq=False, repr=False)
        class ImaginingTD3(Imagining, polyak.TD3):
            \"\"\"TD3 that imagines.\"\"\"
    """

    _: KW_ONLY
    real_share: Fraction = 0.05
    """Share of real steps in each minibatch, once there are imagined ones."""
    rollout_length: Count | Schedule = 1
    """Imagined steps from each start: a number, or a function of the remaining progress (1 at the start, 0 at the end),
    which is rounded."""
    n_rollouts: Count = 100_000
    """Rollouts after each fit, from random real states; rounded up to a multiple of the model's elites."""
    imagined_size: Reload[Count] = 400_000
    """Number of latest imagined steps that are kept."""
    model_freq: Count = 250
    """Environment steps between two fits of the model, each followed by imagined rollouts."""
    model_gradient_steps: Count = 2_000
    """Largest number of gradient steps of one fit of the model."""
    model_batch_size: Count = 256
    """Steps per minibatch of each member of the model."""
    model_learning_rate: LearningRate = 1e-3
    """Learning rate of the model: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    model_kwargs: WithNetworks[dict[str, Any] | None] = None
    """Arguments of the model: ``n_members`` (7), ``n_elites`` (5), ``net_arch``, ``activation_fn``; see
    :class:`~polyak.algorithms.model_based.dynamics.DynamicsModel`."""

    made_of: ClassVar[MadeOf] = {"replay": Imagination}
