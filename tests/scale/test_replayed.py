"""What replay on Ray is made of, without Ray: fragments side by side, equal shares, draws from several shards."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.ray import DQNConfig
from polyak.compat.ray.evaluation import Order
from polyak.compat.ray.processes import shards as module
from polyak.compat.ray.processes.batches import batch_of, columns_of, errors_of, shares
from polyak.compat.ray.processes.evaluators import parts_of
from polyak.compat.ray.processes.experience import Lanes, Outbox, steps_in
from polyak.compat.ray.processes.fragments import Fragment, joined
from polyak.compat.ray.processes.shards import ShardedReplayBuffer
from polyak.data import ReplayBuffer, Transition
from polyak.distributed.ray_workers import Failure
from polyak.distributed.shards import dealt
from polyak.experience import Experience
from polyak.experience.samplers import Prioritized
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


# -- equal shares ------------------------------------------------------------------------------------------------------


def batch(rows: int) -> Transition:
    column = torch.arange(rows, dtype=torch.float32)
    return Transition({"a": column[:, None]}, column[:, None], column, {"a": column[:, None]}, column, column)


@pytest.mark.parametrize(("rows", "parts"), [(6, 2), (7, 2), (5, 3), (4, 1)])
def test_shares_are_equal_and_errors_come_back_in_order(rows: int, parts: int) -> None:
    dealt_out = shares(columns_of(batch(rows)), parts)
    assert {len(part["rewards"]) for part in dealt_out} == {-(-rows // parts)}
    errors = [batch_of(part, "cpu").observations["a"][:, 0].numpy() for part in dealt_out]
    np.testing.assert_array_equal(errors_of(errors, rows), np.arange(rows))
    several = [np.repeat(each, 4) for each in errors]  # rows of sequences
    np.testing.assert_array_equal(errors_of(several, rows), np.repeat(np.arange(rows), 4))


# -- several shards ----------------------------------------------------------------------------------------------------


def test_rows_are_dealt_in_proportion() -> None:
    strata = (np.arange(12) + 0.5) / 12
    assert dealt(np.array([1.0, 0.0, 3.0, 2.0]), strata).tolist() == [2, 0, 6, 4]
    assert dealt(np.array([0.0, 5.0, 0.0]), strata).tolist() == [0, 12, 0]
    rng = np.random.default_rng(0)
    masses = rng.random(5)
    counts = [dealt(masses, (np.arange(7) + rng.random(7)) / 7) for _ in range(4000)]
    exact = 7 * masses / masses.sum()
    # the count of a shard is within one of its share and one of the two neighbours of it: variance at most 1/4 each end
    assert np.abs(np.mean(counts, 0) - exact).max() < 5 * np.sqrt(0.5 / 4000)


class Here:
    """Workers in this process."""

    def __init__(self, cls: Any, arguments: Any, timeout: float, **options: Any) -> None:
        self.cls, self.arguments, self.restarts = cls, list(arguments), 0
        self.objects = [cls(*each) for each in self.arguments]
        self.asked: deque[tuple[int, str, tuple[Any, ...]]] = deque()
        self.dead: set[int] = set()
        self.stopped = False

    def ask(self, worker: int, method: str, *arguments: Any) -> None:
        self.asked.append((worker, method, arguments))

    def waiting_for(self, worker: int) -> int:
        return sum(asked[0] == worker for asked in self.asked)

    def answers(self) -> list[tuple[int, str, Any]]:
        if not self.asked:
            return []
        worker, method, arguments = self.asked.popleft()
        if worker in self.dead:
            self.asked = deque(asked for asked in self.asked if asked[0] != worker)
            return [(worker, method, Failure(RuntimeError("killed"), gone=True))]
        return [(worker, method, getattr(self.objects[worker], method)(*arguments))]

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        assert not self.asked
        return [getattr(one, method)(*(each[i] for each in arguments)) for i, one in enumerate(self.objects)]

    def renew(self, worker: int) -> None:
        self.restarts += 1
        self.dead.discard(worker)
        self.objects[worker] = self.cls(*self.arguments[worker])

    def stop(self) -> None:
        self.stopped = True


def sharded(monkeypatch: pytest.MonkeyPatch, envs: int = 3, shards: int = 2, **options: Any) -> Any:
    monkeypatch.setattr(module, "Workers", Here)
    buffer: Any = ShardedReplayBuffer(60, BOX, CHOICES, "cpu", envs, shards=shards, seed=1, **options)
    buffer.sampler.seed(4)
    for step in steps_in(fragment(0, 10, envs)):
        buffer.record(step)
    return buffer


def drawn(buffer: Any, rows: int) -> tuple[Transition, Any]:
    found = list(buffer.transitions(rows, 0.99))
    assert len(found) == 1
    return found[0]


def test_shards_are_drawn_from_as_one_buffer_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two environments in one shard, one in the other; priorities that grow with time and environment."""
    buffer = sharded(monkeypatch, sampler=Prioritized(alpha=1.0, beta=0.5))
    seen: dict[tuple[int, int], int] = {}
    for _ in range(40):  # every row has been drawn, and says how wrong it is
        transition, indices = drawn(buffer, 30)
        t, env = transition.observations.T
        buffer.update_priorities(indices, 1 + t + 10 * env)
    many = 300
    for _ in range(many):
        transition, _ = drawn(buffer, 30)
        for place in zip(*transition.observations.T.int().tolist(), strict=True):
            seen[place] = seen.get(place, 0) + 1
    priorities = {(t, env): 1 + t + 10 * env + 1e-6 for t in range(10) for env in range(3)}
    total = sum(priorities.values())
    for place, priority in priorities.items():
        share = priority / total
        bound = 5 * np.sqrt(share / (30 * many))  # of independent draws, which strata only make steadier
        assert abs(seen.get(place, 0) / (30 * many) - share) < bound
    t, env = transition.observations.T.numpy()
    likely = 30 * (1 + t + 10 * env + 1e-6) / total
    np.testing.assert_allclose(transition.weights, (likely / likely.min()) ** -0.5, rtol=1e-5)


def test_new_rows_get_the_highest_priority_of_any_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = sharded(monkeypatch, envs=2, sampler=Prioritized(alpha=1.0, beta=0.5))
    transition, indices = drawn(buffer, 20)
    errors = torch.where(transition.observations[:, 1] == 0, 50.0, 0.0)  # only the first shard hears of 50
    buffer.update_priorities(indices, errors)
    for step in steps_in(fragment(10, 1)):
        buffer.record(step)
    buffer.can_sample()
    buffer._settle()
    trees = [worker.buffer.sampler.tree.leaves for worker in buffer._workers.objects]
    assert [tree[10] for tree in trees] == pytest.approx([50.0, 50.0], abs=1e-5)


@pytest.mark.parametrize("waiting", [1, 3])
def test_a_shard_that_dies_is_replaced_by_an_empty_one(monkeypatch: pytest.MonkeyPatch, waiting: int) -> None:
    buffer = sharded(monkeypatch, waiting=waiting, sampler=Prioritized())
    _, indices = drawn(buffer, 8)
    buffer._workers.dead.add(0)
    buffer.update_priorities(indices, torch.ones(8))
    with pytest.warns(RuntimeWarning, match="shard 1 of 2 is gone"):
        transition, _ = drawn(buffer, 8)
    assert transition.observations[:, 1].unique().tolist() == [2], "what the other holds"
    assert buffer.num_restarts == 1
    assert buffer.size() == 10 // 3
    for step in steps_in(fragment(10, 5, 3)):
        buffer.record(step)
    assert buffer.can_sample()
    buffer._settle()
    found = torch.cat([drawn(buffer, 16)[0].observations for _ in range(6)])
    assert found[:, 1].unique().tolist() == [0, 1, 2]
    assert (found[found[:, 1] < 2, 0] >= 10).all(), "the new one holds what came since"
    shard = buffer._workers.objects[0].buffer.sampler
    before = shard.tree.leaves.copy()
    buffer.update_priorities(indices, torch.full((8,), 77.0))  # of rows, some of which died with the first one
    buffer._settle()
    np.testing.assert_array_equal(shard.tree.leaves, before)
    buffer._workers.dead |= {0, 1}
    buffer._draws.clear()
    with pytest.warns(RuntimeWarning, match="shard [12] of 2 is gone"):
        assert list(buffer.transitions(8, 0.99, batches=2)) == []
    assert not buffer.can_sample()


def test_shards_are_kept_in_a_state_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, other = (sharded(monkeypatch) for _ in range(2))
    for step in steps_in(fragment(10, 5, 3)):
        buffer.record(step)
    state = buffer.state_dict()
    other.load_state_dict(state)
    assert other.size() == buffer.size() == 15
    assert {k: np.shape(v) for k, v in other.state_dict().items()} == {k: np.shape(v) for k, v in state.items()}
    with pytest.raises(ValueError, match="has 2 shards, this one 1"):
        sharded(monkeypatch, shards=1).load_state_dict(state)
    buffer.close()
    assert buffer._workers.stopped


def test_there_must_be_an_environment_for_each_shard() -> None:
    made = DQNConfig().environment("CartPole-v1").env_runners(num_envs_per_env_runner=2)
    with pytest.raises(HyperparameterError, match="num_replay_buffer_shards.*=3"):
        made.training(replay_buffer_config={"num_replay_buffer_shards": 3}).validate()
    with pytest.raises(HyperparameterError, match="num_replay_buffer_shards.*=-1"):
        made.training(replay_buffer_config={"num_replay_buffer_shards": -1}).validate()


# -- evaluation dealt out ----------------------------------------------------------------------------------------------


def test_evaluators_play_together_what_was_ordered() -> None:
    order = Order(7, in_steps=False, explores=False, seed=5)
    parts = parts_of(order, 3)
    assert [part and part.duration for part in parts] == [3, 2, 2]
    assert len({part.seed for part in parts if part}) == 3
    assert parts_of(order._replace(duration=2), 3)[2] is None
    assert parts_of(order, 1) == [order]
    steps = parts_of(order._replace(in_steps=True, duration=100), 3)
    assert [part and part.duration for part in steps] == [34, 34, 34]
