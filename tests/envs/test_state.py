"""The exact state of environments: read, written to a file, put into others that were made alike, and continued."""

import json
import random
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.checkpoint.saved import join_tree, split_tree
from polyak.envs import DummyVecEnv, Monitor, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize
from polyak.envs.state import EnvStateError, get_state, set_state
from polyak.envs.vec.vec_env import VecEnv

NAMES = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"]
MUJOCO = ["Ant-v5", "Humanoid-v5", "HalfCheetah-v5", "Hopper-v5", "Reacher-v5"]


class Bag:
    """An object of attributes alone."""

    def __init__(self) -> None:
        self.level, self.items = 0, {1: [2.5], (3, 4): {"x"}}


class Rich(gym.Env):
    """Holds whatever plain data an environment may hold, and draws from generators of all kinds."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(3)
        self.own = np.random.default_rng(0)
        self.old = np.random.RandomState(0)
        self.python = random.Random(0)
        self.bag, self.recent = Bag(), deque([0.0, 0.0], maxlen=3)
        self.name, self.labels = "rich", np.array(["a", "b"])
        self.shared = self.twice = np.zeros(2)
        self.code: Callable[[], int] = lambda: 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.shared = self.twice = np.zeros(2)
        return self._look(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.bag.level += int(action)
        self.bag.items[1].append(self.own.random())
        self.recent.append(self.old.rand())
        self.shared += self.python.random()
        return self._look(), float(self.twice.sum()), self.np_random.random() < 0.05, False, {}

    def _look(self) -> np.ndarray:
        return np.array([self.bag.level + len(self.bag.items[1]), sum(self.recent), self.np_random.random()])


class Opaque(Rich):
    """Holds something that is no plain data."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Own(Opaque):
    """Says its state by itself, a text included."""

    def get_state(self) -> dict[str, Any]:
        return {"level": self.bag.level, "drawn": self.np_random.bit_generator.state, "word": f"w{self.bag.level}"}

    def set_state(self, state: dict[str, Any]) -> None:
        self.bag.level, self.word = state["level"], state["word"]
        self.np_random.bit_generator.state = state["drawn"]


def in_a_file(state: Any) -> Any:
    """The state as a file brings it back."""
    arrays: dict[str, np.ndarray] = {}
    text = json.dumps(split_tree(state, arrays))
    assert "$pickle" not in text
    return join_tree(json.loads(text), arrays)


def same(ours: Any, theirs: Any) -> None:
    np.testing.assert_equal(ours, theirs)


def continues(make: Callable[[], gym.Env], steps: int = 60) -> None:
    """An environment in the middle of an episode, and another that is put into its state, do the same from then on."""
    first, second = make(), make()
    first.reset(seed=1)
    first.action_space.seed(2)
    actions = [first.action_space.sample() for _ in range(2 * steps)]
    for action in actions[:steps]:
        if any(first.step(action)[2:4]):
            first.reset()
    set_state(second, in_a_file(get_state(first)))
    for action in actions[steps:]:
        ours, theirs = first.step(action), second.step(action)
        same(ours[:4], theirs[:4])
        if ours[2] or ours[3]:
            same(first.reset()[0], second.reset()[0])
    same(first.action_space.sample(), second.action_space.sample())


@pytest.mark.parametrize("name", NAMES)
def test_gymnasiums_own_continue(name: str) -> None:
    continues(lambda: gym.make(name))


@pytest.mark.parametrize("name", MUJOCO)
def test_mujoco_continues(name: str) -> None:
    pytest.importorskip("mujoco")
    continues(lambda: gym.make(name), steps=20)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: gym.wrappers.FrameStackObservation(env, 3),
        lambda env: gym.wrappers.NormalizeObservation(env),
        lambda env: gym.wrappers.TransformObservation(env, np.tanh, env.observation_space),
        lambda env: gym.wrappers.RecordEpisodeStatistics(env),
        lambda env: gym.wrappers.TimeAwareObservation(Monitor(env)),
    ],
)
def test_wrappers_continue(wrap: Callable[[gym.Env], gym.Env]) -> None:
    continues(lambda: wrap(gym.make("CartPole-v1")))


@pytest.mark.parametrize("kind", [Rich, Own])
def test_a_users_own_continues(kind: type[gym.Env]) -> None:
    if kind is Own:  # which leaves out what it says is no part of its state
        env = Own()
        env.reset(seed=0)
        env.step(2)
        other = Own()
        other.reset()
        set_state(other, in_a_file(get_state(env)))
        assert (other.bag.level, other.word) == (2, "w2")
        assert other.np_random.random() == env.np_random.random()
    else:
        continues(kind)


def test_what_two_attributes_share_they_share_again() -> None:
    env, other = Rich(), Rich()
    env.reset(seed=0)
    other.reset(seed=1)
    set_state(other, in_a_file(get_state(env)))
    assert other.shared is other.twice
    assert other.recent.maxlen == 3


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(EnvStateError, match=r"the attribute lock of Opaque is a _thread\.lock.*get_state\(\)"):
        get_state(Opaque())


def test_a_state_of_another_kind_is_refused() -> None:
    with pytest.raises(EnvStateError, match=r"the state is of \['TimeLimit'.*made of \['Monitor', 'TimeLimit'"):
        set_state(Monitor(gym.make("CartPole-v1")), get_state(gym.make("CartPole-v1")))
    with pytest.raises(EnvStateError, match="a dict with its layers"):
        set_state(gym.make("CartPole-v1"), {"x": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 3}, "step of Rich cannot be set: it is code"),
        ({"__class__": 3}, "__class__ of Rich cannot be set: it is code"),
        ({"name": "/etc/x"}, "name of Rich cannot be set: it was the text '/etc/x' and is 'rich' here"),
        ({"new": "text"}, "new of Rich cannot be set: it was the text"),
        ({"labels": {"texts": ["a", "c"]}}, "labels of Rich cannot be set"),
        ({"bag": {"object": {"__dict__": {"dict": []}}}}, "bag.__dict__ of Rich cannot be set: it is code"),
        (
            {"own": {"generator": {"bit_generator": "MT19937"}}},
            "own of Rich cannot be set: the state is of the generator",
        ),
        ({"bag": {"unknown": 1}}, "bag of Rich cannot be set"),
        ({"bag": 3.5, "level": {"a": 1, "b": 2}}, "level of Rich cannot be set"),
    ],
)
def test_a_file_sets_no_code_and_no_other_text(change: dict[str, Any], message: str) -> None:
    env, state = Rich(), get_state(Rich())
    state["layers"][0]["attributes"] = change
    with pytest.raises(EnvStateError) as caught:
        set_state(env, state)
    assert message in str(caught.value)
    assert callable(env.step)


def rich(_: int = 0) -> gym.Env:
    return Monitor(Rich())


VECTORS: dict[str, Callable[[], VecEnv]] = {
    "dummy": lambda: DummyVecEnv([rich] * 3),
    "normalised": lambda: VecNormalize(DummyVecEnv([rich] * 2)),
    "stacked": lambda: VecFrameStack(VecMonitor(DummyVecEnv([Rich] * 2)), 2),
    "workers": lambda: SubprocVecEnv([rich] * 2, start_method="fork"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_continue(name: str) -> None:
    first, second = VECTORS[name](), VECTORS[name]()
    try:
        first.seed(3)
        first.reset()
        rng = np.random.default_rng(0)
        actions = rng.integers(3, size=(60, first.num_envs))
        for row in actions[:30]:
            first.step(row)
        state = in_a_file(first.get_state())
        second.reset()
        if isinstance(second, VecNormalize):  # statistics are in files by themselves
            second.load_state_dict(first.state_dict())
        second.set_state(state)
        for row in actions[30:]:
            ours, theirs = first.step(row), second.step(row)
            same(ours[:3], theirs[:3])
            for a, b in zip(ours[3], theirs[3], strict=True):
                assert a.get("episode", {}).get("r") == b.get("episode", {}).get("r")
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("vector", [lambda fns: DummyVecEnv(fns), lambda fns: SubprocVecEnv(fns, start_method="fork")])
def test_a_vector_names_what_it_cannot_read(vector: Callable[[Any], VecEnv]) -> None:
    env = vector([rich, Opaque])
    try:
        with pytest.raises(EnvStateError, match="the attribute lock of Opaque"):
            env.get_state()
        env.reset()  # and continues to work
        with pytest.raises(EnvStateError, match="not one of 2 environments"):
            env.set_state({"envs": []})
    finally:
        env.close()
