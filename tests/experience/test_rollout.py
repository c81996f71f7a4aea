"""Rollouts: advantages against brute force, minibatches against the arrays."""

import itertools

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.experience import Column, DictRolloutBuffer, RolloutBuffer, RolloutBufferSamples, Step
from polyak.ops.returns import gae, vtrace
from tests.pairs import pairwise

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


# -- extra columns, and truncation apart from rewards ------------------------------------------------------------------

EPS = float(np.finfo(np.float32).eps)
COLUMNS = [Column("serial", np.int64), Column("memory", np.float32, (2, 3))]


class Folding(RolloutBuffer):
    """A user's, made for rewards in which the values of final observations are."""

    def add(self, obs, action, reward, episode_start, value, log_prob):
        super().add(obs, action, reward, episode_start, value, log_prob)


def steps_of(n_envs, steps, seed=0):
    """Random steps with values and the values of their successors; episodes of 1 to 6 rows."""
    rng = np.random.default_rng(seed)
    starts, log = np.ones(n_envs, bool), []
    for t in range(steps):
        done = rng.random(n_envs) < 0.3
        truncated = done & (rng.random(n_envs) < 0.6)
        obs, then = rng.normal(size=(2, n_envs, 3)).astype(np.float32)
        actions, rewards = rng.normal(size=(n_envs, 2)).astype(np.float32), rng.normal(size=n_envs).astype(np.float32)
        serials = 100 * t + np.arange(n_envs)
        extras = {
            "serial": serials,
            "memory": np.broadcast_to(serials[:, None, None], (n_envs, 2, 3)).astype(np.float32),
        }
        step = Step(
            obs, actions, actions, rewards, then, done & ~truncated, truncated, done, [{}] * n_envs, then, starts,
            bool(done.any()), extras,
        )  # fmt: skip
        log.append((step, *rng.normal(size=(3, n_envs)).astype(np.float32)))
        starts = done
    return log


def expected_advantages(log, last_values, lam):
    """Eq. 16 by its sum, in float64: its final observation follows a truncated row, nothing a terminal one."""
    steps, n_envs = len(log), len(last_values)
    expected = np.zeros((steps, n_envs))
    for env in range(n_envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                step, value, _, final = log[k]
                following = last_values[env] if k == steps - 1 else log[k + 1][1][env]
                if step.dones[env]:
                    following = final[env] if step.truncated[env] else 0.0
                delta = np.float64(step.rewards[env]) + GAMMA * np.float64(following) - np.float64(value[env])
                expected[t, env] += weight * delta
                weight *= GAMMA * lam
                if step.dones[env]:
                    break
    return expected


@pytest.mark.parametrize(
    ("n_envs", "steps", "lam", "way"),
    pairwise(itertools.product([1, 3], [1, 6, 80], [0.0, LAM, 1.0], ["at once", "afterwards", "folded"])),
)
def test_truncation_bootstraps_from_the_final_observation(n_envs, steps, lam, way):
    log = steps_of(n_envs, steps)
    buffer = (Folding if way == "folded" else RolloutBuffer)(steps, BOX, ACTION, "cpu", lam, GAMMA, n_envs)
    assert buffer.values_may_follow == (way != "folded")
    for step, value, log_prob, final in log:
        step = step._replace(extras={})
        if way == "afterwards":
            buffer.record(step)
        else:
            buffer.record(step, value, torch.from_numpy(log_prob), torch.from_numpy(final)[:, None])
    if way == "afterwards":
        observations, actions = buffer.flat_inputs()
        np.testing.assert_array_equal(observations, np.concatenate([row[0].observations for row in log]))
        np.testing.assert_array_equal(actions, np.concatenate([row[0].actions for row in log]))
        buffer.values[:], buffer.log_probs[:] = (np.stack([row[i] for row in log]) for i in (1, 2))
        buffer.final_values[:] = np.stack([row[3] for row in log])  # read at truncations only
    np.testing.assert_array_equal(buffer.values, np.stack([row[1] for row in log]))
    if way != "folded":
        np.testing.assert_array_equal(buffer.rewards, np.stack([row[0].rewards for row in log]))
        np.testing.assert_array_equal(buffer.truncated, np.stack([row[0].truncated for row in log]))
    last = np.random.default_rng(9).normal(size=n_envs).astype(np.float32)
    buffer.compute_returns_and_advantage(torch.from_numpy(last), log[-1][0].dones)
    # a few roundings for each of at most 1 / (1 - gamma) terms of at most 5 deviations
    bound = 4 * EPS * 5 / (1 - GAMMA) * 5
    expected = expected_advantages(log, last, lam)
    np.testing.assert_allclose(buffer.advantages, expected, rtol=0, atol=bound)
    np.testing.assert_allclose(buffer.returns, expected + buffer.values, rtol=0, atol=bound)


def test_final_values_that_cannot_follow_are_missed():
    class Own(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values, dones):
            self.advantages = self.rewards

    log = steps_of(2, 10)
    buffer = Own(10, BOX, ACTION, "cpu", LAM, GAMMA, 2)
    with pytest.raises(ValueError, match=r"pass record\(\) the final_values. They cannot follow, for Own has an add"):
        for step, value, log_prob, _ in log:
            buffer.record(step._replace(extras={}), value, log_prob)


@pytest.mark.parametrize("space", [BOX, spaces.Dict({"a": BOX})])
def test_extras_stay_with_their_rows(space):
    log = steps_of(3, 10)
    buffer = RolloutBuffer(10, space, ACTION, "cpu", LAM, GAMMA, 3, columns=COLUMNS)
    for t, (step, value, log_prob, final) in enumerate(log):
        if isinstance(space, spaces.Dict):
            step = step._replace(observations={"a": step.observations})
        if t % 2:
            buffer.record(step, value, log_prob, final)
        else:
            buffer.add(
                step.observations, step.actions, step.rewards, step.episode_starts, value, log_prob, extras=step.extras
            )
    assert buffer.extras["serial"].shape == (10, 3)
    buffer.compute_returns_and_advantage(np.zeros(3), log[-1][0].dones)
    serial_of = {row[0].actions[env].tobytes(): 100 * t + env for t, row in enumerate(log) for env in range(3)}
    for _ in range(2):
        seen = []
        for batch in buffer.get(7):
            serials = [serial_of[action.numpy().tobytes()] for action in batch.actions]
            assert batch.extras["serial"].tolist() == serials
            assert batch.extras["memory"].shape == (len(serials), 2, 3)
            assert batch.extras["memory"][:, 1, 2].tolist() == serials
            seen += serials
        assert sorted(seen) == sorted(serial_of.values())
    assert batch.extras["serial"].dtype == torch.int64
    buffer.reset()
    assert (buffer.extras["serial"] == 0).all()
    step = log[0][0]
    with pytest.raises(ValueError, match="extras lacks the column 'memory'"):
        buffer.add(step.observations if space is BOX else {"a": step.observations}, step.actions, step.rewards,
                   step.episode_starts, None, None, extras={"serial": np.zeros(3, int)})  # fmt: skip
    assert buffer.pos == 0


@pytest.mark.parametrize("steps", [6, 80])
def test_a_trajectory_holds_what_estimators_read(steps):
    log = steps_of(3, steps)
    buffer = RolloutBuffer(steps, BOX, ACTION, "cpu", LAM, GAMMA, 3, columns=COLUMNS)
    for row in log:
        buffer.record(*row)
    with pytest.raises(ValueError, match="last_observations must have shape"):
        buffer.trajectory(np.zeros(4), log[-1][0].dones)
    trajectory = buffer.trajectory(log[-1][0].new_obs, log[-1][0].dones)
    buffer.compute_returns_and_advantage(last := np.ones(3, np.float32), log[-1][0].dones)
    for t, (step, *_) in enumerate(log):
        np.testing.assert_array_equal(trajectory.observations[t], step.observations)
        np.testing.assert_array_equal(trajectory.cuts[t], step.dones)
        np.testing.assert_array_equal(trajectory.discounts[t] == 0, step.terminated)
        np.testing.assert_array_equal(trajectory.extras["serial"][t], step.extras["serial"])
    np.testing.assert_array_equal(trajectory.observations[-1], log[-1][0].new_obs)
    values = torch.cat([torch.from_numpy(buffer.values), torch.from_numpy(last)[None]])
    inputs = trajectory.rewards, values[:-1], trajectory.next_values(values), trajectory.discounts
    advantages, returns = gae(*inputs, LAM, trajectory.cuts)
    bound = 4 * EPS * 5 / (1 - GAMMA) * 5
    np.testing.assert_allclose(advantages, buffer.advantages, rtol=0, atol=bound)
    targets, _ = vtrace(torch.zeros(steps, 3), *inputs, trajectory.cuts, LAM)
    torch.testing.assert_close(targets, returns, rtol=0, atol=bound)
    next(buffer.get())
    with pytest.raises(ValueError, match="A trajectory needs a full rollout"):
        buffer.trajectory(log[-1][0].new_obs, log[-1][0].dones)


@pytest.mark.parametrize("of", ["get", "minibatches"])
def test_each_pass_reads_the_rollout_as_it_is_then(of: str) -> None:
    """Advantages may be replaced between two passes; :meth:`passes` are of the rollout as it was."""
    buffer = RolloutBuffer(4, BOX, ACTION, "cpu", LAM, GAMMA, 2)
    fill(buffer)
    buffer.compute_returns_and_advantage(torch.zeros(2, 1), np.zeros(2))
    passes = buffer.passes()
    assert next(passes(None)).rollout is next(passes(None)).rollout
    before = buffer.advantages
    buffer.advantages = before + 1
    (batch,) = getattr(buffer, of)()
    read = batch.advantages if of == "get" else batch.gathered().advantages
    assert sorted(read.tolist()) == sorted((before + 1).ravel().tolist())
    assert sorted(next(passes(None)).gathered().advantages.tolist()) == sorted(before.ravel().tolist())
