"""``make learn``: three seeds of every learning task, each of which must reach its score."""

from __future__ import annotations

import numpy as np
import pytest

import polyak
from polyak.envs import MaskVelocityWrapper, VecGoalCurriculum, VecNormalize, make_vec_env, testing
from polyak.noise import NormalActionNoise

from .small_envs import Panel, PointMaze
from .tasks import LEARNING, PARITY, PEER_SAC_HALFCHEETAH, Library, train_and_score

POLYAK = Library(
    polyak,
    make_vec_env,
    NormalActionNoise,
    polyak.HerReplayBuffer,
    testing.BitFlippingEnv,
    panel=Panel,
    point_maze=PointMaze,
    curriculum=VecGoalCurriculum,
    testing=testing,
    mask_velocity=MaskVelocityWrapper,
    normalizer=VecNormalize,
)
SEEDS = (0, 1, 2)

pytestmark = pytest.mark.learn


def test_sac_learns_halfcheetah_as_fast_as_its_peer() -> None:
    # First in the file: it takes longest, and the other workers share out the rest meanwhile.
    task = PARITY["sac-halfcheetah-50k"]
    means = [float(np.mean(train_and_score(task, POLYAK, seed)[1])) for seed in SEEDS]
    mean, half_width = PEER_SAC_HALFCHEETAH
    print(f"SAC HalfCheetah-v5 at 50k steps: {means}; the peer's mean {mean:.0f} +- {half_width:.0f}")
    assert np.mean(means) >= mean - half_width


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LEARNING)
def test_reaches_its_score(name: str, seed: int) -> None:
    task = LEARNING[name]
    _, scores = train_and_score(task, POLYAK, seed)
    mean = float(np.mean(scores))
    print(f"{name} seed {seed}: {task.measure} {mean:.2f} over {len(scores)} episodes")
    assert task.holds(mean), f"{name} seed {seed}: {task.measure} {mean:.2f}, wanted {task.wanted()}"
