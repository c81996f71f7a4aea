"""Environments in tensors: the dynamics are Gymnasium's, episodes begin and end where they must, nothing is read."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from polyak.envs.tensor import TensorCartPole, TensorEnv, TensorPendulum
from tests.tolerance import bound

PAIRS = {"CartPole-v1": TensorCartPole, "Pendulum-v1": TensorPendulum}
RANGES = {"CartPole-v1": [2.4, 3.0, 0.22, 3.0], "Pendulum-v1": [np.pi, 8.0]}
"""States lie between these and their negatives."""
READS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::is_nonzero", "aten::equal"}


class NoRead(TorchDispatchMode):
    """Refuses operations by which the host would wait for a value."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.name().partition(".")[0] not in READS, f"{func} reads a value"
        return func(*args, **(kwargs or {}))


class NoCopyToHost(TorchFunctionMode):
    """Refuses methods that bring a tensor to the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        assert name not in ("numpy", "tolist", "cpu", "item", "__bool__", "__array__"), f"{name} brings it to the host"
        return func(*args, **(kwargs or {}))


def actions_for(env: TensorEnv, rng: np.random.Generator, steps: int) -> np.ndarray:
    if env.action_space.shape:
        return rng.uniform(-3, 3, (steps, env.num_envs, *env.action_space.shape)).astype(np.float32)
    return rng.integers(2, size=(steps, env.num_envs))


def put(env: gym.Env, state: np.ndarray) -> None:
    """Let Gymnasium's environment be in a state."""
    env.unwrapped.state = state.astype(np.float64)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", PAIRS)
def test_a_step_is_that_of_gymnasium(name: str) -> None:
    """From the same state with the same action, one step at a time: errors do not add up."""
    ours, theirs, rng = PAIRS[name](64, seed=1), gym.make(name).unwrapped, np.random.default_rng(0)
    theirs.reset(seed=0)
    # some ten float32 operations on numbers of at most 17 (a reward of the pendulum)
    tolerance = bound(10, size=17)
    for actions in actions_for(ours, rng, 30):
        before = (rng.uniform(-1, 1, (64, len(RANGES[name]))) * RANGES[name]).astype(np.float32)
        ours.state = torch.from_numpy(before)
        outcome = ours.step(torch.from_numpy(actions))
        for i, action in enumerate(actions):
            put(theirs, before[i])
            if name == "CartPole-v1":
                theirs.steps_beyond_terminated = None  # type: ignore[attr-defined]
            obs, reward, terminated, _, _ = theirs.step(action)
            np.testing.assert_allclose(outcome.successors[i], obs, rtol=0, atol=tolerance)
            np.testing.assert_allclose(outcome.rewards[i], float(reward), rtol=0, atol=tolerance)
            if name == "CartPole-v1":
                far = max(abs(abs(obs[0]) - 2.4), 0), abs(abs(obs[2]) - np.radians(12))
                assert bool(outcome.terminated[i]) == terminated or min(far) < tolerance
            else:
                assert not outcome.terminated[i]


@pytest.mark.parametrize("name", PAIRS)
def test_spaces_and_limits_are_those_of_gymnasium(name: str) -> None:
    ours, theirs = PAIRS[name](2), gym.make(name)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.max_episode_steps == theirs.spec.max_episode_steps  # type: ignore[union-attr]
    observations, masks, stored = ours.reset()
    assert masks is stored is None
    assert all(ours.observation_space.contains(row) for row in observations.numpy())


def test_episodes_end_by_falling_and_by_time_and_others_begin() -> None:
    env, rng = TensorCartPole(8, seed=3), np.random.default_rng(1)
    lengths = torch.zeros(8, dtype=torch.int64)
    falls = 0
    for actions in actions_for(env, rng, 200):
        elapsed = env.elapsed
        outcome = env.step(torch.from_numpy(actions))
        lengths = lengths + 1
        ended = outcome.terminated | outcome.truncated
        assert torch.equal(lengths, elapsed + 1)
        assert torch.equal(outcome.observations[~ended], outcome.successors[~ended])
        assert (outcome.observations[ended].abs() <= 0.05).all()
        assert (outcome.successors[ended][:, 2].abs() > 0.05).all()
        lengths = torch.where(ended, 0, lengths)
        falls += int(outcome.terminated.sum())
    assert falls > 8

    pendulum = TensorPendulum(3, seed=1)
    for step in range(1, 401):
        outcome = pendulum.step(torch.zeros(3, 1))
        assert bool(outcome.truncated.all()) == bool(outcome.truncated.any()) == (step % 200 == 0)


def test_a_fall_at_the_time_limit_is_no_truncation() -> None:
    env = TensorCartPole(2, seed=0)
    env.elapsed = torch.full((2,), 499)
    env.state = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.2094, 3.0]])
    outcome = env.step(torch.tensor([0, 0]))
    assert outcome.terminated.tolist() == [False, True]
    assert outcome.truncated.tolist() == [True, False]


@pytest.mark.parametrize("name", PAIRS)
def test_nothing_is_read_while_it_steps(name: str) -> None:
    env = PAIRS[name](5, seed=0)
    actions = torch.from_numpy(actions_for(env, np.random.default_rng(0), 1)[0])
    with NoRead(), NoCopyToHost():
        env.reset()
        for _ in range(3):
            env.step(actions)


@pytest.mark.parametrize("name", PAIRS)
def test_it_continues_from_a_saved_state(name: str) -> None:
    first, second = PAIRS[name](4, seed=5), PAIRS[name](4, seed=6)
    actions = torch.from_numpy(actions_for(first, np.random.default_rng(2), 300))
    for row in actions[:130]:
        first.step(row)
    second.set_state(first.get_state())
    for row in actions[130:]:
        ours, theirs = first.step(row), second.step(row)
        assert all(torch.equal(a, b) for a, b in zip(ours[:5], theirs[:5], strict=True))


def test_a_state_of_another_number_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(3, 4\).*got .*\(2, 4\)"):
        TensorCartPole(3).set_state(TensorCartPole(2).get_state())


@pytest.mark.parametrize("number", [0, -1, 10**9])
def test_a_number_that_cannot_be_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="num_envs must be at"):
        TensorPendulum(number)


def test_streams_differ_by_seed() -> None:
    assert torch.equal(TensorCartPole(4, seed=1).state, TensorCartPole(4, seed=1).state)
    assert not torch.equal(TensorCartPole(4, seed=1).state, TensorCartPole(4, seed=2).state)
