"""Rainbow: C51 with double Q-learning, dueling streams, noisy layers, prioritised replay and three-step returns.

Hessel et al. 2018, "Rainbow: Combining Improvements in Deep Reinforcement Learning", arXiv:1710.02298.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import torch

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.c51 import C51, OnAtoms
from polyak.algorithms.dqn import DQN
from polyak.hyperparameters.declaration import Count, LearningRate, Natural
from polyak.learning.learner import OptimizerRecipe
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay


class HalfPrioritised(ExperienceReplay):
    """Replay with the prioritisation exponent of table 1."""

    priorities: ClassVar = {"alpha": 0.5}


@dataclass(eq=False, repr=False)
class Rainbow(OnAtoms, DQN):
    """Rainbow: all extensions of DQN at once, with the settings of its paper's table 1 (arXiv:1710.02298)."""

    learning_rate: LearningRate = 6.25e-5
    _: KW_ONLY
    learning_starts: Natural = 20_000
    """Environment steps of random actions before the first update."""
    target_update_interval: Count = 8_000
    """Environment steps between two target updates."""
    n_steps: Count | tuple[int, int] = 3
    """Rewards summed before bootstrapping (n-step returns); ``(least, most)`` draws a number for each transition."""
    prioritized: bool | dict[str, Any] = True
    """Prioritised replay by the KL divergence of distributions, with importance weights (arXiv:1511.05952). A dict
    changes settings, as for :class:`DQN`; ``True`` takes ``alpha=0.5``."""
    double: bool = True
    """Double Q-learning: the online network chooses the next action, the target network evaluates it
    (arXiv:1509.06461)."""
    dueling: bool | Literal["max"] = True
    """Separate streams for state values and advantages, each with its own last hidden layer (arXiv:1511.06581).
    ``True`` subtracts the mean advantage (eq. 9), ``"max"`` the maximum (eq. 8)."""
    noisy: bool = True
    """Replace random actions by learned noise in the weights of the last hidden layer and the output
    (arXiv:1706.10295). It is off in ``predict(..., deterministic=True)``."""

    made_of: ClassVar[MadeOf] = {"replay": HalfPrioritised}
    policies: ClassVar = C51.policies

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.Adam, {"eps": 1.5e-4})

    card: ClassVar[Card] = Card(
        idea="all of DQN's extensions at once",
        learns_from="replay",
        search=Search(tune.q_learning(), tune.one_of("n_atoms", [21, 51, 101]), tune.uniform("sigma0", 0.1, 1.0)),
    )
