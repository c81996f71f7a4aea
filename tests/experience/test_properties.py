"""Any mixture of samplers, n-step returns, hindsight, sequences and frames kept once equals a loop over rows."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polyak.experience import Experience, Prioritized, RankBased, Uniform
from tests.experience.test_replay import GAMMA, _ended, _reward, replay_of, window_of
from tests.experience.test_ring import LIBRARIES, N_ENVS, array, rows_of

SAMPLERS = {"uniform": Uniform, "prioritized": Prioritized, "rank": RankBased}

mixtures = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "steps": st.integers(8, 60),
        "size": st.integers(8, 40),
        "sampler": st.sampled_from(sorted(SAMPLERS)),
        "n_steps": st.integers(1, 3),
        "length": st.one_of(st.none(), st.integers(1, 3)),
        "burn_in": st.integers(0, 2),
        "share_frames": st.booleans(),
        "share": st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0])),
    }
)


@settings(max_examples=60, deadline=None)
@given(mixtures)
def test_every_mixture_equals_a_loop_over_rows(mixture: dict[str, Any]) -> None:
    rows = rows_of(mixture["steps"], mixture["seed"], goals=mixture["share"] is not None)
    batches = [_drawn(rows, device, **mixture) for device in LIBRARIES]
    if None in batches:  # no episode has ended
        assert batches == [None, None]
        return
    ours, theirs = batches
    assert ours.keys() == theirs.keys()
    for name in ours:
        for one, other in zip(_leaves(ours[name]), _leaves(theirs[name]), strict=True):
            assert np.array_equal(array(one), array(other)), name
    _check(ours, rows, mixture)


def _drawn(rows: list[Any], device: Any, sampler: str, length: Any, burn_in: int, share: Any, **options: Any) -> Any:
    """A batch of 32, after some priorities were renewed; ``None`` where there is nothing to draw."""
    chosen: Any = SAMPLERS[sampler]()
    chosen.seed(1)
    options = {name: options[name] for name in ("n_steps", "share_frames", "size")}
    relabelled = None if share is None else {"share": share}
    burn_in = 0 if length is None else burn_in
    replay = replay_of(
        rows, device=device, sampler=chosen, length=length, burn_in=burn_in, relabelled=relabelled, **options
    )
    if not replay.can_sample():
        return None
    for _ in range(3):
        replay.sample(32)
        replay.update_priorities(replay.ring.index(np.linspace(0, 3, 32)))
    return replay.sample(32)


def _leaves(column: Any) -> list[Any]:
    return list(column.values()) if isinstance(column, dict) else [column]


def _check(batch: Experience, rows: list[Any], mixture: dict[str, Any]) -> None:
    """Each transition of a batch in numpy against the rows that it was made of."""
    sequences = mixture["length"] is not None
    columns = batch if sequences else batch.map(lambda column: column[:, None])
    goals = isinstance(batch.observations, dict)
    number = columns.observations["observation"] if goals else columns.observations
    place = {
        float((row["observations"]["observation"] if goals else row["observations"])[env, 0]): (t, env)
        for t, row in enumerate(rows)
        for env in range(N_ENVS)
    }
    relabelled = int((mixture["share"] or 0) * len(number))
    for i, j in np.ndindex(columns.lead):
        t, env = place[float(number[i, j, 0])]
        assert t >= len(rows) - mixture["size"] + mixture["share_frames"]  # it was not overwritten
        if sequences and not columns.valid[i, j]:
            assert columns.rewards[i, j] == columns.discounts[i, j] == 0
            continue
        inside = window_of(rows, t, env, mixture["n_steps"])
        last = rows[inside[-1]]
        then = columns.next_observations["observation"] if goals else columns.next_observations
        true = last["next_observations"]["observation"] if goals else last["next_observations"]
        assert np.array_equal(then[i, j], true[env])
        discount = 0 if last["terminated"][env] else GAMMA ** len(inside)
        np.testing.assert_allclose(columns.discounts[i, j], discount, rtol=1e-6)
        rewards = [float(rows[u]["rewards"][env]) for u in inside]
        if goals and i < relabelled:
            goal = columns.observations["desired_goal"][i, j]
            assert np.array_equal(goal, columns.next_observations["desired_goal"][i, j])
            rewards = [float(_reward(rows[u]["next_observations"]["achieved_goal"][env], goal)) for u in inside]
            reached = [u for u in range(len(rows)) if rows[u]["next_observations"]["achieved_goal"][env] == goal]
            low, high = sorted((t, reached[0]))
            assert not any(_ended(rows[u], env) for u in range(low, high))  # it was reached in the same episode
        elif goals:
            assert (columns.observations["desired_goal"][i, j] == -1).all()
        expected = sum(GAMMA**k * reward for k, reward in enumerate(rewards))
        # at most 3 float32 terms of size < 10, each rounded, and their sum
        np.testing.assert_allclose(columns.rewards[i, j], expected, atol=1e-5)
