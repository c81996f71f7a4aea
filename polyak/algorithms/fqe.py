"""Fitted Q Evaluation (FQE).

Le, Voloshin and Yue 2019, "Batch Policy Learning under Constraints", arXiv:1903.08738. Algorithm numbers refer to it;
its costs are rewards here, and each of its regressions is a series of gradient steps towards target critics.

Shapes: B batch rows, K critics, M actions in a state, A action dimensions or discrete actions.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithm import Algorithm
from polyak.algorithm_info import Card
from polyak.arrays import Flags, Memory, Predicted, mapped
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.exporting import not_exported
from polyak.checkpoint.saved import Saved, prefixed
from polyak.envs.normalisation_scale import shown_to
from polyak.evaluation.off_policy.estimate import Estimate, of_episodes
from polyak.evaluation.off_policy.importance_sampling import initial_observations
from polyak.evaluation.off_policy.log_probs import BATCH, slices
from polyak.evaluation.off_policy.policy_actions import can_act, choices_of
from polyak.experience import Column, Dataset, Transition
from polyak.experience.batch import ArrayObs
from polyak.experience.datasets.episodes import Parts, count
from polyak.fields.offline import OfflineAlgorithm
from polyak.hyperparameters.changing import Fixed, Reload, WithNetworks
from polyak.hyperparameters.declaration import Count, Fraction, Only, require
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.evaluation import EvaluationPolicy
from polyak.ops.updates import polyak_update
from polyak.parts.part import of_policy
from polyak.parts.replay import DatasetReplay
from polyak.seeding import random_states_kept
from polyak.warning import advise

CHOICES = "next_choices"
"""The column with the evaluated policy's actions in each successor state."""

# -- losses ------------------------------------------------------------------------------------------------------------


def bellman_target(rewards: Tensor, discounts: Tensor, next_values: Tensor) -> Tensor:
    """y_k = r + gamma E[Q_k(s', a'), a' ~ pi(s')], algorithm 3. rewards, discounts [B]; next_values [K, B] -> [K, B]

    Each critic has its own target. Discounts are 0 if s' is terminal, and gamma if the episode was truncated.
    """
    return rewards + discounts * next_values


def regression_loss(q: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """sum_k E[(Q_k(s, a) - y_k)^2], algorithm 3. q [K, B], target [K, B], weights [B] -> []"""
    return (weights * (q - target) ** 2).mean(1).sum()


# -- one gradient step -------------------------------------------------------------------------------------------------


class FQELearner(Learner):
    """Critics and their target networks."""

    optimized = ("critic",)
    policy: EvaluationPolicy
    tau: Tunable[Tensor]
    target_update_interval: Tunable[int]

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step, then updates the targets."""
        self.steps += 1
        update: Update = self.run(self.gradient_step, batch, self.steps % self.target_update_interval == 0)
        return update

    def gradient_step(self, batch: Transition, update_target: bool) -> Update:
        """Makes a step of the regression in algorithm 3."""
        target = self.td_target(batch)
        critic = self.critic_objective(batch, self.estimates(batch), target)
        self.minimise("critic", critic.loss)
        if update_target:
            polyak_update(self.policy.critic, self.policy.critic_target, self.tau)
        metrics = {"critic_loss": critic.loss.detach(), "mean_value": target.mean()}
        return Update({**metrics, **critic.metrics}, critic.td_error)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns the target Q-values. -> [K, B]"""
        policy = self.policy
        next_values = policy.values(policy.critic_target, batch.next_observations, batch.extras[CHOICES])
        return bellman_target(batch.rewards, batch.discounts, next_values)

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' Q-values of the recorded actions. -> [K, B]"""
        return self.policy.q_values(self.policy.critic, batch.observations, batch.actions)

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. q [K, B] of the recorded actions, target [K, B]"""
        return Objective(regression_loss(q, target, batch.weights), td_error=(q - target).detach().abs().mean(0))


# -- hyper-parameters --------------------------------------------------------------------------------------------------

CHOSEN = Fixed("the dataset holds its choices. Make a new model.")
Target = Annotated[Any, Only("a model, anything else with predict(), or a function", can_act)]


class Choices(DatasetReplay):
    """Replays a dataset with the evaluated policy's actions in each state."""

    initial: tuple[Any, np.ndarray] | None = None
    """The first observations of the dataset's episodes, and the policy's actions there."""
    _shape: tuple[int, ...] = ()
    """Shape of the policy's actions in one state, for a Box."""

    def columns(self) -> tuple[Column, ...]:
        return (Column(CHOICES, np.float32, self._shape),)

    def read_dataset(self) -> None:
        model, data = self.model, self.memory.dataset
        assert data is not None
        theirs = getattr(model.target, "action_space", data.action_space)
        fix = f"the policy acts in {theirs}, the dataset in {data.action_space}. Use dataset.for_env(env)."
        require(theirs == data.action_space, "target", model.target, fix)
        choices = self.choices_in(data.observations)
        self._shape = choices.shape[1:]
        is_first, is_last = np.zeros((2, count(data.observations)), bool)
        is_first[data.starts + np.arange(data.n_episodes)] = is_last[data.ends + np.arange(data.n_episodes)] = True
        self.initial = initial_observations(data), choices[is_first]
        columns = {**data.columns, CHOICES: choices[~is_first]}
        parts = Parts(data.observations, data.actions, data.rewards, data.ends, data.terminated, columns)
        extended = Dataset.from_parts(parts, data.observation_space, data.action_space, data.env_id)
        self.memory.recorded = self.make(len(data), n_envs=1)
        self.memory.recorded.fill(extended, model.policy.codec.from_env, self.rewards)

    def choices_in(self, observations: ArrayObs) -> np.ndarray:
        """Returns the policy's actions in N states, in the critics' units: [N, M, A], or probabilities [N, A]."""
        model = self.model
        model._check_target()
        found = choices_of(model.target, observations, model.action_space, model.n_samples, model.deterministic)
        if isinstance(model.action_space, spaces.Discrete):
            return found
        codes: np.ndarray = model.policy.codec.from_env(found)
        return codes.reshape(*found.shape[:2], -1).astype(np.float32)


@dataclass(eq=False, repr=False)
class FQE(OfflineAlgorithm):
    """Fitted Q Evaluation: the value of a given policy, from a dataset that other policies recorded (arXiv:1903.08738).

    The policy's actions in every state of the dataset are computed once, at construction, and never change;
    :meth:`predict` returns its actions. A model's file holds the policy if it is a model of polyak's; others must be
    passed again: ``FQE.load(path, target=...)``. The critics' values need neither.
    """

    _: KW_ONLY
    gamma: Fraction = 0.99
    """Discount factor, in [0, 1]."""
    prioritized: Reload[bool | dict[str, Any]] = False
    """Prioritised replay by temporal-difference error, with importance weights (arXiv:1511.05952). A dict sets
    ``kind``, ``alpha``, ``beta``, ``final_beta`` and ``eps``, as for :class:`~polyak.DQN`."""
    target: Annotated[Target | None, CHOSEN] = None
    """The policy to evaluate: a model, another object with ``predict``, or a function of one observation."""
    deterministic: Annotated[bool, CHOSEN] = False
    """Evaluate its most likely actions, as ``evaluate_policy`` does, instead of its distribution. For discrete actions,
    a policy without probabilities is always evaluated by its deterministic actions."""
    n_samples: Annotated[Count, CHOSEN] = 4
    """Continuous actions of a stochastic policy that are sampled in each state, to average their values."""
    n_critics: WithNetworks[Count] = 1
    """Number of critics, each with its own target: their spread shows the uncertainty that the data leave."""
    tau: Fraction = 0.02
    """Update rate of the target networks, in [0, 1]; 1 copies. Values propagate along episodes within about 1 / (tau (1
    - gamma)) gradient steps: train for several times as many."""
    target_update_interval: Count = 1
    """Gradient steps between two target updates."""

    made_of: ClassVar[dict[str, Any]] = {"replay": Choices, "network": of_policy("n_critics")}
    learner_class: ClassVar[type[Learner]] = FQELearner
    policies: ClassVar = policy_aliases(EvaluationPolicy)
    action_spaces: ClassVar = (spaces.Box, spaces.Discrete)
    replay = cast(Choices, None)  # a part, no hyper-parameter
    critic = Held("policy.critic")
    """The critic networks."""
    critic_target = Held("policy.critic_target")
    """The target critics."""

    acting_graph = not_exported("it evaluates a policy and has none of its own. Export the model that it evaluates")

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        shifts = self.reward_scaling in ("standard", "range") or (
            isinstance(self.reward_scaling, tuple | list) and self.reward_scaling[1] != 0
        )
        fix = "values could not be given in units of the rewards, since it subtracts. Use 'returns' or (scale, 0)."
        require(not shifts, "reward_scaling", self.reward_scaling, fix)

    # -- the dataset, and what the policy does in it -------------------------------------------------------------------

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Raises an error: in an environment a policy's return can be measured without an estimate."""
        require(False, "env", env, "FQE learns from a dataset alone. Play episodes: polyak.evaluation.evaluate.")

    def _check_ready(self) -> None:
        require(self.dataset is not None, "env", None, "pass a dataset: FQE.load(path, env=dataset, target=policy).")
        super()._check_ready()

    def _check_target(self) -> None:
        require(self.target is not None, "target", None, "pass the policy to evaluate: a model, or a function.")

    # -- estimates -----------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: Memory = None,
        episode_start: Flags = None,
        deterministic: bool = False,
        *,
        action_masks: Flags = None,
    ) -> Predicted:
        """Returns the action of the evaluated policy; arguments and result as of its own ``predict``.

        Raises:
            HyperparameterError: the policy is unknown, since it was not in the file.
        """
        self._check_target()
        target: Any = self.target
        if not hasattr(target, "predict"):
            return target(observation), state
        more = {} if action_masks is None else {"action_masks": action_masks}
        return target.predict(observation, state, episode_start, deterministic, **more)

    def as_shown(self, observations: Any) -> Any:
        """Converts observations of an environment without wrappers to those that the evaluated policy takes."""
        return shown_to(self.target, observations)

    def q_values(self, observations: ArrayObs, actions: np.ndarray) -> np.ndarray:
        """Returns each critic's Q-values of actions in N states, under the evaluated policy from then on.

        Args:
            observations: [N, ...] as the environment gives them.
            actions: [N, ...] in the environment's units.

        Returns:
            [K, N] float64, in units of the dataset's rewards.
        """
        codes = np.asarray(self.policy.codec.from_env(np.asarray(actions)))
        return self._asked("q_values", observations, codes.reshape(len(codes), -1))

    def values(self, observations: ArrayObs) -> np.ndarray:
        """Returns each critic's values of N states under the evaluated policy: [N, ...] -> [K, N] float64."""
        return self._asked("values", observations, self.replay.choices_in(observations))

    @torch.no_grad()
    def _asked(self, question: str, observations: ArrayObs, about: np.ndarray) -> np.ndarray:
        policy = self.policy
        policy.set_training_mode(False)
        answers = []
        for at in slices(len(about), BATCH):
            seen = policy.obs_to_tensor(mapped(lambda array, at=at: array[at], observations))[0]
            chosen = torch.as_tensor(about[at], dtype=torch.float32, device=self.device)
            answers.append(getattr(policy, question)(policy.critic, seen, chosen).double().numpy(force=True))
        return np.concatenate(answers, 1) / self.reward_affine[0]

    def estimate(self, dataset: Dataset | None = None, *, confidence: float = 0.95) -> Estimate:
        """Returns an estimate of the policy's discounted return from the initial states of the data.

        Args:
            dataset: episodes other than those it was trained on; ``None``: those.
            confidence: level of the interval. It covers the sampling of initial states, not errors of the critics, as a
                warning says: compare those by ``n_critics``.

        Raises:
            ValueError: there is no dataset, or ``confidence`` is not in (0, 1).
        """
        if dataset is not None:
            values = self.values(initial_observations(dataset))
        else:
            fix = "this model has no dataset of its own: pass one, or FQE.load(path, env=dataset)."
            require(self.replay.initial is not None, "dataset", None, fix)
            assert self.replay.initial is not None
            values = self._asked("values", *self.replay.initial)
        by_critic = tuple(values.mean(1).tolist()) if len(values) > 1 else ()
        advise(
            "intervals of fitted Q evaluation",
            "the interval of FQE.estimate() stands for the choice of first states alone. Errors of its critics are not "
            "in it: train with n_critics=5 and compare Estimate.by_critic.",
        )
        return of_episodes(values.mean(0), confidence, by_critic=by_critic)

    # -- files ---------------------------------------------------------------------------------------------------------

    def hyperparameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().hyperparameters().items() if name != "target"}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if isinstance(self.target, Algorithm) and _is_ours(self.target):
            inner = checkpoint.taken(self.target)
            saved.info["target"] = inner.info
            for part in _PARTS:
                saved.state |= prefixed(f"target/{part}", getattr(inner, part))

    def _enter(self, saved: Saved, env: Any) -> None:
        super()._enter(saved, env)
        if self.target is None and "target" in saved.info:
            from polyak.algorithms import class_names, get

            inner = Saved(saved.info["target"])
            for part in _PARTS:
                setattr(inner, part, saved.state_of(f"target/{part}"))
            with random_states_kept():
                cls = get(class_names()[inner.info["algorithm"]])
                self.target = checkpoint.built(cls, inner, "target", checkpoint.LoadRequest(device=self.device))

    card: ClassVar[Card] = Card(idea="what a given policy would earn", learns_from="a dataset", needs="target")


_PARTS = "networks", "optimizers", "state"


def _is_ours(model: Algorithm) -> bool:
    """Whether a model's file can be read without the user's own code."""
    from polyak.algorithms import class_names, get

    name = class_names().get(type(model).__name__)
    return name is not None and get(name) is type(model)
