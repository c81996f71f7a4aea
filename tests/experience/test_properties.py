"""Any mixture of samplers, n-step returns, hindsight, sequences and observations kept once, in numpy and in tensors,
equals a loop over rows."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from polyak.arrays import leaves, mapped
from polyak.experience import Hindsight, ReplayBuffer, Sequence, Transition
from tests.experience.test_ring import N_ENVS, rows_of

GAMMA = 0.9
VECTOR = spaces.Box(-1e6, 1e6, (1,), np.float32)
GOALS = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), VECTOR))

mixtures = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "steps": st.integers(8, 60),
        "size": st.integers(8, 40),
        "sampler": st.sampled_from(["uniform", "prioritized", "rank_based"]),
        "n_steps": st.one_of(st.integers(1, 3), st.just((1, 3))),
        "length": st.one_of(st.none(), st.integers(1, 3)),
        "burn_in": st.integers(0, 2),
        "once": st.booleans(),
        "goals": st.one_of(st.none(), st.sampled_from([(0, "future"), (1, "final"), (4, "episode"), (4, "future")])),
        "saved_at": st.integers(0, 60),
    }
)


class Judge:
    """An environment whose rewards are those of :func:`reward`."""

    def env_method(self, name: str, achieved: Any, desired: Any, infos: Any, indices: Any) -> list[Any]:
        return [reward(achieved, desired)]


def reward(achieved: Any, desired: Any) -> Any:
    return -1.0 * (achieved != desired)[..., 0]


def made(in_tensors: bool, mixture: dict[str, Any]) -> ReplayBuffer:
    length, n_steps, goals = mixture["length"], mixture["n_steps"], mixture["goals"]
    if length is not None and isinstance(n_steps, tuple):
        n_steps = 2  # sequences take one number
    return ReplayBuffer(
        mixture["size"] * N_ENVS,
        VECTOR if goals is None else GOALS,
        spaces.Discrete(5),
        "cpu",
        N_ENVS,
        mixture["once"],
        sampler=mixture["sampler"],
        relabel=None if goals is None else Hindsight(Judge(), *goals),
        n_steps=n_steps,
        gamma=GAMMA,
        reduce=None if length is None else Sequence(length, mixture["burn_in"]),
        seed=mixture["seed"],
        in_tensors=in_tensors,
    )


def add(buffer: ReplayBuffer, row: dict[str, Any]) -> None:
    names = ("observations", "next_observations", "actions", "rewards")
    columns = (*(row[name] for name in names), row["terminated"] | row["truncated"])
    if buffer.in_tensors:
        columns = tuple(mapped(torch.as_tensor, column) for column in columns)
    buffer.add(*columns, [{"TimeLimit.truncated": bool(flag)} for flag in row["truncated"]])


@settings(max_examples=80, deadline=None)
@given(mixtures)
def test_every_mixture_equals_a_loop_over_rows(mixture: dict[str, Any]) -> None:
    """Also after it was saved and loaded on the way."""
    rows = rows_of(mixture["steps"], mixture["seed"], goals=mixture["goals"] is not None)
    buffers = [made(False, mixture), made(True, mixture)]
    for t, row in enumerate(rows):
        for i, buffer in enumerate(buffers):
            add(buffer, row)
            if t == mixture["saved_at"]:
                buffers[i] = made(buffer.in_tensors, mixture)
                buffers[i].load_state_dict(buffer.state_dict())
    can = [buffer.can_sample() for buffer in buffers]
    assert can[0] == can[1]
    if not can[0]:
        return
    for _ in range(3):
        drawn = [next(buffer.transitions(32, GAMMA)) for buffer in buffers]
        ours, theirs = (leaves(batch._asdict()) for batch, _ in drawn)
        assert all(one is other is None or torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
        for buffer, (_, cells) in zip(buffers, drawn, strict=True):
            if cells is not None:
                buffer.update_priorities(cells, torch.linspace(0, 3, 32))
    check(drawn[0][0], buffers[0], rows, mixture)


def check(batch: Transition, buffer: ReplayBuffer, rows: list[Any], mixture: dict[str, Any]) -> None:
    """Each transition of a batch against the rows that it was made of."""
    goals = mixture["goals"] is not None
    columns = {name: column for name, column in batch._asdict().items() if name != "weights" and column is not None}
    if batch.valid is None:
        columns = mapped(lambda column: column[:, None], columns)
    number, then = (
        columns[name]["observation"] if goals else columns[name] for name in ("observations", "next_observations")
    )
    place = {
        float((row["observations"]["observation"] if goals else row["observations"])[env, 0]): (t, env)
        for t, row in enumerate(rows)
        for env in range(N_ENVS)
    }
    relabelled = int(buffer.relabel.her_ratio * 32) if isinstance(buffer.relabel, Hindsight) else 0
    for i, j in np.ndindex(number.shape[:2]):
        t, env = place[float(number[i, j, 0])]
        assert t >= len(rows) - mixture["size"]  # it was not overwritten
        if batch.valid is not None and not batch.valid[i, j]:
            assert columns["rewards"][i, j] == columns["discounts"][i, j] == 0
            continue
        true = [rows[u]["next_observations"] for u in range(t, min(t + 3, len(rows)))]
        ends = [(part["observation"] if goals else part)[env, 0] for part in true]
        steps = ends.index(float(then[i, j, 0])) + 1
        inside = window_of(rows, t, env, buffer.n_steps)
        assert steps == len(inside) or (mixture["n_steps"] == (1, 3) and steps < len(inside))
        last = rows[t + steps - 1]
        discount = 0 if last["terminated"][env] else GAMMA**steps
        np.testing.assert_allclose(columns["discounts"][i, j], discount, rtol=1e-6)
        rewards = [float(rows[u]["rewards"][env]) for u in inside[:steps]]
        if goals and i < relabelled:
            goal = columns["observations"]["desired_goal"][i, j].numpy()
            assert np.array_equal(goal, columns["next_observations"]["desired_goal"][i, j])
            rewards = [float(reward(rows[u]["next_observations"]["achieved_goal"][env], goal)) for u in inside[:steps]]
            reached = next(u for u in range(len(rows)) if rows[u]["next_observations"]["achieved_goal"][env] == goal)
            low, high = sorted((t, reached))
            assert not any(_ended(rows[u], env) for u in range(low, high))  # it was reached in the same episode
            assert mixture["goals"][1] != "final" or _ended(rows[reached], env)
            # of sequences, the first transition had not reached it yet
            assert mixture["goals"][1] == "episode" or batch.valid is not None or reached >= t
        elif goals:
            assert (columns["observations"]["desired_goal"][i, j] == -1).all()
        expected = sum(GAMMA**k * reward for k, reward in enumerate(rewards))
        # at most 3 float32 terms of size < 10, each rounded, and their sum
        np.testing.assert_allclose(columns["rewards"][i, j], expected, atol=1e-5)


def window_of(rows: list[Any], t: int, env: int, most: int) -> list[int]:
    """Times from t on that belong to the same episode."""
    times = [t]
    while len(times) < most and not _ended(rows[times[-1]], env) and times[-1] + 1 < len(rows):
        times.append(times[-1] + 1)
    return times


def _ended(row: dict[str, Any], env: int) -> bool:
    return bool(row["terminated"][env] or row["truncated"][env])
