"""Training that is resumed in another process, from a file alone, ends with the weights of one that went through."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak import A2C, DQN, PPO, SAC
from polyak.envs import SubprocVecEnv, VecNormalize, make_vec_env

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {"seed": 0, "device": "cpu", "policy_kwargs": {"net_arch": [8]}}
OFF: dict[str, Any] = {**SMALL, "learning_starts": 20, "batch_size": 8, "buffer_size": 500}
WORKERS = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": "spawn"}}
ENVS: dict[str, Any] = {
    "ppo": lambda: make_vec_env("CartPole-v1", n_envs=2),
    "ppo normalised": lambda: VecNormalize(make_vec_env("Pendulum-v1", n_envs=2)),
    "a2c workers": lambda: make_vec_env("CartPole-v1", n_envs=2, **WORKERS),
    "dqn": lambda: make_vec_env("Acrobot-v1", n_envs=1),
    "sac mujoco": lambda: make_vec_env("Ant-v5", n_envs=1),
}
MODELS: dict[str, Any] = {
    "ppo": lambda env: PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, **SMALL),
    "ppo normalised": lambda env: PPO("MlpPolicy", env, n_steps=32, batch_size=32, use_sde=True, **SMALL),
    "a2c workers": lambda env: A2C("MlpPolicy", env, **SMALL),
    "dqn": lambda env: DQN("MlpPolicy", env, prioritized=True, **OFF),
    "sac mujoco": lambda env: SAC("MlpPolicy", env, **OFF),
}
ALGORITHMS = {"ppo": PPO, "ppo normalised": PPO, "a2c workers": A2C, "dqn": DQN, "sac mujoco": SAC}
TOTAL, HALF = 230, 101
"""The half lies in the middle of an episode, and of a rollout."""


def weights(model: Any) -> np.ndarray:
    return model.policy.parameters_to_vector()


def main(case: str, folder: str) -> None:
    """Resume what was saved, with environments that are made again."""
    env = ENVS[case]()
    bare = env.venv if isinstance(env, VecNormalize) else env  # the file has the statistics
    model = ALGORITHMS[case].load(Path(folder) / "half.zip", env=bare, resume=True, device="cpu")
    model.learn(TOTAL - model.num_timesteps, reset_num_timesteps=False)
    np.save(Path(folder) / "resumed.npy", weights(model))
    env.close()


@pytest.mark.slow  # what the suite tries of it is in tests/laws/test_resumption.py
@pytest.mark.parametrize("case", MODELS)
def test_weights_are_equal_to_the_bit(case: str, tmp_path: Path) -> None:
    if "mujoco" in case:
        pytest.importorskip("mujoco")
    env = ENVS[case]()
    model = MODELS[case](env)

    def save(names: dict[str, Any], _: Any) -> bool:
        model = names["self"]
        if HALF <= model.num_timesteps < HALF + model.n_envs:
            model.save(tmp_path / "half.zip", include=model.saves_also)
        return True

    model.learn(TOTAL, callback=save)
    env.close()
    command = [sys.executable, "-W", "error:training resumes with new episodes", "-m", __name__, case, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "resumed.npy"), weights(model))


if __name__ == "__main__":
    main(*sys.argv[1:])
