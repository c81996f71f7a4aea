"""A policy of which a program has compiled a part is saved and loaded as one of which it has not."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from gymnasium import spaces

import polyak
from polyak import DQN, PPO, SAC
from polyak.algorithms.imitation.reward import RewardFunction
from polyak.compat.rllib_face.models.default_modules import DefaultPPOTorchRLModule
from polyak.nn.networks.rewards import RewardNet

CASES = [
    pytest.param(PPO, "CartPole-v1", ["mlp_extractor", "value_net"], {"n_steps": 64}, id="PPO"),
    pytest.param(SAC, "Pendulum-v1", ["actor", "critic"], {"learning_starts": 10}, id="SAC"),
    pytest.param(DQN, "CartPole-v1", ["q_net"], {"learning_starts": 10}, id="DQN", marks=pytest.mark.slow),
]


def compiled(module: torch.nn.Module) -> Any:
    """Wrapped by ``torch.compile``; "eager" so that no compiler is needed."""
    return torch.compile(module, backend="eager")


def made(cls: Any, env: str, parts: list[str], options: dict[str, Any]) -> Any:
    model = cls("MlpPolicy", env, seed=0, device="cpu", compile=False, policy_kwargs={"net_arch": [8]}, **options)
    for part in parts:
        setattr(model.policy, part, compiled(getattr(model.policy, part)))
    return model


def observation(model: Any) -> np.ndarray:
    return np.full(model.observation_space.shape, 0.1, np.float32)


@pytest.mark.parametrize(("cls", "env", "parts", "options"), CASES)
def test_it_is_saved_under_the_names_that_it_has_uncompiled(
    cls: Any, env: str, parts: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    model = made(cls, env, parts, options).learn(64)
    plain = made(cls, env, [], options)
    assert list(model.policy.state_dict()) == list(plain.policy.state_dict())
    assert list(model.get_parameters()["policy"]) == list(plain.policy.state_dict())
    model.save(tmp_path / "model")
    loaded = polyak.load(tmp_path / "model", env=env)
    obs = observation(model)
    assert (loaded.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]).all()
    for one, other in zip(model.policy.state_dict().values(), loaded.policy.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    loaded.learn(64)


@pytest.mark.parametrize(("cls", "env", "parts", "options"), CASES)
def test_weights_go_between_models_that_are_compiled_in_different_places(
    cls: Any, env: str, parts: list[str], options: dict[str, Any], tmp_path: Path
) -> None:
    trained, other = made(cls, env, parts[:1], options).learn(64), made(cls, env, parts[-1:], options)
    trained.save(tmp_path / "model")
    for source in (trained.get_parameters(), tmp_path / "model"):
        other.set_parameters(source)
        assert all(
            torch.equal(a, b) for a, b in zip(trained.policy.parameters(), other.policy.parameters(), strict=True)
        )
        other = made(cls, env, parts, options)
    other.policy.load_state_dict(trained.policy.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(trained.policy.parameters(), other.policy.parameters(), strict=True))
    with pytest.raises(RuntimeError, match="Missing key"):
        other.policy.load_state_dict({})


def test_a_file_with_torchs_names_loads(tmp_path: Path) -> None:
    """As version 0.1.0 wrote it."""
    model = made(PPO, "CartPole-v1", [], {"n_steps": 64}).learn(64)
    model.save(tmp_path / "plain")
    with zipfile.ZipFile(tmp_path / "plain.zip") as plain, zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        for member in plain.namelist():
            content = plain.read(member)
            if member == "networks.safetensors":
                tensors = safetensors.numpy.load(content)
                part, wrapped = "policy.mlp_extractor.", "policy.mlp_extractor._orig_mod."
                content = safetensors.numpy.save({k.replace(part, wrapped): v for k, v in tensors.items()})
                assert b"_orig_mod" in content
            old.writestr(member, content)
    loaded = PPO.load(tmp_path / "old")
    assert torch.equal(
        loaded.policy.mlp_extractor.policy_net[0].weight, model.policy.mlp_extractor.policy_net[0].weight
    )
    model.set_parameters(tmp_path / "old")


def test_files_of_the_peer(tmp_path: Path) -> None:
    """Written with plain names, and read with torch's, which the peer writes."""
    model = made(PPO, "CartPole-v1", ["mlp_extractor"], {"n_steps": 64}).learn(64)
    model.save_sb3(tmp_path / "theirs.zip")
    with zipfile.ZipFile(tmp_path / "theirs.zip") as theirs, zipfile.ZipFile(tmp_path / "wrapped.zip", "w") as wrapped:
        for member in theirs.namelist():
            with wrapped.open(member, "w") as target:
                if member == "policy.pth":
                    with theirs.open(member) as file:
                        weights = torch.load(file, weights_only=True)
                    assert not any("_orig_mod" in name for name in weights)
                    torch.save(
                        {k.replace("action_net.", "action_net._orig_mod."): v for k, v in weights.items()}, target
                    )
                else:
                    target.write(theirs.read(member))
    for name in ("theirs", "wrapped"):
        loaded = PPO.load(tmp_path / name)
        assert torch.equal(loaded.policy.action_net.weight, model.policy.action_net.weight)


def test_reward_functions_and_rllibs_modules(tmp_path: Path) -> None:
    seen, acted = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
    network = RewardNet(seen, acted)
    name = next(name for name, _ in network.named_children())
    setattr(network, name, compiled(getattr(network, name)))
    RewardFunction(network, "logit", {}).save(tmp_path / "reward")
    again = RewardFunction.load(tmp_path / "reward")
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.network.parameters(), strict=True))

    module = DefaultPPOTorchRLModule(observation_space=seen, action_space=acted)
    names = list(module.get_state())
    module.pi = compiled(module.pi)
    assert list(module.get_state()) == names
    module.save_to_path(tmp_path / "module")
    again = DefaultPPOTorchRLModule.from_checkpoint(tmp_path / "module")
    assert all((again.get_state()[key] == value).all() for key, value in module.get_state().items())
    module.set_state({key: value + 1 for key, value in again.get_state().items()})


def test_a_policy_compiled_whole(tmp_path: Path) -> None:
    model = made(PPO, "CartPole-v1", [], {"n_steps": 64})
    model.policy = compiled(model.policy)
    model.learn(64).save(tmp_path / "model")
    PPO.load(tmp_path / "model").predict(observation(model))
