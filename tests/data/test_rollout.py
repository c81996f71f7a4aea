"""Rollouts: advantages against brute force, minibatches against the arrays."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.data import DictRolloutBuffer, RolloutBuffer, RolloutBufferSamples
from tests.tolerance import bound

GAMMA, LAM = 0.9, 0.8
BOX, ACTION = spaces.Box(-1, 1, (3,), np.float32), spaces.Box(-1, 1, (2,), np.float32)


def fill(buffer, seed=0, steps=None):
    rng = np.random.default_rng(seed)
    n = buffer.n_envs
    log = []
    for _ in range(steps or buffer.buffer_size):
        obs = rng.normal(size=(n, 3)).astype(np.float32)
        if isinstance(buffer.observation_space, spaces.Dict):
            obs = {"a": obs, "b": rng.integers(0, 5, n)}
        row = (
            obs,
            rng.uniform(-1, 1, (n, 2)).astype(np.float32),
            rng.normal(size=n),
            rng.random(n) < 0.3,
            torch.from_numpy(rng.normal(size=(n, 1))).float(),
            torch.from_numpy(rng.normal(size=n)).float(),
        )
        buffer.add(*row)
        log.append(row)
    return log


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("steps", [1, 6, 80])
@pytest.mark.parametrize("lam", [0.0, LAM, 1.0])
def test_advantages(n_envs, steps, lam):
    """delta = r + gamma V(s') - V(s), where s' counts only if its episode is the same."""
    buffer = RolloutBuffer(steps, BOX, ACTION, "cpu", lam, GAMMA, n_envs)
    log = fill(buffer)
    last, dones = torch.randn(n_envs, 1), np.arange(n_envs) % 2 == 0
    buffer.compute_returns_and_advantage(last, dones)
    near = bound(3 * steps, size=4 * 3 / (1 - GAMMA))  # three terms below 4 at each step, discounted
    for env in range(n_envs):
        for t in range(steps):
            expected, weight = 0.0, 1.0
            for k in range(t, steps):
                ends = dones[env] if k == steps - 1 else log[k + 1][3][env]
                following = last[env] if k == steps - 1 else log[k + 1][4][env]
                delta = log[k][2][env] + GAMMA * float(following) * (1 - ends) - float(log[k][4][env])
                expected += weight * delta
                weight *= GAMMA * lam
                if ends:
                    break
            assert buffer.advantages[t, env] == pytest.approx(expected, abs=near)
            assert buffer.returns[t, env] == pytest.approx(expected + float(log[t][4][env]), abs=near)


@pytest.mark.parametrize("space", [BOX, spaces.Dict({"a": BOX, "b": spaces.Discrete(5)})])
@pytest.mark.parametrize("batch_size", [None, 4, 7, 1000])
def test_minibatches_hold_every_row_once(space, batch_size):
    buffer = RolloutBuffer(10, space, ACTION, "cpu", LAM, GAMMA, 2)
    fill(buffer)
    buffer.compute_returns_and_advantage(torch.zeros(2), np.zeros(2))
    arrays = {
        name: getattr(buffer, name).copy() for name in ("actions", "values", "log_probs", "advantages", "returns")
    }
    assert arrays["actions"].shape == (10, 2, 2)
    obs = buffer.observations
    obs = (obs["a"] if isinstance(obs, dict) else obs).copy()
    epochs = []
    for _ in range(2):
        batches = list(buffer.get(batch_size))
        assert [len(b.actions) for b in batches] == {None: [20], 4: [4] * 5, 7: [7, 7, 6], 1000: [20]}[batch_size]
        order = []
        for batch in batches:
            assert isinstance(batch, RolloutBufferSamples)
            for i, action in enumerate(batch.actions.numpy()):
                ((t, env),) = np.argwhere((arrays["actions"] == action).all(-1))
                order.append((t, env))
                got = (batch.old_values, batch.old_log_prob, batch.advantages, batch.returns)
                for value, name in zip(got, ("values", "log_probs", "advantages", "returns"), strict=True):
                    assert value[i].item() == arrays[name][t, env]
                seen = batch.observations["a"] if isinstance(batch.observations, dict) else batch.observations
                np.testing.assert_array_equal(seen[i].numpy(), obs[t, env])
        assert len(set(order)) == 20
        epochs.append(order)
    assert epochs[0] != epochs[1], "shuffled anew"
    assert buffer.generator_ready
    assert buffer.values.shape == (20, 1)


def test_values_may_come_afterwards():
    """The loop computes values and log-probabilities of the whole rollout in one pass."""
    one, two = (RolloutBuffer(5, BOX, ACTION, "cpu", LAM, GAMMA, 2) for _ in range(2))
    log = fill(one)
    for obs, action, reward, start, *_ in log:
        two.add(obs, action, reward, start, None, None)
    observations, actions = two.flat_inputs()
    np.testing.assert_array_equal(observations.numpy(), np.concatenate([row[0] for row in log]))
    np.testing.assert_array_equal(actions.numpy(), np.concatenate([row[1] for row in log]))
    two.values[:] = np.stack([row[4].numpy().ravel() for row in log])
    two.log_probs[:] = np.stack([row[5].numpy() for row in log])
    for buffer in (one, two):
        buffer.compute_returns_and_advantage(torch.ones(2, 1), np.array([False, True]))
        buffer.seed(0)
    for a, b in zip(next(one.get())[:6], next(two.get())[:6], strict=True):
        assert torch.equal(a, b)


def test_changes_between_epochs_are_seen():
    buffer = RolloutBuffer(4, BOX, ACTION, "cpu", n_envs=1)
    fill(buffer)
    next(buffer.get())
    buffer.advantages[:] = 3
    assert (next(buffer.get()).advantages == 3).all()


def test_reset_leaves_old_arrays_alone():
    buffer = RolloutBuffer(4, BOX, ACTION, "cpu")
    fill(buffer)
    kept = buffer.rewards
    before = kept.copy()
    buffer.reset()
    assert (buffer.pos, buffer.full, buffer.generator_ready) == (0, False, False)
    fill(buffer, seed=1)
    np.testing.assert_array_equal(kept, before)


def test_overriding_get_samples():
    class Halved(RolloutBuffer):
        def _get_samples(self, batch_inds, env=None):
            assert self.actions[batch_inds].shape == (len(batch_inds), 2), "arrays are flat by now, as in SB3"
            return super()._get_samples(batch_inds, env)._replace(advantages=torch.zeros(len(batch_inds)))

    buffer = Halved(4, BOX, ACTION, "cpu", n_envs=2)
    fill(buffer)
    batches = list(buffer.get(3))
    assert [len(b.actions) for b in batches] == [3, 3, 2]
    assert all((b.advantages == 0).all() for b in batches)
    assert len({tuple(a.tolist()) for b in batches for a in b.actions}) == 8


def test_swap_and_flatten():
    array = np.arange(24).reshape(3, 2, 4)
    flat = RolloutBuffer.swap_and_flatten(array)
    np.testing.assert_array_equal(flat, np.concatenate([array[:, 0], array[:, 1]]))
    np.testing.assert_array_equal(RolloutBuffer.swap_and_flatten(array[..., 0]).shape, (6, 1))


def test_discrete_actions_come_as_floats():
    buffer = RolloutBuffer(2, BOX, spaces.Discrete(3), "cpu")
    for action in (1, 2):
        buffer.add(np.zeros((1, 3)), np.array([action]), np.zeros(1), np.zeros(1), torch.zeros(1), torch.zeros(1))
    assert buffer.actions.dtype == np.int64
    batch = next(buffer.get())
    assert batch.actions.dtype == torch.float32
    assert sorted(batch.actions.ravel().tolist()) == [1, 2]


def test_to_torch():
    buffer = RolloutBuffer(2, BOX, ACTION, "cpu")
    array = np.zeros(3, np.float32)
    copied, shared = buffer.to_torch(array), buffer.to_torch(array, copy=False)
    array[0] = 5
    assert (copied[0], shared[0]) == (0, 5)


def test_errors():
    with pytest.raises(AssertionError, match="DictRolloutBuffer must be used with Dict obs space only"):
        DictRolloutBuffer(4, BOX, ACTION)
    for keywords, message in (
        ({"gae_lambda": 1.2}, "gae_lambda must be between 0 and 1, got 1.2"),
        ({"gamma": -0.1}, "gamma must be between 0 and 1, got -0.1"),
    ):
        with pytest.raises(ValueError, match=message):
            RolloutBuffer(4, BOX, ACTION, **keywords)
    buffer = RolloutBuffer(4, BOX, ACTION, "cpu")
    fill(buffer, steps=3)
    with pytest.raises(AssertionError, match="holds 3 of 4 steps"):
        next(buffer.get())
    fill(buffer, steps=1)
    with pytest.raises(ValueError, match=r"full \(?after buffer_size=4|full after buffer_size=4"):
        fill(buffer, steps=1)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        next(buffer.get(0))
