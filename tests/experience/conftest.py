"""Random experience with a full record of what happened, to compare buffers with brute force."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

GOALS = 4


def box_space():
    return spaces.Box(-np.inf, np.inf, (3,), np.float32)


def goal_space():
    goal = spaces.Box(0, GOALS, (1,), np.float32)
    return spaces.Dict({"observation": box_space(), "achieved_goal": goal, "desired_goal": goal})


def stack_space(channels=4):
    return spaces.Box(0, 255, (channels, 6, 5), np.uint8)


def mixed_space():
    return spaces.Dict(
        {"picture": stack_space(), "vector": box_space(), "kind": spaces.Discrete(5), "bits": spaces.MultiBinary(3)}
    )


SPACES = {"box": box_space, "goal": goal_space, "stack": stack_space, "mixed": mixed_space}
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)


def judge(achieved, desired, infos):
    """Reward -1 unless the goal is reached; an info may add a bonus."""
    bonus = np.array([info.get("bonus", 0.0) for info in infos])
    return -(np.abs(achieved - desired).sum(-1) > 0.5).astype(np.float32) + bonus


class GoalEnv:
    """The part of a VecEnv that hindsight replay uses."""

    def __init__(self):
        self.calls = 0

    def env_method(self, name, achieved, desired, infos, indices=None):
        assert name == "compute_reward"
        assert indices == [0]
        self.calls += 1
        return [judge(achieved, desired, infos)]


@dataclass
class Experience:
    """``steps`` vectorised steps of ``n_envs`` random environments; episodes of 1 to 8 steps.

    ``first[t, n]`` identifies a row: the first element of its observation. ``breaks``: how often an episode is left in
    the middle (the environments are reset without being done).
    """

    kind: str = "box"
    steps: int = 60
    n_envs: int = 2
    seed: int = 0
    breaks: float = 0.0
    padding: str = "zero"
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self):
        self.rng = np.random.default_rng(self.seed)
        self.space, self.action_space = SPACES[self.kind](), ACTIONS
        self.left = self.rng.integers(1, 9, self.n_envs)
        self.desired = self.rng.integers(0, GOALS, (self.n_envs, 1)).astype(np.float32)
        self.frames = [None] * self.n_envs
        self.episode = np.zeros(self.n_envs, int)
        obs = [self._observe(n, reset=True) for n in range(self.n_envs)]
        for _ in range(self.steps):
            obs = self._step(obs)
        self.places = {
            row["action"][env].tobytes(): (t, env) for t, row in enumerate(self.rows) for env in range(self.n_envs)
        }

    def _observe(self, env, reset=False):
        vector = self.rng.normal(size=3).astype(np.float32)
        if self.kind == "box":
            return vector
        if self.kind == "goal":
            achieved = self.rng.integers(0, GOALS, 1).astype(np.float32)
            return {"observation": vector, "achieved_goal": achieved, "desired_goal": self.desired[env].copy()}
        frame = self.rng.integers(1, 255, (1, 6, 5)).astype(np.uint8)
        if reset:
            start = np.zeros((3, 6, 5), np.uint8) if self.padding == "zero" else np.repeat(frame, 3, 0)
            self.frames[env] = np.concatenate([start, frame])
        else:
            self.frames[env] = np.concatenate([self.frames[env][1:], frame])
        if self.kind == "stack":
            return self.frames[env]
        bits = self.rng.integers(0, 2, 3).astype(np.int8)
        return {"picture": self.frames[env], "vector": vector, "kind": int(self.rng.integers(5)), "bits": bits}

    def _step(self, obs):
        self.left -= 1
        done = self.left == 0
        truncated = done & (self.rng.random(self.n_envs) < 0.5)
        left_alone = ~done & (self.rng.random(self.n_envs) < self.breaks)
        next_obs = [self._observe(n) for n in range(self.n_envs)]
        reward = self.rng.normal(size=self.n_envs).astype(np.float32)
        infos = [{"TimeLimit.truncated": bool(t), "bonus": float(self.rng.integers(3))} for t in truncated]
        if self.kind == "goal":
            achieved = np.stack([o["achieved_goal"] for o in next_obs])
            reward = judge(achieved, self.desired, [{}] * self.n_envs)
        self.rows.append(
            {
                "obs": obs,
                "next_obs": list(next_obs),
                "action": self.rng.uniform(-1, 1, (self.n_envs, 2)).astype(np.float32),
                "reward": reward,
                "done": done,
                "truncated": truncated,
                "infos": infos,
                "episode": self.episode.copy(),
            }
        )
        following = list(next_obs)
        for env in np.flatnonzero(done | left_alone):
            self.left[env] = self.rng.integers(1, 9)
            self.desired[env] = self.rng.integers(0, GOALS)
            self.episode[env] += 1
            following[env] = self._observe(env, reset=True)
        return following

    def stacked(self, observations):
        if isinstance(observations[0], dict):
            return {key: np.stack([o[key] for o in observations]) for key in observations[0]}
        return np.stack(observations)

    def step(self, t):
        """Arguments of ``ReplayBuffer.add``."""
        row = self.rows[t]
        return (
            self.stacked(row["obs"]),
            self.stacked(row["next_obs"]),
            row["action"],
            row["reward"],
            row["done"],
            [dict(info) for info in row["infos"]],
        )

    def fill(self, buffer, start=0, stop=None):
        for t in range(start, self.steps if stop is None else stop):
            buffer.add(*self.step(t))
        return buffer

    def find(self, action):
        """(t, env) of the row with this action; actions are unique."""
        return self.places[action.tobytes()]

    def window(self, t, env, n):
        """Times of the n-step window from t on, within the episode and the steps taken."""
        times = [t]
        while len(times) < n and not self.rows[times[-1]]["done"][env] and times[-1] + 1 < self.steps:
            times.append(times[-1] + 1)
        return times


@pytest.fixture
def experience():
    return Experience


@pytest.fixture
def goal_env():
    return GoalEnv()


def rows_of(observations):
    """A batch of observations as a list of rows."""
    if isinstance(observations, dict):
        arrays = {key: value.numpy() for key, value in observations.items()}
        return [{key: a[i] for key, a in arrays.items()} for i in range(len(next(iter(arrays.values()))))]
    return list(observations.numpy())


def same(ours, theirs):
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(
            np.array_equal(ours[k].ravel(), np.ravel(theirs[k])) for k in theirs
        )
    return np.array_equal(ours, theirs)


@pytest.fixture
def compare():
    """(batch of observations) -> rows, and bitwise comparison of two observations."""
    return rows_of, same
