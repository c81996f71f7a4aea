"""Deep Q-Network (DQN).

Mnih et al. 2015, "Human-level control through deep reinforcement learning", Nature 518; later extensions are options.

Shapes: B batch rows, A actions, K numbers for each action.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, ClassVar, Literal

import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional as F

from polyak.algorithm_info import Card, tune
from polyak.collecting.train_freq import TrainFreq
from polyak.distributed.runners import RunnerGroup
from polyak.experience import Transition
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.values import Greedy
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    Fraction,
    LearningRate,
    Only,
    Positive,
    later,
    require,
)
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.encoders import Obs
from polyak.nn.policies.value import ValuePolicy
from polyak.ops.soft_values import munchausen_bonus, soft_log_policy
from polyak.ops.updates import polyak_update
from polyak.parts.epsilon import EpsilonOfSteps
from polyak.parts.part import MadeOf, Part
from polyak.schedules import LinearSchedule
from polyak.warning import warn_user

FORBIDDEN = -1e8
"""Value of a masked action: finite, so that 0 times it is 0."""

# -- losses ------------------------------------------------------------------------------------------------------------


def taken(values: Tensor, actions: Tensor) -> Tensor:
    """Returns the values of actions [B]: values [B, A] -> [B], or with K numbers per action [B, K, A] -> [B, K]"""
    index = actions.view(-1, *[1] * (values.ndim - 1)).expand(*values.shape[:-1], 1)
    return values.gather(-1, index).squeeze(-1)


def allowed(q: Tensor, masks: Tensor | None) -> Tensor:
    """Masks the values of forbidden actions. q [B, A], masks [B, A] bool or None: all are allowed -> [B, A]"""
    return q if masks is None else q.masked_fill(~masks, FORBIDDEN)


def soft_backup(values: Tensor, q: Tensor, temperature: Tensor) -> Tensor:
    """sum_a pi(a) (z(a) - temperature log pi(a)) with pi = softmax(q / temperature): arXiv:2007.14430 eq. 1.

    This is the value under the softmax policy of Munchausen learning. values z [B, A] or [B, K, A], q [B, A] -> [B] or
    [B, K]
    """
    scaled_log = soft_log_policy(q, temperature)
    policy = (scaled_log / temperature).exp()
    if values.ndim == 3:
        policy, scaled_log = policy[:, None], scaled_log[:, None]
    return (policy * (values - scaled_log)).sum(-1)


def q_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Huber loss: its gradient is the error Q - y clipped to [-1, 1], Methods. q [B], target [B], weights [B] -> []"""
    return (weights * F.smooth_l1_loss(q, target, reduction="none")).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class DQNLearner(Learner):
    """A Q-network and its target network."""

    optimized = ("policy",)
    policy: ValuePolicy
    tau: Tunable[Tensor]
    max_grad_norm: Tunable[Tensor | None]
    double: Tunable[bool]  # type: ignore[assignment]  # hides the module's cast to float64, which is not used
    munchausen: Tunable[bool]
    munchausen_alpha: Tunable[Tensor]
    munchausen_temperature: Tunable[Tensor]
    munchausen_clip: Tunable[Tensor]

    def update_target(self) -> None:
        """Move the target network towards the online one."""
        polyak_update(self.policy.q_net, self.policy.q_net_target, self.tau)

    def gradient_step(self, batch: Transition) -> Update:
        """Makes a gradient step towards the target Q-values; noisy layers draw new noise for target and prediction."""
        with self.policy.drawing():
            target = self.td_target(batch)
            objective = self.objective(batch, self.predicted(batch), target)
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update({"loss": objective.loss.detach(), **objective.metrics}, objective.td_error)

    def predicted(self, batch: Transition) -> Tensor:
        """Returns the online network's outputs for every action: [B, A]"""
        return self.q_values(self.policy.q_net, batch.observations)

    def q_values(self, network: Any, observations: Obs) -> Tensor:
        """Returns the Q-values of every action, by one of the two networks: [B, A]"""
        values: Tensor = network(observations)
        return values

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns y = r + gamma max_a Q_target(s', a), algorithm 1, or the target of the options. -> [B]"""
        next_q = self.q_values(self.policy.q_net_target, batch.next_observations)
        return self.rewards(batch) + batch.discounts * self.backup(batch, next_q, next_q)

    def rewards(self, batch: Transition) -> Tensor:
        """Returns the rewards [B]; Munchausen learning adds the scaled log-policy."""
        if not self.munchausen:
            return batch.rewards
        q, actions = self.q_values(self.policy.q_net_target, batch.observations), batch.actions.long()
        q = allowed(q, batch.extras.get("masks"))
        temperature, least = self.munchausen_temperature, self.munchausen_clip
        return batch.rewards + munchausen_bonus(q, actions, self.munchausen_alpha, temperature, least)

    def backup(self, batch: Transition, next_q: Tensor, values: Tensor) -> Tensor:
        """Returns the value of the successor states, from outputs for each next action: values [B, A] or [B, K, A].

        next_q [B, A]: their means, by the target network. -> [B] or [B, K]

        next_q [B, A]: their means, by the target network. -> [B] or [B, K]
        """
        if self.munchausen:
            next_q = allowed(next_q, batch.extras.get("next_masks"))
            return soft_backup(values, next_q, self.munchausen_temperature)
        return taken(values, self.next_actions(batch, next_q))

    def next_actions(self, batch: Transition, next_q: Tensor) -> Tensor:
        """Returns the greedy actions of the target network, or the online one: double Q-learning, arXiv:1509.06461 eq.
        4. -> [B]"""
        q = self.q_values(self.policy.q_net, batch.next_observations) if self.double else next_q
        return allowed(q, batch.extras.get("next_masks")).argmax(1)

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the Huber loss. q [B, A] of every action, target [B] of those taken"""
        chosen = taken(q, batch.actions.long())
        return Objective(q_loss(chosen, target, batch.weights), td_error=(chosen - target).detach().abs())


# -- hyper-parameters --------------------------------------------------------------------------------------------------


def tick(model: Any) -> None:
    """Count a step of all environments, or, in offline training, a gradient step."""
    model.target_clock.tick()


class TargetClock(Part):
    """Updates the target network at fixed intervals."""

    after_step: ClassVar = (tick,)
    calls = 0

    def prepare(self) -> None:
        n_envs, interval = self.model.n_envs, self.model.target_update_interval
        if n_envs > interval:
            warn_user(
                f"The number of environments used is greater than target_update_interval ({n_envs} > {interval}): the "
                f"target network is updated at every step of all of them, that is, every {n_envs} environment steps."
            )
        self.calls = 0

    def tick(self) -> None:
        """Count a step, and update the target network if it is due."""
        model = self.model
        self.calls += 1
        if self.calls % max(model.target_update_interval // model.n_envs, 1) == 0:
            model.learner.set(tau=model.tau)
            model.learner.together("update_target")

    def state(self) -> dict[str, Any]:
        return {"_n_calls": self.calls}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.calls = int(state["_n_calls"])


class NoisyEpsilon(EpsilonOfSteps):
    """Epsilon-greedy exploration, disabled if the network has noisy layers."""

    def make_schedule(self) -> LinearSchedule:
        return LinearSchedule(0.0, 0.0, 1.0) if self.model.noisy else super().make_schedule()

    def build(self) -> None:
        """Let remote runners compute epsilon for each step."""
        if isinstance(runner := self.model.runner, RunnerGroup):
            runner.epsilon_after = lambda steps: self.schedule(1.0 - float(steps) / float(self.model._total_timesteps))

    change_env = build


class Extensions(Part):
    """Dueling streams, noisy layers, Munchausen learning."""

    def check(self) -> None:
        model = self.model
        if model.noisy:
            self._require_defaults(
                "exploration_fraction exploration_initial_eps exploration_final_eps",
                "noisy=True explores by the noise of its layers and takes no random actions. Leave it out.",
            )
        else:
            self._require_defaults("sigma0", "only layers with noise read it. Pass noisy=True as well.")
        if model.munchausen:
            why = "the softmax of Munchausen learning takes no maximum whose choice could be another network's."
            require(not model.double, "double", model.double, f"{why} Leave it out.")
            why = "the bonus of Munchausen learning belongs to every single step, and sums of rewards have one action."
            require(model.n_steps == 1, "n_steps", model.n_steps, f"{why} Use n_steps=1.")
        else:
            names = "munchausen_alpha munchausen_temperature munchausen_clip"
            self._require_defaults(names, "only Munchausen learning reads it. Pass munchausen=True as well.")

    def _require_defaults(self, names: str, why: str) -> None:
        """Refuses values that would have no effect."""
        for field in fields(self.model):
            if field.name in names.split():
                value = getattr(self.model, field.name)
                require(value == field.default, field.name, value, why)

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Adds the network's options that differ from their defaults, since a user's policy may not take the others."""
        own: dict[str, Any] = {"dueling": self.model.dueling} if self.model.dueling else {}
        return own | ({"sigma0": self.model.sigma0} if self.model.noisy else {}) | options


@dataclass(eq=False, repr=False)
class DQN(Greedy, OffPolicyAlgorithm):
    """Deep Q-Network: Q-learning with replay and a target network, for discrete actions (Mnih et al. 2015)."""

    learning_rate: LearningRate = 1e-4
    _: KW_ONLY
    batch_size: Count = 32
    """Transitions per gradient step."""
    tau: Fraction = 1.0
    """Update rate of the target network at each of its updates, in [0, 1]; 1 copies."""
    train_freq: Becomes[int | tuple[int, str], TrainFreq] = later(4)
    """Steps to collect before each update: n steps of the vectorised environment, or ``(n, "step" | "episode")``."""
    target_update_interval: Count = 10_000
    """Environment steps between two target updates."""
    double: bool = False
    """Double Q-learning: the online network chooses the next action, the target network evaluates it
    (arXiv:1509.06461)."""
    dueling: WithNetworks[bool | Literal["max"]] = False
    """Separate streams for state values and advantages, each with its own last hidden layer (arXiv:1511.06581).
    ``True`` subtracts the mean advantage (eq. 9), ``"max"`` the maximum (eq. 8)."""
    noisy: WithNetworks[bool] = False
    """Replace random actions by learned noise in the weights of the last hidden layer and the output
    (arXiv:1706.10295). It is off in ``predict(..., deterministic=True)``."""
    sigma0: WithNetworks[Positive] = 0.5
    """Initial size of that noise; it is divided by the square root of a layer's number of inputs."""
    munchausen: bool = False
    """Munchausen learning (arXiv:2007.14430): add the scaled log-policy, a softmax of the values, to rewards, and its
    entropy to the target."""
    munchausen_alpha: Fraction = 0.9
    """Weight of the Munchausen bonus."""
    munchausen_temperature: Positive = 0.03
    """Temperature of the softmax policy."""
    munchausen_clip: Annotated[float, Only("a negative number", lambda x: x < 0)] = -1.0
    """Lower bound of the bonus, before it is weighted."""

    made_of: ClassVar[MadeOf] = {"target_clock": TargetClock, "epsilon": NoisyEpsilon, "extensions": Extensions}
    supports_masks: ClassVar[bool] = True
    learner_class: ClassVar[type[Learner]] = DQNLearner
    policies: ClassVar = policy_aliases(ValuePolicy, ValuePolicy)
    action_spaces: ClassVar = (spaces.Discrete,)
    q_net_target = Held("policy.q_net_target")
    """The target Q-network."""
    _n_calls = Held[int]("target_clock.calls")

    card: ClassVar[Card] = Card(
        idea="learn the value of each action, act greedily",
        learns_from="replay",
        search=tune.q_learning(tune.choice("double"), tune.choice("dueling"), tune.epsilon()),
    )
