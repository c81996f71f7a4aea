"""Adversarial Inverse Reinforcement Learning (AIRL).

Fu, Luo and Levine 2018, "Learning Robust Rewards with Adversarial Inverse Reinforcement Learning", arXiv:1710.11248.
Sections and algorithms refer to this paper.

Shapes: B rows of a minibatch, half of them demonstrations.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.algorithm_info import Card
from polyak.algorithms.gail import GAILLearner
from polyak.algorithms.imitation.adversarial import AdversarialImitation
from polyak.algorithms.imitation.reward import RewardFunction, scored
from polyak.algorithms.imitation.rounds import Comparison
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Learner
from polyak.nn.networks.rewards import ShapedRewardNet
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.categorical import CategoricalActor
from polyak.nn.policies.continuous import SquashedGaussianActor
from polyak.nn.policies.recurrent import RecurrentActorCriticPolicy

WIDEST = 0.999
"""Largest magnitude of a squashed action: at the bounds, where demonstrations often lie, the density of a squashed
Gaussian is 0 or infinite."""

# -- losses ------------------------------------------------------------------------------------------------------------


def discriminator_logits(f: Tensor, log_probs: Tensor) -> Tensor:
    """Returns log D - log(1 - D) = f(s, a, s') - log pi(a|s), where D = exp f / (exp f + pi), section 4. Both [B] ->
    [B]

    This is also the generator's reward: algorithm 1.
    """
    return f - log_probs


# -- one gradient step -------------------------------------------------------------------------------------------------


class AIRLLearner(GAILLearner):
    """A discriminator from a potential-shaped reward and the generator's own density."""

    def logits(self, outputs: Tensor, batch: Comparison) -> Tensor:
        """Returns f minus the generator's log-density of the action. outputs [B] -> [B]"""
        return discriminator_logits(outputs, batch.log_probs)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class AIRL(AdversarialImitation):
    """AIRL: a learned reward that is separated from the environment's dynamics (arXiv:1710.11248).

    The discriminator is f(s, a, s') - log pi(a|s) with f = g + gamma h(s') - h(s); ``potential_arch`` in
    ``reward_kwargs`` sets the widths of h. The generator learns from the discriminator; :attr:`reward` is g alone, from
    which other agents can learn.
    """

    _: KW_ONLY
    use_action: bool = False
    """Whether the reward g depends on the action. A reward of the state alone can be separated from the potential, and
    stays valid under other dynamics (section 5)."""

    learner_class: ClassVar[type[Learner]] = AIRLLearner

    def _check_built(self) -> None:
        super()._check_built()
        fix = "AIRL needs the density of demonstrated actions, which {} does not give. Use {}."
        stochastic = _actor(self.policy) is not None
        name = type(self.policy).__name__
        others = "a generator with a stochastic actor, such as 'ppo' or 'sac'"
        require(stochastic, "generator", self._generator_choice, fix.format(name, others))
        is_recurrent = isinstance(self.policy, RecurrentActorCriticPolicy) or self.policy.recurrence is not None
        fix = fix.format("a memory", "a policy without memory")
        require(not is_recurrent, "policy_kwargs", self.policy_kwargs, fix)

        self._check_masks()

    def _check_ready(self) -> None:
        super()._check_ready()
        self._check_masks()

    def _check_masks(self) -> None:
        """Refuse action masks; masks in infos are known only after a reset."""
        masked = self.generator.runner is not None and self.generator.runner.env.masked
        fix = "the density of demonstrated actions is not known where masks forbid some. Use GAIL."
        require(not masked, "env", self.env, fix)

    def make_policy(self) -> Callable[[], Any]:
        """Returns a picklable recipe of the reward network; the generator has the policy."""
        arguments = {"gamma": getattr(self.generator, "gamma", 1.0), **self._network_arguments()}
        return partial(ShapedRewardNet, self.observation_space, self.action_space, **arguments)

    @property
    def reward(self) -> RewardFunction:
        """The learned reward g, without potential."""
        network: Any = self.learner.policy
        arguments = {name: value for name, value in self._network_arguments().items() if name != "potential_arch"}
        return RewardFunction(network.reward, "logit", arguments)

    @torch.no_grad()
    def _rewards(self, observations: Any, actions: Any, next_observations: Any, terminated: Any) -> np.ndarray:
        f = scored(self.learner.policy, observations, actions, next_observations, terminated)
        log_probs = self._log_probs(observations, actions).to(f.device)
        return discriminator_logits(f, log_probs).numpy(force=True)

    @torch.no_grad()
    def _log_probs(self, observations: Any, actions: np.ndarray) -> Tensor:
        """Returns log-densities [B] of actions [B, ...] in the environment's units, demonstrated or generated, under
        the current generator and in the units of its network."""
        policy, normalizer = self.policy, self.generator.get_vec_normalize_env()
        if normalizer is not None:
            observations = normalizer.normalize_obs(observations)
        taken = np.reshape(policy.codec.from_env(actions), (len(actions), -1))
        distribution = _actor(policy).get_distribution(policy.obs_to_tensor(observations)[0])
        tensor = torch.as_tensor(taken, device=policy.device)
        if policy.codec.squash or isinstance(_actor(policy), SquashedGaussianActor):
            tensor = tensor.clamp(-WIDEST, WIDEST)
        if isinstance(_actor(policy), CategoricalActor):
            tensor = tensor.flatten()
        elif isinstance(policy, ActorCriticPolicy):
            return policy.log_prob_of(tensor.reshape(len(tensor), *policy.codec.shape), distribution)
        return distribution.log_prob(tensor)

    card: ClassVar[Card] = Card(
        idea="GAIL's reward in a form that outlives the dynamics that it was learned in",
        learns_from="demonstrations, and acting",
        needs="demonstrations",
    )


def _actor(policy: Any) -> Any:
    """Returns the module with the distribution of a policy's actions; None if there is none."""
    actor = policy if isinstance(policy, ActorCriticPolicy) else getattr(policy, "actor", None)
    return actor if hasattr(actor, "get_distribution") else None
