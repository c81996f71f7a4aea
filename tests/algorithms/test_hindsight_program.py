"""The program of Stable-Baselines3's hindsight page, with only the imports changed, for each algorithm it names."""

from pathlib import Path
from typing import Any

import pytest

from polyak import DDPG, DQN, SAC, TD3, HerReplayBuffer
from polyak.envs import BitFlippingEnv
from polyak.experience import GoalSelectionStrategy

N_BITS = 15


@pytest.mark.parametrize(
    ("model_class", "goal_selection_strategy"),
    [
        (SAC, "future"),
        *(pytest.param(model_class, "future", marks=pytest.mark.slow) for model_class in (DQN, DDPG, TD3)),
        (DQN, GoalSelectionStrategy.FINAL),
        pytest.param(DQN, "episode", marks=pytest.mark.slow),
    ],
)
def test_train_save_load_and_act(model_class: Any, goal_selection_strategy: Any, tmp_path: Path) -> None:
    env = BitFlippingEnv(n_bits=N_BITS, continuous=model_class in [DDPG, SAC, TD3], max_steps=N_BITS)
    model = model_class(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": goal_selection_strategy},
        verbose=1,
        learning_starts=160,  # fewer updates than the program's, for speed; nothing else differs
    )
    model.learn(200)
    assert model._n_updates > 0

    model.save(tmp_path / "her_bit_env")
    model = model_class.load(tmp_path / "her_bit_env", env=env)
    obs, _ = env.reset()
    for _ in range(100):
        action, _ = model.predict(obs, deterministic=True)
        obs, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            obs, _ = env.reset()
    model.learn(30, reset_num_timesteps=False)
