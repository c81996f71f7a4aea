"""What the toys show besides conformance: columns that arrive, and that the toys really learn."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak.collecting.actor import Actor
from polyak.collecting.runner import Runner
from polyak.envs import DummyVecEnv
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.experience import Column, ReplayBuffer
from polyak.experience.sampling.reduce import Sequence
from tests.laws.toys.recurrent import WIDTH, ElmanPolicy, RecurrentA2C
from tests.laws.toys.table import QTable
from tests.tolerance import bound
from tests.trials import trial


def test_what_an_actor_remembers_goes_through_rollouts_to_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    model = RecurrentA2C(**{**trial(RecurrentA2C), "env": "CartPole-v1", "normalize_advantage": False})
    seen: list[Any] = []
    judged = type(model.learner).evaluated

    def watched(learner: Any, batch: Any) -> Any:
        seen.append(batch)
        return judged(learner, batch)

    monkeypatch.setattr(type(model.learner), "evaluated", watched)
    model.learn(128)
    hidden = seen[-1].extras["hidden"]
    assert hidden.shape == (64, WIDTH)
    assert hidden.any()


def test_rows_of_a_rollout_hold_the_memory_from_before_their_step() -> None:
    model = RecurrentA2C(**{**trial(RecurrentA2C), "env": "CartPole-v1"})
    policy, (_, callback) = model.policy, model._setup_learn(64)
    assert isinstance(policy, ElmanPolicy)
    type(model).loop(model, callback, None).collect(64)
    buffer = model.rollout_buffer
    hidden, starts = buffer.extras["hidden"], buffer.episode_starts > 0
    assert starts[1:].any()
    assert not hidden[starts].any()
    with torch.no_grad():
        after = policy.remember(torch.from_numpy(buffer.observations[:, 0]), torch.from_numpy(hidden[:, 0]))
    same_episode = ~starts[1:, 0]
    near = bound(64 + WIDTH, size=10)  # a sum over the widths before the cell, of terms below 10
    np.testing.assert_allclose(after.numpy()[:-1][same_episode], hidden[1:, 0][same_episode], rtol=0, atol=near)


def test_a_replayed_sequence_is_unrolled_from_the_memory_stored_with_its_first_row() -> None:
    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2)
    env.seed(0)
    torch.manual_seed(0)
    policy = ElmanPolicy(env.observation_space, env.action_space, net_arch=[8])
    column = Column("hidden", np.float32, (WIDTH,))
    buffer = ReplayBuffer(
        400, env.observation_space, env.action_space, "cpu", 2, columns=[column], reduce=Sequence(3, burn_in=2), seed=0
    )
    actor = Actor(policy)
    runner = Runner(FromVecEnv(env), actor)
    actor.begin(2)
    for _ in range(120):
        step = runner.step()
        buffer.record(step._replace(extras={"hidden": step.extras["hidden"]}))
    batch = buffer.sample(32)
    assert batch.extras is not None
    assert batch.valid is not None
    stored, hidden = batch.extras["hidden"], batch.extras["hidden"][:, 0]
    assert stored.shape == (32, 5, WIDTH)
    for t in range(4):
        with torch.no_grad():
            after = policy.remember(batch.observations[:, t], hidden)
        hidden = torch.where(batch.valid[:, t, None], after, hidden)  # before the episode there is nothing to remember
        both = batch.valid[:, t + 1]
        assert both.any()
        near = (t + 1) * bound(8 + WIDTH, size=10)  # each step adds the rounding of one sum
        torch.testing.assert_close(hidden[both], stored[:, t + 1][both], rtol=0, atol=near)


def test_a_table_learns_the_way_over_the_ice() -> None:
    env = gym.make("FrozenLake-v1", is_slippery=False)
    model = QTable(env, epsilon=0.5, seed=0).learn(4_000)
    steps = 0
    obs, _ = env.reset()
    ended = False
    while not ended and steps < 20:
        action, _ = model.predict(obs, deterministic=True)
        obs, reward, terminated, truncated, _ = env.step(int(action))
        ended, steps = terminated or truncated, steps + 1
    assert reward == 1
    assert steps == 6
