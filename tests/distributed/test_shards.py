"""Parts of a replay buffer elsewhere, on the plain face: ``n_replay_shards``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import polyak
from polyak import DQN, SAC, HerReplayBuffer, arrays
from polyak.distributed.shards import ShardedReplay, dealt
from polyak.envs import VecNormalize, make_vec_env
from polyak.experience import Dataset, ReplayBuffer
from polyak.experience.samplers import Prioritized
from polyak.experience.step import Step
from tests.distributed.test_runners import REPLAY, Parts, Reaching, carts, strict, weights
from tests.laws.resumption import SaveAt
from tests.pairs import one_of_each

MEMORY = {"net_arch": [8], "memory": "lstm", "memory_size": 8, "max_seq_len": 4}
PRIORITIES = {"alpha": 0.7, "beta": 0.5}


def poles(index: int = 0) -> Any:
    return make_vec_env("Pendulum-v1", n_envs=2)


CASES: dict[str, Any] = {
    "sac": lambda **o: SAC("MlpPolicy", poles, n_runners=2, **REPLAY, **o),
    "dqn": lambda **o: DQN(
        "MlpPolicy", carts, n_runners=2, prioritized=PRIORITIES, n_steps=3, train_freq=3, **REPLAY, **o
    ),
    "masks": lambda **o: DQN("MlpPolicy", strict, n_runners=2, **REPLAY, **o),
    "here": lambda **o: SAC("MlpPolicy", poles(), optimize_memory_usage=True, **REPLAY, **o),
    "normalised": lambda **o: SAC("MlpPolicy", VecNormalize(poles()), n_steps=(1, 3), **REPLAY, **o),
    "recurrent": lambda **o: DQN(
        "MlpPolicy", carts, n_runners=1, prioritized=True, **{**REPLAY, "policy_kwargs": MEMORY}, **o
    ),
    "overlap": lambda **o: SAC("MlpPolicy", poles, n_runners=2, overlap=True, **REPLAY, **o),
}  # fmt: skip


def buffer(shards: int = 2, size: int = 100, n_envs: int = 4, **options: Any) -> ShardedReplay:
    space = spaces.Box(-1, 1, (1,), np.float32)
    return ShardedReplay(
        size,
        space,
        spaces.Discrete(2),
        torch.device("cpu"),
        n_envs,
        n_shards=shards,
        transport="local",
        model_seed=0,
        **options,
    )


@pytest.mark.parametrize("case", one_of_each(CASES, "masks"))
def test_two_trainings_are_equal(case: str) -> None:
    one = CASES[case](n_replay_shards=2, transport="local").learn(150)
    other = CASES[case](n_replay_shards=2, transport="local").learn(150)
    np.testing.assert_array_equal(weights(one), weights(other))
    assert np.isfinite(weights(one)).all()
    assert one._n_updates > 0


def assert_same_rows(one: Any, other: Any) -> None:
    found = dict(arrays.paths(one.replay_buffer.contents()))
    for name, column in arrays.paths(other.replay_buffer.contents()):
        np.testing.assert_array_equal(found[name], column, err_msg=name)


def _untrained(case: str, shards: int) -> Any:
    model = CASES[case](n_replay_shards=shards, transport="local")
    model.learning_starts = 1000
    return model.learn(240)


@pytest.mark.parametrize("case", ["dqn", "here", "normalised"])
def test_shards_hold_what_one_buffer_holds(case: str) -> None:
    """Before gradient steps, which depend on what is drawn."""
    assert_same_rows(_untrained(case, 2), _untrained(case, 0))


def test_batches_are_made_of_stored_rows() -> None:
    """Every row of a batch is one that was stored, normalised by the newest statistics."""
    model = _untrained("normalised", 2)
    model.replay_buffer.discount_by(0.5)
    normalizer = model.get_vec_normalize_env()
    rows = model.replay_buffer.contents()
    known = normalizer.normalize_obs(rows["observations"].reshape(-1, 3)).round(4)
    for batch, indices in model.replay_buffer.transitions(32, 0.99, normalizer, batches=3):
        assert indices is None
        assert batch.observations.shape == (32, 3)
        assert set(batch.discounts.numpy().round(6)) <= {0.5, 0.25, 0.125}
        for row in batch.observations.numpy().round(4):
            assert (known == row).all(1).any()


def test_what_cannot_be_drawn_is_said() -> None:
    with pytest.warns(RuntimeWarning, match="all replay shards are empty: 3 minibatches are left out"):
        assert not list(buffer().transitions(8, 0.99, batches=3))


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


def drawn(sharded: ShardedReplay, rows: int = 64) -> Any:
    return next(sharded.transitions(rows, 0.99))


def test_a_batch_comes_from_shards_in_proportion_to_their_priorities() -> None:
    sharded = _filled(buffer(sampler="prioritized"))
    for _ in range(20):  # rows of environments 0 and 1 are no longer wrong
        batch, indices = drawn(sharded)
        sharded.update_priorities(indices, np.where(batch.observations.numpy()[:, 0] < 0, 0.0, 1.0))
    batch, indices = drawn(sharded)
    assert (batch.observations[:, 0] > 0).float().mean() > 0.95
    assert batch.weights.max() == 1
    likely = batch.observations[:, 0] > 0
    assert (batch.weights[likely] <= batch.weights.max()).all()


def test_shards_are_drawn_from_as_one_buffer_would_be() -> None:
    """Two environments in one shard, one in the other; priorities that grow with time and environment."""
    sharded = buffer(size=60, n_envs=3, sampler=Prioritized(alpha=1.0, beta=0.5))
    flags = np.zeros(3, bool)
    infos: Any = [{}] * 3
    for t in range(10):
        seen = (t + 10 * np.arange(3, dtype=np.float32))[:, None] / 100
        sharded.record(Step(seen, np.zeros(3), None, np.ones(3), seen, flags, flags, flags, infos, None, flags, False))
    for _ in range(40):  # every row has been drawn, and says how wrong it is
        batch, indices = drawn(sharded, 30)
        sharded.update_priorities(indices, 1 + 100 * batch.observations[:, 0])
    many = 300
    counts = np.zeros(30)
    for _ in range(many):
        batch, _ = drawn(sharded, 30)
        places = (100 * batch.observations[:, 0]).round().long().numpy()
        counts += np.bincount(places, minlength=30)
    priorities = 1 + np.arange(30) + 1e-6
    shares = priorities / priorities.sum()
    bound = 5 * np.sqrt(shares / (30 * many))  # of independent draws, which strata only make steadier
    assert (np.abs(counts / (30 * many) - shares) < bound).all()
    likely = shares[places]
    np.testing.assert_allclose(batch.weights, (likely / likely.min()) ** -0.5, rtol=1e-4)


def test_batches_that_are_drawn_ahead_follow_what_was_known_before() -> None:
    """With two of them ahead, an error changes the third batch from then on."""
    sharded = _filled(buffer(sampler=Prioritized(alpha=1.0), drawn_ahead=2))
    batch, indices = drawn(sharded)
    assert len(sharded._asked) == 1
    for _ in range(30):
        sharded.update_priorities(indices, np.where(batch.observations.numpy()[:, 0] < 0, 0.0, 1.0))
        batch, indices = drawn(sharded)
    assert (batch.observations[:, 0] > 0).all()
    assert len(drawn(sharded, 16)[0].rewards) == 16, "those of another size are left out"
    one, other = buffer(drawn_ahead=3), buffer(drawn_ahead=3)
    drawn(_filled(one))
    other.load_state_dict(one.state_dict())
    for ours, theirs in zip(one.transitions(8, 0.99, batches=4), other.transitions(8, 0.99, batches=4), strict=True):
        assert torch.equal(ours[0].observations, theirs[0].observations)
    with pytest.raises(ValueError, match="drawn_ahead.*=0"):
        buffer(drawn_ahead=0)


def test_new_rows_get_the_highest_priority_of_any_shard() -> None:
    sharded = _filled(buffer(sampler="prioritized", size=400))
    _, indices = drawn(sharded)
    sharded.update_priorities(indices[:1], np.array([5.0]))  # of one row in one shard
    _filled(sharded)
    sharded._send()
    sharded._settle()
    for worker in sharded.workers._objects:  # type: ignore[union-attr]
        newest = worker.buffer.sampler.tree.leaves.reshape(-1, 2)[worker.buffer.storage.newest]
        np.testing.assert_allclose(newest, (5 + sharded.sampler.eps) ** sharded.sampler.alpha)


def _filled(sharded: ShardedReplay, steps: int = 20) -> ShardedReplay:
    """With steps of which the observations tell the shard: below 0 in the first."""
    signs = np.array([-1.0, -1.0, 1.0, 1.0], np.float32)[:, None]
    for step in range(steps):
        seen, flags = signs * (0.1 + step / 100), np.zeros(4, bool)
        empty: Any = [{}] * 4
        sharded.record(Step(seen, np.zeros(4), None, np.ones(4), seen, flags, flags, flags, empty, None, flags, False))
    return sharded


@pytest.mark.parametrize("case", one_of_each([case for case in CASES if case != "overlap"], "dqn", "recurrent"))
def test_training_resumes_exactly(case: str, tmp_path: Path) -> None:
    whole = CASES[case](n_replay_shards=2, transport="local")

    whole.learn(150, SaveAt(90, tmp_path / "half.zip"))
    recipe = CASES[case](n_replay_shards=0, transport="local").env
    half = type(whole).load(
        tmp_path / "half.zip", env=getattr(recipe, "recipe", recipe), resume=True, device=torch.device("cpu")
    )
    assert half.n_replay_shards == 2
    half.learn(150 - half.num_timesteps, reset_num_timesteps=False)
    np.testing.assert_array_equal(weights(whole), weights(half))
    assert_same_rows(half, whole)


def test_a_saved_buffer_fits_as_many_shards(tmp_path: Path) -> None:
    sharded = CASES["here"](n_replay_shards=2, transport="local").learn(60)
    sharded.save_replay_buffer(tmp_path / "buffer.pkl")
    again = CASES["here"](n_replay_shards=2, transport="local")
    again.load_replay_buffer(tmp_path / "buffer.pkl")
    assert again.replay_buffer.size() == sharded.replay_buffer.size() > 0
    with pytest.raises(ValueError, match="n_replay_shards=2, this one 0"):
        CASES["here"]().load_replay_buffer(tmp_path / "buffer.pkl")
    CASES["here"]().learn(10).save_replay_buffer(tmp_path / "whole.pkl")
    with pytest.raises(ValueError, match="n_replay_shards=0, this one 2"):
        again.load_replay_buffer(tmp_path / "whole.pkl")


def test_what_is_not_here_is_refused() -> None:
    model = CASES["here"](n_replay_shards=2, transport="local").learn(60)
    for name in ("rewards", "sample", "add", "storage", "replace_rewards"):
        with pytest.raises(AttributeError, match=rf"replay_buffer\.{name}.*n_replay_shards"):
            getattr(model.replay_buffer, name)
    assert len(Dataset.from_model(model)) == 60
    model.replay_buffer.reset()
    assert model.replay_buffer.size() == 0
    assert not model.replay_buffer.can_sample()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_replay_shards": 3}, "n_replay_shards=3.*there are 2"),
        ({"n_replay_shards": -1}, "n_replay_shards=-1"),
        ({"replay_buffer_class": ReplayBuffer}, "replay_buffer_class"),
        ({"prioritized": {"kind": "rank"}}, "prioritized.*ranks in one"),
        ({"replay_buffer_kwargs": {"sampler": "rank_based"}}, "sampler.*ranks in one"),
    ],
)
def test_values_that_cannot_be_used_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CASES["here"](transport="local", **{"n_replay_shards": 2, **options})


def test_hindsight_is_refused() -> None:
    with pytest.raises(ValueError, match="hindsight asks environments"):
        SAC("MultiInputPolicy", Reaching(), replay_buffer_class=HerReplayBuffer, n_replay_shards=1, **REPLAY)
    with pytest.raises(ValueError, match="DAgger reads what it stored"):
        polyak.DAgger("MlpPolicy", "CartPole-v1", expert=lambda seen: 0, n_replay_shards=1)
    with pytest.raises(ValueError, match="n_replay_shards=1"):
        polyak.AIRL("MlpPolicy", "CartPole-v1", generator="dqn", generator_kwargs={"n_replay_shards": 1})


def test_a_dataset_is_drawn_from_beside_shards() -> None:
    data = polyak.experience.collect("Pendulum-v1", None, 50, seed=0)
    model = SAC("MlpPolicy", data, n_replay_shards=2, transport="local", dataset_share=0.5, **REPLAY)
    model.set_env(poles())
    model.learn(60)
    assert model.replay_buffer is not None
    assert model.replay_buffer.size() == 30
    assert model._n_updates > 0


def test_dicts_and_images_reach_shards() -> None:
    env = Parts()
    sharded = ShardedReplay(
        40,
        env.observation_space,
        spaces.Discrete(2),
        torch.device("cpu"),
        2,
        n_shards=2,
        transport="local",
        model_seed=None,
        optimize_memory_usage=True,
    )
    rng = np.random.default_rng(0)
    flags = np.zeros(2, bool)
    infos: Any = [{}, {}]
    for _ in range(70):
        seen = {"camera": rng.integers(0, 255, (2, 36, 36, 1), np.uint8), "speed": rng.random((2, 3), np.float32)}
        sharded.record(Step(seen, np.zeros(2), None, np.ones(2), seen, flags, flags, flags, infos, None, flags, False))
    rows = sharded.contents()
    assert rows["observations"]["camera"].shape[1:] == (2, 36, 36, 1)
    np.testing.assert_array_equal(rows["next_observations"]["camera"][-1], seen["camera"])
    batch: Any = next(sharded.transitions(16, 0.99))[0]
    assert batch.observations["camera"].shape == (16, 36, 36, 1)
