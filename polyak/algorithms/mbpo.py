"""Model-Based Policy Optimization (MBPO): SAC that learns mostly from short rollouts of a learned model.

Janner, Fu, Zhang and Levine 2019, "When to Trust Your Model: Model-Based Policy Optimization", arXiv:1906.08253,
algorithm 2. What is imagined, and how it is replayed, is of
:class:`~polyak.algorithms.model_based.imagining.Imagining`, which stands before any other off-policy algorithm as well.

What differs from the paper: terminations are learned, unless a function says which they are; a fit is stopped by the
likelihood of the holdout; outputs of the model are standardised.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from polyak.algorithms.model_based.imagining import Imagining
from polyak.algorithms.sac import SAC
from polyak.cards import Card, Search, tune
from polyak.hyperparameters.declaration import Natural
from polyak.kinds.off_policy import GradientSteps


@dataclass(eq=False, repr=False)
class MBPO(Imagining, SAC):
    """SAC that learns mostly from short rollouts of a learned model of the environment (arXiv:1906.08253).

    Observations are a Box of real numbers. Any off-policy algorithm with continuous actions can imagine: a class of
    your own begins with ``class ImaginingTD3(Imagining, polyak.TD3)``.
    """

    _: KW_ONLY
    learning_starts: Natural = 1_000
    """Environment steps of random actions before the first update."""
    gradient_steps: GradientSteps = 20
    """Gradient steps per update; -1 makes as many as transitions were collected."""

    @classmethod
    def trial(cls) -> dict[str, Any]:
        model = {"model_freq": 20, "model_gradient_steps": 10, "model_batch_size": 16}
        small = {"gradient_steps": 2, "n_rollouts": 20, "rollout_length": 2, "imagined_size": 100, "real_share": 0.25}
        return {
            **super().trial(),
            **model,
            **small,
            "model_kwargs": {"net_arch": [8, 8], "n_members": 3, "n_elites": 2},
        }

    card: ClassVar[Card] = Card(
        idea="SAC from short rollouts of an ensemble of models that is learned",
        learns_from="replay, and a model",
        reference="arXiv:1906.08253",
        search=Search(
            tune.rate(),
            tune.discount(),
            tune.replay(),
            tune.one_of("gradient_steps", [1, 5, 10, 20, 40]),
            tune.soft_target(),
            tune.uniform("real_share", 0.0, 0.5),
            tune.whole("rollout_length", 1, 10),
            tune.one_of("model_freq", [100, 250, 1_000], 0.2),
            tune.network(widest=512),
        ),
        settings="mbpo.yml",
    )
