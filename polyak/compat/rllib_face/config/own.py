"""The translation of the config of a program's own algorithm, which learns from episodes by its own learner, to
polyak's arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.config.base import AlgorithmConfig, Plain
from polyak.compat.rllib_face.config.modules import Networks
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.models.actor_critics import ActorPolicy
from polyak.compat.rllib_face.models.rl_module import TorchRLModule
from polyak.compat.rllib_face.rollouts import ByEpisodes
from polyak.compat.sb3_face.overrides import is_ours
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.declaration import require
from polyak.learning.learner import Learner
from polyak.learning.rollout_learner import OnPolicyLearner
from polyak.parts.part import MadeOf
from polyak.parts.rollouts import Rollouts


class OwnLearner(OnPolicyLearner):
    """The learner behind a program's own learner: it has one optimizer by default."""

    optimized = ("policy",)
    policy: Any
    updates_by_batch = False


class OwnRollouts(ByEpisodes, Rollouts):
    """Stretches of episodes, which the learner is given."""


@dataclass(eq=False, repr=False)
class OwnAlgorithm(OnPolicyAlgorithm):
    """Collects and learns from episodes, under the control of a program's own training step."""

    made_of: ClassVar[MadeOf] = {"rollouts": OwnRollouts}
    learner_class: ClassVar[type[Learner]] = OwnLearner


class NoDefault(TorchRLModule):
    """Stands where an algorithm has a default module."""


def plain_of(config: AlgorithmConfig, turned: bool) -> Plain:
    """See :meth:`~polyak.compat.rllib_face.config.base.AlgorithmConfig.plain`.

    Raises:
        HyperparameterError: no learner with a loss of its own.
    """
    chosen = config._learner_given()
    fix = "give a TorchLearner that writes compute_loss_for_module(): let get_default_learner_class() return it."
    own = isinstance(chosen, type) and issubclass(chosen, TorchLearner) and is_ours(chosen, TorchLearner)
    require(own and bool(chosen.own()), "learner_class", chosen, fix)
    fix = "it collects and learns in its training step: write training_step() of an Algorithm, and name that."
    require(config.steps_itself, "algo_class", config.algo_class, fix)
    networks = Networks(config, NoDefault, (), not_called.OF["preprocessor"])
    envs = config.num_envs_per_env_runner * max(1, config.num_env_runners)
    kwargs = {
        **config._translated(),
        "n_steps": -(-config.total_train_batch_size // envs),
        "policy_kwargs": {**networks.policy_kwargs(turned), "keeps_inputs": True, "remembers": True},
    }
    return Plain(config._algorithm(OwnAlgorithm), ActorPolicy, kwargs)
