"""What replay on Ray is made of, without Ray: fragments side by side, draws from several shards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.ray import DQNConfig
from polyak.compat.ray.evaluation import EvaluationOrder
from polyak.compat.ray.processes.evaluators import parts_of
from polyak.compat.ray.processes.experience import Lanes, Outbox, steps_in
from polyak.compat.ray.processes.fragments import Fragment, joined
from polyak.data import ReplayBuffer
from polyak.experience import Experience
from polyak.hyperparameters.declaration import HyperparameterError

BOX, CHOICES = spaces.Box(-1, 1000, (2,)), spaces.Discrete(3)


# -- fragments side by side --------------------------------------------------------------------------------------------


def fragment(start: int, steps: int = 3, envs: int = 2, source: tuple[str, int] = ("", 0)) -> Fragment:
    """Observation t of environment e is [t, e]; the next one is [t + 1, e]."""
    t = np.arange(start, start + steps)[:, None]
    observations = np.stack(np.broadcast_arrays(t, np.arange(envs)), -1).astype(np.float32)
    columns = {
        "observations": observations,
        "actions": np.zeros((steps, envs), np.int64),
        "rewards": np.broadcast_to(t, (steps, envs)).astype(np.float32),
        "next_observations": observations + np.array([1, 0], np.float32),
        "dones": np.zeros((steps, envs), bool),
        "truncated": np.zeros((steps, envs), bool),
        "extras": {},
    }
    return Fragment(Experience(columns), {}, 0, source=source)


def test_an_outbox_hands_on_what_it_was_given() -> None:
    sent = fragment(5)
    outbox = Outbox(100, BOX, CHOICES, "cpu", 2, n_steps=3, sampler="prioritized")
    for step in steps_in(sent):
        outbox.record(step)
    found = outbox.taken(7)
    assert outbox.is_empty
    assert found.version == 7
    for name in ("observations", "next_observations", "rewards", "dones"):
        np.testing.assert_array_equal(found.columns[name], sent.columns[name])


def test_what_a_runner_brings_goes_on_where_it_ended_and_strangers_cut() -> None:
    lanes = Lanes(2)
    a0, b0 = fragment(0, source=("a", 0)), fragment(0, source=("b", 0))
    assert lanes.placed([a0, b0]) == ([a0, b0], [])
    a1, b1 = fragment(3, source=("a", 1)), fragment(3, source=("b", 1))
    assert lanes.placed([b1, a1]) == ([a1, b1], []), "in whatever order they come"
    a2, a3 = fragment(6, source=("a", 2)), fragment(9, source=("a", 3))
    assert lanes.placed([a2, a3]) == ([a2, a3], [1]), "b is late: a runs on in its place"
    a4, c0 = fragment(12, source=("a", 4)), fragment(0, source=("c", 0))
    assert lanes.placed([a4, c0]) == ([c0, a4], [0])


def test_no_sum_of_rewards_reaches_across_a_cut() -> None:
    buffer = ReplayBuffer(40, BOX, CHOICES, "cpu", n_envs=4, n_steps=3, gamma=1.0)
    for step in steps_in(joined([fragment(0), fragment(0)])):
        buffer.record(step)
    buffer.cut_episodes([2, 3])
    for step in steps_in(joined([fragment(3), fragment(500)])):
        buffer.record(step)
    rows = np.repeat(np.arange(6), 400)
    np.random.seed(0)
    found = buffer._get_samples(rows)
    starts, sums = found.observations[:, 0], found.rewards[:, 0]
    own = starts + (starts + 1) + (starts + 2)
    whole = starts < 4
    second = (starts == 1) & (sums != own)  # of the two rows that end at the cut
    assert set(sums[second].tolist()) == {1.0 + 2.0}
    assert set(sums[(starts == 2) & (sums != own)].tolist()) == {2.0}
    assert torch.equal(sums[whole & (sums == own)], own[whole & (sums == own)])
    assert (sums[whole] < 100).all()


# -- several shards ----------------------------------------------------------------------------------------------------


def test_there_must_be_an_environment_for_each_shard() -> None:
    made = DQNConfig().environment("CartPole-v1").env_runners(num_envs_per_env_runner=2)
    with pytest.raises(HyperparameterError, match="num_replay_buffer_shards.*=3"):
        made.training(replay_buffer_config={"num_replay_buffer_shards": 3}).validate()
    with pytest.raises(HyperparameterError, match="num_replay_buffer_shards.*=-1"):
        made.training(replay_buffer_config={"num_replay_buffer_shards": -1}).validate()


# -- evaluation dealt out ----------------------------------------------------------------------------------------------


def test_evaluators_play_together_what_was_ordered() -> None:
    order = EvaluationOrder(7, in_steps=False, explores=False, seed=5)
    parts = parts_of(order, 3)
    assert [part and part.duration for part in parts] == [3, 2, 2]
    assert len({part.seed for part in parts if part}) == 3
    assert parts_of(order._replace(duration=2), 3)[2] is None
    assert parts_of(order, 1) == [order]
    steps = parts_of(order._replace(in_steps=True, duration=100), 3)
    assert [part and part.duration for part in steps] == [34, 34, 34]
