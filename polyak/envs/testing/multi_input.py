"""A grid world whose cells can only be told apart by two observations together."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

_MAP_SEED = 0  # every instance shows the same vectors and images, so that all share one task


class SimpleMultiObsEnv(gym.Env):
    """Walk along the border of a grid from the first to the last cell.

    The observation is a Dict: a random but fixed vector ``"vec"`` per row and an image ``"img"`` per column. Cells
    are numbered row by row. One can move left and right on the first and last row, up and down on the first and last
    column; any other move does nothing. The reward is 1 at the last cell, where the episode ends, and -0.1 elsewhere.

    Args:
        num_col: number of columns.
        num_row: number of rows.
        random_start: start in any cell but the last (also inside the grid, which cannot be left), instead of in the
            first.
        discrete_actions: actions 0 to 3 are left, down, right, up; false for a Box of 4 numbers in [0, 1], whose argmax
            is the action.
        channel_last: images ``(64, 64, 1)``; false for ``(1, 64, 64)``.

    Raises:
        ValueError: for a grid of fewer than two rows or columns.
    """

    def __init__(
        self,
        num_col: int = 4,
        num_row: int = 4,
        random_start: bool = True,
        discrete_actions: bool = True,
        channel_last: bool = True,
    ):
        if num_col < 2 or num_row < 2:
            raise ValueError(f"num_col and num_row must be at least 2, got {num_col} and {num_row}.")
        self.vector_size = 5
        self.img_size = [64, 64, 1] if channel_last else [1, 64, 64]
        self.random_start = random_start
        self.discrete_actions = discrete_actions
        self.action_space = spaces.Discrete(4) if discrete_actions else spaces.Box(0, 1, (4,))
        self.observation_space = spaces.Dict(
            {
                "vec": spaces.Box(0, 1, (self.vector_size,), dtype=np.float64),
                "img": spaces.Box(0, 255, tuple(self.img_size), dtype=np.uint8),
            }
        )
        self.count = 0
        self.max_count = 100
        self.log = ""
        self.state = 0
        self.action2str = ["left", "down", "right", "up"]
        self.num_col = num_col
        self.num_row = num_row
        self.max_state = num_col * num_row - 1
        self.init_possible_transitions()
        self.init_state_mapping(num_col, num_row)

    def init_state_mapping(self, num_col: int, num_row: int) -> None:
        """Draw the observation of each cell: a vector for its row, an image for its column."""
        rng = np.random.default_rng(_MAP_SEED)
        vectors = rng.random((num_row, self.vector_size))
        images = rng.integers(0, 255, (num_col, *self.img_size), dtype=np.uint8)
        self.state_mapping: list[dict[str, np.ndarray]] = [
            {"vec": vector, "img": image} for vector in vectors for image in images
        ]

    def get_state_mapping(self) -> dict[str, np.ndarray]:
        """The observation in the current cell."""
        return self.state_mapping[self.state]

    def init_possible_transitions(self) -> None:
        """Note from which cells each move leads somewhere."""
        columns, rows = self.num_col, self.num_row
        cells = np.arange(columns * rows).reshape(rows, columns)
        horizontal, vertical = cells[[0, -1], :], cells[:, [0, -1]]
        self.left_possible = horizontal[:, 1:].ravel().tolist()
        self.right_possible = horizontal[:, :-1].ravel().tolist()
        self.down_possible = vertical[:-1, :].T.ravel().tolist()
        self.up_possible = vertical[1:, :].T.ravel().tolist()
        self._moves = (
            (set(self.left_possible), -1),
            (set(self.down_possible), columns),
            (set(self.right_possible), 1),
            (set(self.up_possible), -columns),
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Go to the start."""
        super().reset(seed=seed)
        self.count = 0
        self.log = ""
        self.state = int(self.np_random.integers(self.max_state)) if self.random_start else 0
        return self.get_state_mapping(), {}

    def step(self, action: int | np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Move if there is a way; terminates in the last cell, truncates after more than 100 steps."""
        direction = int(action) if self.discrete_actions else int(np.argmax(action))
        before = self.state
        possible_from, change = self._moves[direction]
        if before in possible_from:
            self.state += change
        self.count += 1
        at_end = self.state == self.max_state
        self.log = f"{self.action2str[direction]}: state {before} -> state {self.state}"
        reward = 1.0 if at_end else -0.1
        return self.get_state_mapping(), reward, at_end, self.count > self.max_count, {"got_to_end": at_end}

    def render(self, mode: str = "human") -> None:
        """Print the record of the last step."""
        print(self.log)
