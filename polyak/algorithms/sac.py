"""Soft Actor-Critic (SAC).

Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv:1812.05905. Equation numbers refer to it.

Shapes: B batch rows, A action dimensions, K critics.
"""

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polyak.algorithm_info import Card, tune
from polyak.experience import Transition
from polyak.fields.actor_critic import SoftCritics
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.changing import FixedHyperparameterError
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Learner, LearnerRecipe, Metrics, Objective, OptimizerRecipe, Tunable, Update
from polyak.learning.part_rates import check_part_rates
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf, Part
from polyak.parts.replay import minus_action_dim

# -- losses ------------------------------------------------------------------------------------------------------------


def soft_value(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """V(s) = min_k Q_k(s, a) - alpha log pi(a|s), eq. 3 with the smaller critic. q [K, B], log_prob [B] -> [B]"""
    return q.amin(0) - alpha * log_prob


def critic_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """J_Q = sum_k E[1/2 (Q_k - target)^2], eq. 5. q [K, B], target [B], weights [B] -> []"""
    return 0.5 * (weights * (q - target) ** 2).mean(1).sum()


def actor_loss(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """J_pi = E[alpha log pi(a|s) - min_k Q_k(s, a)] with reparameterised a, eq. 9. q [K, B], log_prob [B] -> []"""
    return (alpha * log_prob - q.amin(0)).mean()


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) = -log(alpha) E[log pi(a|s) + H], eq. 18 with log(alpha) for alpha. log_prob [B] -> []

    The logarithm keeps alpha positive and, as in the authors' code, scales its gradient by 1/alpha.
    """
    return -(log_alpha * (log_prob + target_entropy).detach()).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class SoftActorCriticLearner(Learner):
    """Base class of SAC and CrossQ: actor, critics and temperature, their optimizers and objectives."""

    policy: ContinuousPolicy
    ent_coef: Tunable[Tensor]
    target_entropy: Tunable[float]
    use_sde: Tunable[bool]
    policy_delay: int = 1

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        if recipe.values["target_entropy"] == "auto":
            self.target_entropy = minus_action_dim(self.policy.action_space)
        self.add_optimizer("actor", self.policy.actor, recipe.make_optimizer, recipe.lr)
        critic = self.policy.critic
        self.add_optimizer("critic", critic.own_parameters(), recipe.make_optimizer, recipe.lr, owner=critic)
        self.learn_alpha, initial_alpha = parse_ent_coef(recipe.values["ent_coef"])
        if self.learn_alpha:
            self.log_ent_coef = nn.Parameter(torch.tensor([initial_alpha]).log())
            self.add_optimizer("ent_coef", [self.log_ent_coef], OptimizerRecipe(), recipe.lr)

    def temperature(self) -> Tensor:
        """Returns the present temperature alpha: [1] if it is learned, otherwise []."""
        return self.log_ent_coef.detach().exp() if self.learn_alpha else self.ent_coef

    def begin(self) -> None:
        """Count an update, and draw the noise of gSDE."""
        self.steps += 1
        if self.use_sde:
            self.policy.reset_noise()

    def with_actor(self, update: Update, batch: Transition) -> Update:
        """Complete an update of the critics: every ``policy_delay`` updates, actor and temperature are updated, too."""
        if self.steps % self.policy_delay:
            return update
        return update._replace(metrics={**update.metrics, **self.run(self.actor_step, batch)})

    def actor_step(self, batch: Transition) -> Metrics:
        """Makes a step of actor and temperature on newly sampled actions."""
        actions, log_prob = self.policy.actor.action_log_prob(batch.observations)
        return self.improve_actor(batch, actions, log_prob, self.temperature())

    def improve_actor(self, batch: Transition, actions: Tensor, log_prob: Tensor, alpha: Tensor) -> Metrics:
        """Make a step of the actor on its own actions [B, A] with log_prob [B], eq. 9 and 10, and one of the
        temperature."""
        actor = self.actor_objective(batch, actions, log_prob, self.q_of_policy(batch, actions), alpha)
        self.minimise("actor", actor.loss)
        temperature = self.improve_temperature(log_prob, alpha)
        return {"actor_loss": actor.loss.detach(), **temperature, **actor.metrics}

    def improve_temperature(self, log_prob: Tensor, alpha: Tensor) -> Metrics:
        """Make a step of the temperature alpha, if it is learned, by log_prob [B] of the actor's own actions, eq. 18."""
        if not self.learn_alpha:
            return {"ent_coef": alpha.mean()}
        temperature = self.temperature_objective(log_prob)
        self.minimise("ent_coef", temperature.loss)
        return {"ent_coef": alpha.mean(), "ent_coef_loss": temperature.loss.detach(), **temperature.metrics}

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' Q-values of the batch's actions, to be compared with the target. -> [K, B]"""
        return self.policy.critic.q_values(batch.observations, batch.actions)

    def q_of_policy(self, batch: Transition, actions: Tensor) -> Tensor:
        """Returns the critics' Q-values of the actor's actions [B, A]. -> [K, B]"""
        return self.policy.critic.q_values(batch.observations, actions)

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. q [K, B] of the batch's actions, target [B]"""
        return Objective(critic_loss(q, target, batch.weights), td_error=(q - target).detach().abs().mean(0))

    def actor_objective(
        self, batch: Transition, actions: Tensor, log_prob: Tensor, q: Tensor, alpha: Tensor
    ) -> Objective:
        """Returns the actor's loss. Its own actions [B, A], log_prob [B] and q [K, B] of those"""
        return Objective(actor_loss(q, log_prob, alpha))

    def temperature_objective(self, log_prob: Tensor) -> Objective:
        """Returns the temperature's loss. log_prob [B] of the actor's own actions"""
        return Objective(temperature_loss(self.log_ent_coef, log_prob, self.target_entropy))


class SACLearner(SoftActorCriticLearner):
    """Soft actor-critic with target critics."""

    tau: Tunable[Tensor]
    target_update_interval: Tunable[int]

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step of critics, actor and temperature, then updates the targets."""
        self.begin()
        update: Update = self.run(self.gradient_step, batch, self.steps % self.target_update_interval == 0)
        return update

    def gradient_step(self, batch: Transition, update_target: bool) -> Update:
        """Makes the gradient steps of algorithm 1."""
        alpha = self.temperature()
        actions, log_prob = self.policy.actor.action_log_prob(batch.observations)  # sampled before those of the target
        update = self.improve_critics(batch, alpha)
        metrics = self.improve_actor(batch, actions, log_prob, alpha)
        if update_target:
            polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        return update._replace(metrics={**update.metrics, **metrics})

    def improve_critics(self, batch: Transition, alpha: Tensor) -> Update:
        """Make a step of the critics on the soft Bellman residual, eq. 5 and 6."""
        target = self.td_target(batch, alpha)
        critic = self.critic_objective(batch, self.estimates(batch), target)
        self.minimise("critic", critic.loss)
        return Update({"critic_loss": critic.loss.detach(), **critic.metrics}, critic.td_error)

    @torch.no_grad()
    def td_target(self, batch: Transition, alpha: Tensor) -> Tensor:
        """Returns the target Q-values of eq. 2 and 3, by the target critics. -> [B]"""
        next_actions, next_log_prob = self.policy.actor.action_log_prob(batch.next_observations)
        next_q = self.policy.critic_target.q_values(batch.next_observations, next_actions)
        return batch.rewards + batch.discounts * soft_value(next_q, next_log_prob, alpha)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class Temperature(Part):
    """Part of the entropy temperature alpha, which may be learned."""

    def check(self) -> None:
        parse_ent_coef(self.model.ent_coef)

    def adopt(self, name: str, before: Any) -> None:
        """Refuses to change the initial value of a learned temperature."""
        check_temperature(self.model, name, before)


class GaussianTemperature(Temperature):
    """The temperature of continuous actions, with gSDE and learning rates per part."""

    rated: ClassVar[tuple[str, ...]] = ("actor", "critic", "ent_coef")
    """Names that ``learning_rates`` may contain."""

    def check(self) -> None:
        super().check()
        check_part_rates(self.model.learning_rates, *self.rated)

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "use_sde": self.model.use_sde}


@dataclass(eq=False, repr=False)
class SAC(SoftCritics, OffPolicyAlgorithm):
    """Soft Actor-Critic: maximum-entropy off-policy learning for continuous actions (arXiv:1812.05905)."""

    _: KW_ONLY

    made_of: ClassVar[MadeOf] = {"temperature": GaussianTemperature}
    learner_class: ClassVar[type[Learner]] = SACLearner
    policies: ClassVar = policy_aliases(
        ContinuousPolicy, ContinuousPolicy, actor="squashed_gaussian", net_arch=[256, 256]
    )

    card: ClassVar[Card] = Card(
        idea="maximum entropy: stochastic actor, two critics, tuned temperature",
        learns_from="replay",
        search=tune.actor_critic(),
    )


def check_temperature(model: Any, name: str, before: Any) -> None:
    """Refuse to change the initial value of a learned temperature on a model that is built.

    Raises:
        FixedHyperparameterError: ``name`` changes from ``before`` to a value that requires another learner.
    """
    value = getattr(model, name)
    if name == "target_entropy" and isinstance(value, str):
        raise FixedHyperparameterError(
            f"{name}={value!r} cannot be set on a model that is built with {before!r}. Give the number."
        )
    if name == "ent_coef" and (isinstance(value, str) or isinstance(before, str)):
        raise FixedHyperparameterError(
            f"{name}={value!r} cannot be set on a model that is built with {before!r}: whether the temperature is "
            "learned, and from where, is decided once. Make a new model; a learned temperature is moved by "
            "`with torch.no_grad(): model.log_ent_coef.fill_(math.log(...))`."
        )


def parse_ent_coef(value: float | str) -> tuple[bool, float]:
    """Parses the temperature: ``"auto"`` -> (learned, 1.0); ``"auto_0.1"`` -> (learned, 0.1); 0.2 -> (fixed, 0.2).

    Raises:
        HyperparameterError: another text, or an initial value that is not positive.
    """
    if not isinstance(value, str):
        return False, float(value)
    initial = "1.0" if value == "auto" else value.removeprefix("auto_")
    try:
        alpha = float(initial) if value.startswith("auto") else math.nan
    except ValueError:
        alpha = math.nan
    fix = "give a number, 'auto', or 'auto_<initial value>' with an initial value greater than 0."
    require(alpha > 0, "ent_coef", value, fix)
    return True, alpha
