"""Seeds of environments side by side: runs with neighbouring seeds share no episode."""

import gymnasium as gym
import numpy as np
import pytest

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.native.gym_vector import GymVectorEnv
from polyak.envs.vec.seeds import seeds_of
from polyak.envs.vec.subproc import SubprocVecEnv


def test_runs_with_neighbouring_seeds_share_no_environment_seed() -> None:
    drawn = [seed for run in range(200) for seed in seeds_of(run, 16)[1:]]
    assert len({*drawn, *range(200)}) == 200 * 16  # 31 bits: a collision has a chance of 0.3 %, and these are fixed
    assert all(0 <= seed < 2**31 for seed in drawn)


def test_one_environment_gets_the_seed_itself_and_more_environments_change_no_seed() -> None:
    assert seeds_of(2**32 - 1, 1) == [2**32 - 1]
    assert seeds_of(5, 8)[:3] == seeds_of(5, 3)


@pytest.mark.parametrize("kind", ["dummy", "subproc", "sync", "shared generator"])
def test_no_first_observation_comes_twice_in_runs_with_neighbouring_seeds(kind: str) -> None:
    makers = [lambda: gym.make("CartPole-v1")] * 4
    vectors = {
        "dummy": lambda: DummyVecEnv(makers),
        "subproc": lambda: SubprocVecEnv(makers, start_method="fork", n_workers=2),
        "sync": lambda: GymVectorEnv(gym.vector.SyncVectorEnv(makers)),
        "shared generator": lambda: GymVectorEnv(gym.make_vec("CartPole-v1", 4), reset_mask=True),
    }
    venv = vectors[kind]()
    seen = []
    for seed in (0, 1, 2, 0):
        venv.seed(seed)
        seen.append(venv.reset())
    venv.close()
    np.testing.assert_array_equal(seen[0], seen[3])
    assert len(np.unique(np.concatenate(seen[:3]), axis=0)) == 12
