"""Files that version 0.1.0 wrote load, act as they did, and learn on.

They are kept as they were written: the code that wrote them is that version's.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.algorithms import get
from polyak.envs import BitFlippingEnv, VecNormalize, make_vec_env
from polyak.fields.off_policy import OffPolicyAlgorithm
from tests.pairs import one_of_each
from tests.tolerance import LIKELY, bound

FILES = Path(__file__).parent / "version_0_1_0"
MODELS = sorted(path.stem for path in FILES.glob("*.zip"))


def _environment(name: str) -> Any:
    if name == "sac_her":
        return BitFlippingEnv(n_bits=4, continuous=True)
    if name == "ppo_sde_normalized":
        return make_vec_env("Pendulum-v1", n_envs=2)
    return "CartPole-v1" if name.startswith(("ppo", "a2c", "dqn")) else "Pendulum-v1"


@pytest.mark.parametrize("name", MODELS)
def test_it_loads_and_acts_as_it_did(name: str) -> None:
    was = np.load(FILES / f"{name}.npz")
    model = get(name.split("_")[0]).load(FILES / name, device="cpu")
    keys = [key for key in was.files if key.startswith("obs")]
    obs = was["obs"] if keys == ["obs"] else {key.removeprefix("obs/"): was[key] for key in keys}
    actions, _ = model.policy.predict(obs, deterministic=True)
    # networks of two hidden layers of 8: products of at most 8 terms of order 1, squashed or unsquashed to +-2
    np.testing.assert_allclose(actions, was["actions"], rtol=0, atol=bound(3 * 8 + LIKELY, size=4))
    assert model.num_timesteps == was["steps"]
    assert model._n_updates == was["updates"]


@pytest.mark.parametrize("name", one_of_each(MODELS, "ppo_sde_normalized", "sac_her"))
def test_it_learns_on(name: str) -> None:
    model = get(name.split("_")[0]).load(FILES / name, env=_environment(name), device="cpu", resume=True)
    updates, steps = model._n_updates, model.num_timesteps
    if isinstance(model, OffPolicyAlgorithm) and name in ("dqn", "dqn_prioritized", "sac", "sac_her"):
        assert model.replay_buffer.size() > 0
    model.learn(130, reset_num_timesteps=False)
    assert model.num_timesteps >= steps + 130
    assert model._n_updates > updates


def test_a_replay_buffer_loads() -> None:
    model = get("sac").load(FILES / "sac", env="Pendulum-v1", device="cpu")
    model.load_replay_buffer(FILES / "sac_replay")
    assert model.replay_buffer.size() == 120


def test_statistics_load() -> None:
    env = VecNormalize.load(FILES / "vec_normalize.pkl", make_vec_env("Pendulum-v1", n_envs=2))
    assert env.obs_rms.count > 128
