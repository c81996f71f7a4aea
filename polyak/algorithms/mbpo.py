"""Model-Based Policy Optimization (MBPO): SAC that learns mostly from short rollouts of a learned model.

Janner, Fu, Zhang and Levine 2019, "When to Trust Your Model: Model-Based Policy Optimization", arXiv:1906.08253,
algorithm 2. Imagined rollouts and their replay are in :class:`~polyak.algorithms.model_based.imagining.Imagining`,
which can be combined with any other off-policy algorithm as well.

Differences from the paper: terminations are learned unless a function gives them; a fit is stopped by the likelihood of
a holdout set; outputs of the model are standardised.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from polyak.algorithm_info import Card, tune
from polyak.algorithms.model_based.imagining import Imagining
from polyak.algorithms.sac import SAC
from polyak.fields.off_policy import GradientSteps
from polyak.hyperparameters.declaration import Natural


@dataclass(eq=False, repr=False)
class MBPO(Imagining, SAC):
    """SAC that learns mostly from short rollouts of a learned model of the environment (arXiv:1906.08253).

    Observations are a Box of real numbers. Any off-policy algorithm with continuous actions can use imagined steps:
    begin a class of your own with ``class ImaginingTD3(Imagining, polyak.TD3)``.
    """

    _: KW_ONLY
    learning_starts: Natural = 1_000
    """Environment steps of random actions before the first update."""
    gradient_steps: GradientSteps = 20
    """Gradient steps per update; -1 makes as many as transitions were collected."""

    card: ClassVar[Card] = Card(
        idea="SAC from short rollouts of an ensemble of models that is learned",
        learns_from="replay, and a model",
        refuses=("memory", "replay_buffer_class"),
        observations='a Box of floats (`"MlpPolicy"`)',
        search=tune.actor_critic(
            tune.uniform("real_share", 0.0, 0.5),
            tune.whole("rollout_length", 1, 10),
            tune.one_of("model_freq", [100, 250, 1_000], 0.2),
            how_often=tune.one_of("gradient_steps", [1, 5, 10, 20, 40]),
        ),
    )
