"""HIRO: a hierarchy in which a higher level sets goals every few steps, and a lower level learns to reach them.

Nachum, Gu, Lee and Levine 2018, "Data-Efficient Hierarchical Reinforcement Learning", arXiv:1805.08296. Equation
numbers refer to it. Each level is a TD3 (arXiv:1802.09477).

A goal g is a change of the position phi(s), entries of the observation. Every c steps the higher level chooses one; in
between it becomes h(s, g, s') = phi(s) + g - phi(s'). The lower level's reward is -|phi(s) + g - phi(s')|, the higher
one's the scaled sum of the environment's rewards during a goal. Since the lower level changes, recorded goals are
replaced by those for which its present policy would most likely repeat its actions.

Steps are replayed in windows of 2c - 1 rows around a drawn row: the lower level learns from that row, the higher one
from the interval of the goal that was active in it.

Shapes: B drawn rows, L = 2c - 1 rows of a window, c steps of a goal, M candidate goals, G entries of a goal, A action
dimensions, K critics.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.td3 import actor_loss, critic_loss, smoothed
from polyak.arrays import mapped
from polyak.experience import Dataset, Transition
from polyak.experience.sampling import reduce
from polyak.fields.actor_critic import Noisy, Soft
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import Count, LearningRate, NonNegative, Only, Positive, require
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, LearnerRecipe, Metrics, Objective, Tunable, Update
from polyak.learning.replayed_sequences import picked
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.hierarchical import ELAPSED, GOAL, HierarchicalPolicy
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf, of_policy
from polyak.parts.replay import ExperienceReplay

Level = Literal["low", "high"]
SAMPLED = 8
"""Candidate goals sampled around the reached change of position, section 3.3."""

# -- goals -------------------------------------------------------------------------------------------------------------


def goal_transition(here: Tensor, goals: Tensor, then: Tensor) -> Tensor:
    """h(s, g, s') = phi(s) + g - phi(s'), section 3.2. Positions [B, ..., G], goals [B, ..., G] -> [B, ..., G]"""
    return here + goals - then


def intrinsic_reward(here: Tensor, goals: Tensor, then: Tensor) -> Tensor:
    """-|phi(s) + g - phi(s')|, eq. 3. Positions [B, ..., G], goals [B, ..., G] -> [B, ...]"""
    return -(here + goals - then).norm(dim=-1)


def candidate_goals(goals: Tensor, reached: Tensor, draws: Tensor, largest: Tensor) -> Tensor:
    """Returns the recorded goal, phi(s_(t+c)) - phi(s_t), and Gaussian samples around that, clipped to their range,
    section 3.3.

    The standard deviation of the samples is half the range. goals [B, G], reached [B, G], draws [B, M - 2, G] of N(0,
    1), range [G] -> [B, M, G]
    """
    around = reached[:, None] + 0.5 * largest * draws
    return torch.cat([goals[:, None], reached[:, None], around], 1).clamp(-largest, largest)


def log_likelihood(actions: Tensor, chosen: Tensor, valid: Tensor) -> Tensor:
    """-1/2 sum_i |a_i - mu(s_i, g_i)|^2, the log-probability of actions up to a constant, eq. 5.

    actions [B, c, A], the lower level's for each candidate [B, M, c, A], valid steps [B, c] -> [B, M]
    """
    return -0.5 * ((actions[:, None] - chosen).square().sum(3) * valid[:, None]).sum(2)


# -- one gradient step -------------------------------------------------------------------------------------------------


class HIROLearner(Learner):
    """Two levels, each with an actor and twin critics, and target networks of these."""

    policy: HierarchicalPolicy
    tau: Tunable[Tensor]
    target_policy_noise: Tunable[Tensor]
    target_noise_clip: Tunable[Tensor]
    policy_delay: Tunable[int]
    level_delay: Tunable[int]
    reward_scale: Tunable[Tensor]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        for name, level in (("low", self.policy.low), ("high", self.policy.high)):
            self.add_optimizer(f"{name}_actor", level.actor, recipe.make_optimizer, recipe.lr)
            self.add_optimizer(f"{name}_critic", level.critic, recipe.make_optimizer, recipe.lr)

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of the lower level; every ``level_delay`` steps also one of the higher level."""
        self.steps += 1
        update = self.level_update(batch, "low", self.steps)
        if self.steps % self.level_delay == 0:
            metrics = self.level_update(batch, "high", self.steps // self.level_delay).metrics
            update = update._replace(metrics={**update.metrics, **metrics})
        return update

    def level_update(self, batch: Transition, level: Level, steps: int) -> Update:
        """Makes a level's TD3 step: of the critics, and every ``policy_delay`` ``steps`` also of the actor and the
        targets."""
        update: Update = self.run(self.critic_step, batch, level)
        if steps % self.policy_delay == 0:
            update = update._replace(metrics={**update.metrics, **self.run(self.delayed_step, batch, level)})
        return update

    def critic_step(self, batch: Transition, level: Level) -> Update:
        """Makes a step of clipped double Q-learning of one level. batch [B, L, ...]"""
        rows = self.lower(batch) if level == "low" else self.higher(batch)
        q = self.policy.get_submodule(f"{level}.critic").q_values(rows.observations, rows.actions)  # type: ignore[operator]
        critic = self.critic_objective(rows, q, self.td_target(rows, level))
        self.minimise(f"{level}_critic", critic.loss)
        return Update({f"{level}_critic_loss": critic.loss.detach(), **critic.metrics}, critic.td_error)

    def delayed_step(self, batch: Transition, level: Level) -> Metrics:
        """Makes a deterministic policy gradient step of one level through its first critic, then updates its targets."""
        networks: Any = getattr(self.policy, level)
        observations = self.seen_by_lower(batch) if level == "low" else self.seen_by_higher(batch)
        actions = networks.actor(observations)
        q = networks.critic.q1_forward(observations, actions).flatten()
        actor = self.actor_objective(q if level == "low" else q * self.interval(batch)[1][:, 0])
        self.minimise(f"{level}_actor", actor.loss)
        polyak_update(networks.critic, networks.critic_target, self.tau)
        polyak_update(networks.actor, networks.actor_target, self.tau)
        return {f"{level}_actor_loss": actor.loss.detach(), **actor.metrics}

    @torch.no_grad()
    def td_target(self, rows: Transition, level: Level) -> Tensor:
        """Returns TD3's target Q-values of one level. -> [B]"""
        networks: Any = getattr(self.policy, level)
        actions = networks.actor_target(rows.next_observations)
        actions = smoothed(actions, self.target_policy_noise, self.target_noise_clip)
        return rows.rewards + rows.discounts * networks.critic_target.q_values(rows.next_observations, actions).amin(0)

    def critic_objective(self, rows: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss of a level. q [K, B] of the actions or goals, target [B]"""
        return Objective(critic_loss(q, target, rows.weights), td_error=(q - target).detach().abs().mean(0))

    def actor_objective(self, q: Tensor) -> Objective:
        """Returns the actor's loss of a level. q [B] of its own actions or goals, 0 for an invalid row"""
        return Objective(actor_loss(q))

    # Training data of each level. Windows [B, L, ...] have the drawn rows in the middle.

    def seen_by_lower(self, batch: Transition) -> Any:
        """Returns the observations of the drawn rows, concatenated with their goals [B, ...]."""
        middle = self.policy.goal_steps - 1
        here = mapped(lambda part: part[:, middle], batch.observations)
        return self.policy.beside(here, batch.extras[GOAL][:, middle])

    @torch.no_grad()
    def lower(self, batch: Transition) -> Transition:
        """Returns the drawn rows as the lower level's transitions: intrinsic rewards and remaining goals. -> [B, ...]"""
        policy, middle = self.policy, self.policy.goal_steps - 1
        before, goals = self.seen_by_lower(batch), batch.extras[GOAL][:, middle]
        after = mapped(lambda part: part[:, middle], batch.next_observations)
        here = policy.position(mapped(lambda part: part[:, middle], batch.observations))
        then = policy.position(after)
        return Transition(
            before,
            batch.actions[:, middle],
            intrinsic_reward(here, goals, then),
            policy.beside(after, goal_transition(here, goals, then)),
            batch.discounts[:, middle],
            batch.weights,
        )

    def interval(self, batch: Transition) -> tuple[Tensor, Tensor]:
        """Returns the window positions [B, c] of the rows with the drawn row's goal, and their validity [B, c]: the
        episode may have ended, or the interval's beginning may have been overwritten."""
        elapsed, middle = batch.extras[ELAPSED], self.policy.goal_steps - 1
        steps = torch.arange(self.policy.goal_steps, device=elapsed.device)
        places = middle - elapsed[:, middle, None] + steps
        assert batch.valid is not None
        return places, picked(batch.valid, places) & (picked(elapsed, places) == steps)

    def seen_by_higher(self, batch: Transition) -> Any:
        """Returns the observations in which the goals were chosen [B, ...]."""
        first = self.interval(batch)[0][:, :1]
        return mapped(lambda part: picked(part, first)[:, 0], batch.observations)

    @torch.no_grad()
    def higher(self, batch: Transition) -> Transition:
        """Returns the intervals of the drawn rows as the higher level's transitions, with corrected goals in [-1, 1] as
        actions.

        An interval has weight 0 if its beginning was overwritten. -> [B, ...]

        An interval counts with weight 0 if its beginning was overwritten. -> [B, ...]
        """
        places, valid = self.interval(batch)
        last = places.gather(1, (valid.sum(1, keepdim=True) - 1).clamp(min=0))
        goals = self.corrected(batch, places, valid, last)
        return Transition(
            self.seen_by_higher(batch),
            goals / self.policy.goal_range,
            self.reward_scale * (picked(batch.rewards, places) * valid).sum(1),
            mapped(lambda part: picked(part, last)[:, 0], batch.next_observations),
            picked(batch.discounts, last)[:, 0],
            batch.weights * valid[:, 0],
        )

    @torch.no_grad()
    def corrected(self, batch: Transition, places: Tensor, valid: Tensor, last: Tensor) -> Tensor:
        """Returns the candidate goals that maximise the likelihood of the recorded actions under the lower level,
        section 3.3.

        ``places`` [B, c] of the steps of an interval, their validity ``valid`` [B, c], and the ``last`` valid one [B,
        1]. -> [B, G]

        ``places`` [B, c] of the steps of an interval, which of them there are ``valid`` [B, c], and the ``last`` one
        [B, 1]. -> [B, G]
        """
        policy = self.policy
        steps = mapped(lambda part: picked(part, places), batch.observations)
        here = policy.position(steps)  # [B, c, G]
        reached = policy.position(mapped(lambda part: picked(part, last)[:, 0], batch.next_observations)) - here[:, 0]
        recorded = picked(batch.extras[GOAL], places)[:, 0]
        draws = torch.randn((len(reached), SAMPLED, reached.shape[1]), device=reached.device)
        candidates = candidate_goals(recorded, reached, draws, policy.goal_range)
        left = goal_transition(here[:, None, :1], candidates[:, :, None], here[:, None])  # [B, M, c, G]
        beside = policy.beside(mapped(lambda part: repeated(part, candidates.shape[1]), steps), left.flatten(0, 2))
        actions = picked(batch.actions, places)
        chosen = policy.low.actor(beside).view(*left.shape[:3], -1)
        best = log_likelihood(actions.flatten(2), chosen, valid).argmax(1)
        return candidates[torch.arange(len(best), device=best.device), best]


def repeated(part: Tensor, times: int) -> Tensor:
    """Repeats each of B sequences: [B, c, ...] -> [B M c, ...]"""
    return part.unsqueeze(1).expand(-1, times, *part.shape[1:]).flatten(0, 2)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def _all(kind: str, holds: Callable[[Any], bool]) -> Only:
    return Only(f"a list of {kind}", lambda values: all(map(holds, values)))


Entries = Annotated[Sequence, _all("whole numbers", lambda x: isinstance(x, int))]
Sizes = Annotated[Sequence, _all("positive numbers", lambda x: isinstance(x, float | int) and x > 0)]


class GoalWindows(ExperienceReplay):
    """Replays windows around each row, which contain the interval of its goal."""

    def check(self) -> None:
        super().check()
        own = (self.model.replay_buffer_kwargs or {}).get("reduce")
        fix = "the levels learn from windows around each row, as goal_steps says. Leave it out."
        require(own is None, "replay_buffer_kwargs['reduce']", own, fix)

    def options(self) -> dict[str, Any]:
        steps = self.model.goal_steps
        return {**super().options(), "reduce": reduce.Sequence(steps, burn_in=steps - 1)}

    def with_columns(self, dataset: Dataset) -> Dataset:
        steps = self.model.goal_steps
        here, then = (
            np.concatenate([self._positions(getattr(part, name)) for part in dataset.chunks()])
            for name in ("observations", "next_observations")
        )
        elapsed = dataset.timesteps % steps
        ends = np.repeat(dataset.ends, dataset.lengths)
        last = np.minimum(np.arange(len(dataset)) - elapsed + steps, ends) - 1
        return dataset.with_columns({GOAL: then[last] - here, ELAPSED: elapsed})

    def _positions(self, observations: Any) -> np.ndarray:
        found: np.ndarray = self.model.policy.position(mapped(torch.as_tensor, observations)).numpy()
        return found


@dataclass(eq=False, repr=False)
class HIRO(Soft, Noisy, OffPolicyAlgorithm):
    """HIRO: a higher level sets goals every few steps, a lower level learns to reach them (arXiv:1805.08296).

    Goals are changes of ``"achieved_goal"`` if observations are a Dict with that key, otherwise of the observation
    vector or some of its entries. The goal in progress and its remaining steps are the policy's recurrent state:
    ``predict`` takes it and returns it. Both levels discount by ``gamma``, the lower one per step, the higher one per
    goal.
    """

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY
    goal_steps: WithNetworks[Count] = 10
    """Environment steps between two goals, c."""
    goal_range: WithNetworks[Positive | Sizes] = 1.0
    """Largest change of each entry that a goal may ask for, one number or one per entry, in the units of the policy's
    observations."""
    goal_entries: WithNetworks[Entries | None] = None
    """Indices of the observation's entries that goals refer to; ``None``: all."""
    goal_noise: WithNetworks[NonNegative] = 0.2
    """Standard deviation of exploration noise in goals, relative to ``goal_range``."""
    reward_scale: Positive = 0.1
    """Factor of the higher level's rewards, which are sums over the steps of a goal."""
    level_delay: Count = 10
    """Gradient steps of the lower level per step of the higher one."""
    policy_delay: Count = 2
    """Gradient steps of a level's critics per step of its actor and its targets."""
    target_policy_noise: NonNegative = 0.2
    """Standard deviation of the target policy smoothing noise of both levels."""
    target_noise_clip: NonNegative = 0.5
    """Bound of the smoothing noise."""

    n_steps: Settled[int] = 1  # the higher level sums rewards over goal_steps
    made_of: ClassVar[MadeOf] = {
        "replay": GoalWindows,
        "goals": of_policy("goal_steps", "goal_range", "goal_entries", "goal_noise"),
    }
    learner_class: ClassVar[type[Learner]] = HIROLearner
    policies: ClassVar = policy_aliases(HierarchicalPolicy)

    card: ClassVar[Card] = Card(
        idea="a level that sets goals every few steps, and one that learns to reach them",
        learns_from="replay",
        observations='a vector (`"MlpPolicy"`), or a Dict with `"achieved_goal"` (`"MultiInputPolicy"`)',
        search=Search(
            tune.actor_critic(tune.action_noise()),
            tune.whole("goal_steps", 3, 20),
            tune.log_uniform("goal_range", 0.1, 10.0),
            tune.uniform("goal_noise", 0.05, 0.5),
            tune.log_uniform("reward_scale", 0.01, 1.0),
            tune.whole("level_delay", 1, 10),
        ),
    )
