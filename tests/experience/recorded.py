"""Random episodes as a plain list of steps, and the datasets that hold them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.experience import Dataset, Transitions

ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
_BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)
_GOAL = spaces.Box(0, 4, (1,), np.float32)
OBSERVED: dict[str, spaces.Space] = {
    "box": _BOX,
    "discrete": spaces.Discrete(1000),
    "goal": spaces.Dict({"observation": _BOX, "achieved_goal": _GOAL, "desired_goal": _GOAL}),
    "mixed": spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (2, 6, 5), np.uint8),
            "vector": _BOX,
            "kind": spaces.Discrete(5),
            "bits": spaces.MultiBinary(3),
        }
    ),
}


@dataclass
class Told:
    """Steps of one kind of observations, one dict each, in the order of the episodes that they belong to."""

    kind: str
    rows: list[dict[str, Any]]
    lengths: list[int] = field(init=False)
    terminated: list[bool] = field(init=False)
    by_action: dict[bytes, int] = field(init=False)

    def __post_init__(self) -> None:
        ends = [i + 1 for i, row in enumerate(self.rows) if row["terminated"] or row["truncated"]]
        self.lengths = np.diff([0, *ends]).tolist()
        self.terminated = [self.rows[end - 1]["terminated"] for end in ends]
        self.by_action = {row["action"].tobytes(): i for i, row in enumerate(self.rows)}

    def of_episode(self, number: int) -> list[dict[str, Any]]:
        start = sum(self.lengths[:number])
        return self.rows[start : start + self.lengths[number]]

    def arrays(self) -> dict[str, Any]:
        """[N, ...] each."""
        return {
            "observations": stacked([row["now"] for row in self.rows]),
            "actions": np.stack([row["action"] for row in self.rows]),
            "rewards": np.array([row["reward"] for row in self.rows]),
            "next_observations": stacked([row["then"] for row in self.rows]),
            "terminations": np.array([row["terminated"] for row in self.rows]),
            "truncations": np.array([row["truncated"] for row in self.rows]),
        }

    def dataset(self, form: str, **known: Any) -> Dataset:
        """Made of flat arrays: observations ``"with last"`` ones, ``"with next"`` ones beside them, or ``"alone"``."""
        flat = self.arrays()
        observations, following = flat.pop("observations"), flat.pop("next_observations")
        if form == "with last":
            seen = [
                obs
                for row in self.rows
                for obs in ([row["now"], row["then"]] if row["terminated"] or row["truncated"] else [row["now"]])
            ]
            observations = stacked(seen)
        known = {"observation_space": OBSERVED[self.kind], "action_space": ACTIONS, **known}
        if form == "with next":
            known["next_observations"] = following
        columns = {"log_probs": np.array([row["log_prob"] for row in self.rows])}
        return Dataset(observations, **flat, columns=columns, **known)

    def check(self, found: Transitions, ends: bool = True) -> None:
        """Whether these are the transitions that happened; ``ends``: and truncated where they were."""
        for name, theirs in self.arrays().items():
            if name == "truncations" and not ends:
                continue
            ours = getattr(found, name)
            for key in theirs if isinstance(theirs, dict) else [None]:
                pair = (ours, theirs) if key is None else (ours[key], theirs[key])
                np.testing.assert_array_equal(*pair, err_msg=f"{name} {key}")
        np.testing.assert_array_equal(found.columns["log_probs"], [row["log_prob"] for row in self.rows])


def judge(achieved: Any, desired: Any) -> Any:
    """Reward -1 unless the goal is reached."""
    return -(np.abs(achieved - desired).sum(-1) > 0.5).astype(np.float32)


def stacked(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}
    return np.stack(observations)


def recorded(kind: str, episodes: int = 12, seed: int = 0) -> Told:
    """Episodes of 1 to 8 steps; actions are unique, so that a step is known by its own."""
    rng = np.random.default_rng(seed)
    space = OBSERVED[kind]
    space.seed(seed)
    rows: list[dict[str, Any]] = []
    for number in range(episodes):
        length = int(rng.integers(1 if number % 3 else 3, 9))
        goal = _GOAL.sample()
        seen = [space.sample() for _ in range(length + 1)]
        if kind == "goal":
            seen = [{**obs, "desired_goal": goal} for obs in seen]
        for t in range(length):
            last = t + 1 == length
            reward = float(np.float32(rng.normal())) if kind != "goal" else judge(seen[t + 1]["achieved_goal"], goal)
            rows.append(
                {
                    "now": seen[t],
                    "then": seen[t + 1],
                    "action": rng.uniform(-1, 1, 2).astype(np.float32),
                    "reward": reward,
                    "terminated": last and number % 2 == 0,
                    "truncated": last and number % 2 == 1,
                    "log_prob": np.float32(rng.normal()),
                }
            )
    return Told(kind, rows)
