"""Decision Transformer.

Chen, Lu, Rajeswaran, Lee, Grover, Laskin, Abbeel, Srinivas and Mordatch 2021, "Decision Transformer: Reinforcement
Learning via Sequence Modeling", arXiv:2106.01345. Without value functions or dynamic programming: a sequence model
predicts actions from the history and the return-to-go. To act, it is conditioned on a high return.

Sequences begin at steps drawn uniformly from all, so that episodes are drawn in proportion to their lengths (algorithm
1). Sequences that reach beyond the end of their episode are padded at the end, which causal attention ignores.

Shapes: B sequences, L steps, A action dimensions. Continuous actions are in units of the action space scaled to
[-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.arrays import Predicted
from polyak.experience import Dataset, Transition
from polyak.experience.sampling.reduce import Sequence
from polyak.experience.schema import Column
from polyak.fields.offline import OfflineAlgorithm, RewardScaling
from polyak.hyperparameters.changing import WithDataset, WithNetworks
from polyak.hyperparameters.declaration import (
    Becomes,
    Count,
    LearningRate,
    Natural,
    NonNegative,
    Only,
    Positive,
    later,
)
from polyak.hyperparameters.held import Held
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, LearnerRecipe, Objective, OptimizerRecipe, Tunable, Update, set_rate
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.export.ports import Graph
from polyak.nn.policies.decision_transformer import DecisionTransformerPolicy
from polyak.parts.part import MadeOf, of_policy
from polyak.parts.replay import DatasetReplay

# -- losses ------------------------------------------------------------------------------------------------------------


def squared_error(actions: Tensor, recorded: Tensor, valid: Tensor) -> Tensor:
    """E[mean_j (a_j - pi_j)^2] over valid steps, algorithm 1.

    both actions [B, L, A], valid [B, L] -> []
    """
    return _mean_of(((actions - recorded) ** 2).mean(2), valid)


def negative_log_likelihood(log_prob: Tensor, valid: Tensor) -> Tensor:
    """-E[log pi(a)] over valid steps, section 3.

    log_prob [B, L] of recorded actions, valid [B, L] -> []
    """
    return -_mean_of(log_prob, valid)


def _mean_of(values: Tensor, valid: Tensor) -> Tensor:
    return (values * valid).sum() / valid.sum()


# -- one gradient step -------------------------------------------------------------------------------------------------


class DecisionTransformerLearner(Learner):
    """A sequence model of actions, with warm-up of its learning rate."""

    optimized = ("policy",)
    policy: DecisionTransformerPolicy
    max_grad_norm: Tunable[Tensor | None]
    warmup_steps: Tunable[int]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.first_rate = recipe.lr

    def update(self, batch: Transition) -> Update:
        """Makes a gradient step on sequences."""
        self.steps += 1
        if self.steps <= self.warmup_steps:
            rate = self.tunables.get("learning_rate", self.first_rate)
            set_rate(self.optimizers["policy"], rate * self.steps / self.warmup_steps)
        update: Update = self.run(self.gradient_step, batch)
        return update

    def gradient_step(self, batch: Transition) -> Update:
        """Makes a gradient step towards the recorded actions, algorithm 1."""
        columns, actions = batch.extras, batch.actions
        outputs = self.policy(batch.observations, actions, columns["returns_to_go"], columns["timesteps"])
        objective = self.objective(batch, outputs)
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update({"loss": objective.loss.detach(), **objective.metrics})

    def objective(self, batch: Transition, outputs: Tensor) -> Objective:
        """Returns the loss of the policy's outputs at each step: actions [B, L, A] for a Box, otherwise logits [B, L,
        N]"""
        actions, valid = batch.actions, batch.valid
        assert valid is not None
        if self.policy.continuous:
            return Objective(squared_error(outputs, actions, valid))
        chosen = actions.flatten(0, 1)
        log_prob = self.policy.distribution(outputs.flatten(0, 1)).log_prob(chosen[:, 0] if self._one else chosen)
        return Objective(negative_log_likelihood(log_prob.unflatten(0, valid.shape), valid))

    @property
    def _one(self) -> bool:
        """Whether an action is a single choice."""
        return not self.policy.codec.shape


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class SequenceReplay(DatasetReplay):
    """Draws sequences of a dataset, with their returns-to-go."""

    def attach(self, env: Any) -> bool:
        taken, model = super().attach(env), self.model
        if taken:
            returns = env.returns_to_go(model.gamma)
            if model.target_return is None:
                model.target_return = float(returns[env.starts].max())
            if model.return_scale is None:
                model.return_scale = float(np.abs(returns).max()) or 1.0
            if model.max_episode_steps is None:
                model.max_episode_steps = int(env.lengths.max())
        return taken

    def columns(self) -> tuple[Column, ...]:
        return Column("returns_to_go", np.float32), Column("timesteps", np.int64)

    def options(self) -> dict[str, Any]:
        return {"reduce": Sequence(self.model.context_length)}

    def least_rows(self, dataset: Dataset) -> int:
        return max(len(dataset), self.model.context_length)

    def with_columns(self, dataset: Dataset) -> Dataset:
        returns = dataset.returns_to_go(self.model.gamma) / self.model.return_scale
        return dataset.with_columns({"returns_to_go": returns, "timesteps": dataset.timesteps})


@dataclass(eq=False, repr=False)
class DecisionTransformer(OfflineAlgorithm):
    """Decision Transformer: a sequence model of actions that is conditioned on a return (arXiv:2106.01345).

    :meth:`predict` keeps the last steps as its ``state``, like a recurrent policy. The return to ask for should
    decrease by each reward, which :meth:`predict` does not get; ``state = model.with_rewards(state, rewards)`` passes
    it on. ``evaluate_policy``, its callback and ``polyak enjoy`` do so; without it, the model keeps asking for the
    whole return.

    ``policy_kwargs`` set the size of the network: ``width``, ``n_layers``, ``n_heads``, ``dropout``, ``activation_fn``.
    The optimizer is AdamW with a weight decay of 1e-4.
    """

    learning_rate: LearningRate = 1e-4
    """Step size of the optimizer: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    batch_size: Count = 64
    """Sequences per gradient step."""
    gamma: WithDataset[Annotated[float, Only("a number in (0, 1]", lambda x: 0 < x <= 1)]] = 1.0
    """Discount factor of returns-to-go; the authors use none, which is 1."""
    context_length: WithNetworks[Count] = 20
    """Largest number of steps that an action is predicted from, including its own, K."""
    target_return: Becomes[float | None, float] = later(None)
    """Return to condition on, in the environment's units; ``None``: the best in the dataset. It may be changed at any
    time before an episode."""
    return_scale: WithDataset[Becomes[Positive | None, float]] = later(None)
    """Divisor of returns before the network reads them; ``None``: the largest magnitude of a return-to-go in the
    dataset."""
    max_episode_steps: WithNetworks[Becomes[Count | None, int]] = later(None)
    """Number of distinct time steps in an episode; later ones count as the last. ``None``: the length of the longest
    episode in the dataset."""
    warmup_steps: Natural = 10_000
    """Gradient steps over which the learning rate rises from 0."""
    max_grad_norm: NonNegative | None = 0.25
    """Largest global gradient norm, above which gradients are scaled down; ``None``: no clipping."""

    # it draws sequences, whose returns it scales by return_scale
    replay_buffer_kwargs: Settled[None] = None
    reward_scaling: Settled[RewardScaling] = "none"
    made_of: ClassVar[MadeOf] = {"replay": SequenceReplay, "network": of_policy("context_length", "max_episode_steps")}
    learner_class: ClassVar[type[Learner]] = DecisionTransformerLearner
    policies: ClassVar = policy_aliases(DecisionTransformerPolicy)
    action_spaces: ClassVar = SINGLE_SPACES
    transformer = Held("policy.transformer")
    """The transformer network."""

    # -- the policy ----------------------------------------------------------------------------------------------------

    def _after_setup(self) -> None:
        super()._after_setup()
        self._ask()

    def _ask(self) -> None:
        policy: Any = self.policy
        policy.ask(self.target_return / self.return_scale)

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.AdamW, {"weight_decay": 1e-4})

    def acting_graph(
        self, masks: bool | None = None, channels_last: bool | None = None, stochastic: bool = False
    ) -> Graph:
        self._ask()
        graph = super().acting_graph(masks, channels_last, stochastic)
        graph.about = {"return_scale": self.return_scale, "gamma": self.gamma}  # read by with_rewards()
        return graph

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Predicted:
        self._ask()
        return super().predict(observation, *args, **kwargs)

    predict.__doc__ = OfflineAlgorithm.predict.__doc__

    def with_rewards(self, state: tuple[np.ndarray, ...] | None, rewards: Any) -> tuple[np.ndarray, ...] | None:
        """Returns the ``state`` that :meth:`predict` returned, updated by the rewards of its actions.

        Args:
            state: of N environments, or of one.
            rewards: [N], or a number, in the environment's units.

        Returns:
            the state to pass to :meth:`predict` next.
        """
        policy: Any = self.policy
        scaled = np.asarray(rewards, np.float64) / self.return_scale
        return None if state is None else policy.state_after(state, scaled, self.gamma)

    card: ClassVar[Card] = Card(
        idea="a sequence model of actions, asked for a return",
        learns_from="a dataset",
        search=Search(
            tune.of_policy(tune.power_of_two("width", 32, 256)),
            tune.of_policy(tune.whole("n_layers", 1, 4)),
            tune.of_policy(tune.uniform("dropout", 0.0, 0.3)),
            tune.rate(),
            tune.power_of_two("batch_size", 64, 1024),
            tune.one_of("context_length", [5, 10, 20, 50]),
        ),
        title="Decision Transformer",
    )
