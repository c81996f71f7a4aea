"""A memory that draws new rows more often than old ones: for every algorithm that replays, and DQN with it.

The idea of Wang and Ross 2019, "Boosting Soft Actor-Critic: Emphasizing Recent Experience without Forgetting the Past",
arXiv:1906.04009, without its schedule.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from polyak import DQN, custom
from polyak.experience import Uniform


class Recent(Uniform):
    """Draws rows of age ``N u**power``, of N rows, u uniform in [0, 1).

    A power of 1 draws all alike, one of 2 a row of half the age 1.4 times as often.
    """

    adaptive = True  # so that it hears of new rows

    def __init__(self, power: float = 2.0) -> None:
        super().__init__()
        self.power, self.newest = power, 0

    def include(self, cells: np.ndarray) -> None:
        self.newest = int(cells[-1])

    def draw(self, batch_size, filled, eligible=None):
        """Cells [batch_size] of the first ``filled`` of the ring, and no weights of their losses."""
        if eligible is not None:
            raise ValueError("Recent draws any row: it does not go with hindsight. Leave HerReplayBuffer out.")
        ages = (filled * self.rng.random_sample(batch_size) ** self.power).astype(np.int64)
        return (self.newest - ages) % filled, None

    def state_dict(self) -> dict:
        return {**super().state_dict(), "newest": self.newest}

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self.newest = int(state["newest"])


class RecentReplay(custom.ExperienceReplay):
    """The part of a model that replays, with that memory."""

    def options(self) -> dict:
        return {**super().options(), "sampler": Recent(self.model.recency)}


@dataclass(eq=False, repr=False)
class RecentDQN(DQN):
    """DQN that prefers what is new."""

    _: KW_ONLY
    recency: custom.Reload[custom.Positive] = 2.0
    """How much: 1 draws all rows alike."""

    made_of: ClassVar = {"replay": RecentReplay}


custom.register(RecentDQN)

if __name__ == "__main__":
    RecentDQN("MlpPolicy", "CartPole-v1", seed=0).learn(20_000)
