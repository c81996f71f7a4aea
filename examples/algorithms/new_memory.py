"""A memory that draws new rows more often than old ones, for every algorithm that replays.

The idea of Wang and Ross 2019, "Boosting Soft Actor-Critic: Emphasizing Recent Experience without Forgetting the Past",
arXiv:1906.04009, without its schedule.
"""

import numpy as np

from polyak import DQN
from polyak.data import Uniform


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


if __name__ == "__main__":
    model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_kwargs={"sampler": Recent(power=2.0)}, seed=0)
    model.learn(20_000)
