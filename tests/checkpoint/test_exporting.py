"""``model.export``: what is in the file, what it asks for, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyak import DQN, IQN, PPO, SAC, TD3, Rainbow, RecurrentPPO, VecFrameStack, VecNormalize, load, make_vec_env
from polyak.envs.testing.multi_input import SimpleMultiObsEnv
from polyak.nn import BaseFeaturesExtractor
from polyak.nn.export.files import traced
from tests.exported import AS_CLOSE, assert_same_actions, exported_policy
from tests.laws.test_matrix import BOX as VECTOR
from tests.laws.test_matrix import PICTURE, Anything, spaces
from tests.pairs import one_of_each

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0}


def roles(description: dict[str, Any]) -> list[str]:
    return [port["role"] for port in description["inputs"]]


def program(path: Path) -> tuple[Any, dict[str, Any]]:
    """What a ``.pt2`` holds: a module, and the description."""
    extra = {"polyak.json": ""}
    found = torch.export.load(path, extra_files=extra)
    return found, json.loads(extra["polyak.json"])


def test_the_statistics_of_the_environment_are_in_it(tmp_path: Path) -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=0))
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, **SMALL).learn(64)
    model.export(tmp_path / "policy.onnx")
    model.save(tmp_path / "model")
    rng = np.random.default_rng(0)
    raw = rng.uniform(-3, 3, (30, 3)).astype(np.float32)
    theirs, _ = load(tmp_path / "model", device="cpu").predict(raw, deterministic=True)
    policy = exported_policy(tmp_path / "policy.onnx")
    assert_same_actions(model.action_space, policy(raw), theirs, np.zeros(30, bool))
    for row in range(3):  # any number of rows
        assert_same_actions(model.action_space, policy(raw[row : row + 1]), theirs[row : row + 1], np.zeros(1, bool))


def test_images_come_as_the_environment_has_them(tmp_path: Path) -> None:
    env = VecFrameStack(make_vec_env(lambda: Anything(PICTURE, spaces.Discrete(3), False, False)), 2)
    small = {**SMALL, "policy_kwargs": {"features_extractor_kwargs": {"features_dim": 8}}}
    model = DQN("CnnPolicy", env, buffer_size=10, **small)
    assert model.acting_graph().inputs[0].shape == (36, 36, 6)
    assert model.acting_graph(channels_last=False).inputs[0].shape == (6, 36, 36)
    model.save(tmp_path / "model")
    alone = load(tmp_path / "model", device="cpu")
    assert alone.acting_graph().inputs[0].shape == (6, 36, 36)
    assert alone.acting_graph(channels_last=True).inputs[0].shape == (36, 36, 6)


def test_standardised_images_are_standardised_in_the_graph(tmp_path: Path) -> None:
    env = make_vec_env(lambda: Anything(PICTURE, spaces.Box(-1, 1, (2,)), False, False))
    extraction = {"features_extractor_kwargs": {"features_dim": 8, "standardize": True}}
    model = PPO("CnnPolicy", env, n_steps=16, batch_size=16, **{**SMALL, "policy_kwargs": extraction})
    model.export(tmp_path / "policy.onnx")
    images = np.random.default_rng(0).integers(0, 256, (6, *PICTURE.shape), dtype=np.uint8)
    images[3] = 9
    theirs, _ = model.predict(images, deterministic=True)
    assert_same_actions(
        model.action_space, exported_policy(tmp_path / "policy.onnx")(images), theirs, np.zeros(6, bool)
    )
    model.save(tmp_path / "model")
    again, _ = load(tmp_path / "model", device="cpu").predict(images, deterministic=True)
    np.testing.assert_array_equal(again, theirs)
    with pytest.raises(ValueError, match=r"features_extractor_kwargs\['standardize'\]"):
        model.save_sb3(tmp_path / "theirs.zip")


def test_a_dict_with_images(tmp_path: Path) -> None:
    env = VecNormalize(make_vec_env(SimpleMultiObsEnv), norm_obs_keys=["vec"])
    model = PPO("MultiInputPolicy", env, n_steps=16, batch_size=16, device="cpu", seed=0).learn(16)
    graph = model.acting_graph()
    assert {port.name: port.shape for port in graph.inputs} == {"observation.img": (64, 64, 1), "observation.vec": (5,)}


@pytest.mark.parametrize("learned", [False, True])
def test_masks_are_asked_for_unless_it_is_known_that_there_are_none(learned: bool, tmp_path: Path) -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL)
    if learned:
        model.learn(16)
    model.save(tmp_path / "model")
    for some in (model, load(tmp_path / "model", device="cpu")):
        asked = [port.role for port in some.acting_graph().inputs]
        assert asked == (["observation"] if learned else ["observation", "action_masks"])
        assert [port.role for port in some.acting_graph(masks=False).inputs] == ["observation"]
        assert [port.role for port in some.acting_graph(masks=True).inputs] == ["observation", "action_masks"]


def test_masks_are_read_where_observations_hold_them(tmp_path: Path) -> None:
    space = spaces.Dict(x=spaces.Box(-1.0, 1.0, (2,)), action_mask=spaces.MultiBinary(3))
    model = DQN("MultiInputPolicy", Anything(space, spaces.Discrete(3), False, False), buffer_size=10, **SMALL)
    assert roles(model.export(tmp_path / "policy.onnx")) == ["observation", "observation"]
    observations = {"x": np.zeros((3, 2), np.float32), "action_mask": np.eye(3, dtype=np.int8)}
    np.testing.assert_array_equal(exported_policy(tmp_path / "policy.onnx")(observations), [0, 1, 2])


def test_a_torch_program_holds_what_acts_alone(tmp_path: Path) -> None:
    model = RecurrentPPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=16, **SMALL)
    described = model.export(str(tmp_path / "policy.pt2"))
    found, about = program(tmp_path / "policy.pt2")
    assert about == described
    assert not [name for name in found.state_dict if "critic" in name or "value" in name or "vf" in name]
    assert str(Path.cwd()).encode() not in (tmp_path / "policy.pt2").read_bytes()
    act, state, before = found.module(), None, None
    rng = np.random.default_rng(0)
    for _ in range(5):
        seen = rng.normal(size=(4, 3)).astype(np.float32)
        theirs, before = model.predict(seen, before, deterministic=True)
        inputs = about["inputs"][1:]
        state = [torch.zeros(4, *port["shape"][1:]) for port in inputs] if state is None else state
        ours, *state = act(torch.from_numpy(seen), *state)
        assert_same_actions(model.action_space, ours.numpy(), theirs, np.zeros(4, bool))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PPO explores with a standard deviation")
def test_spaces_of_every_dtype(tmp_path: Path) -> None:
    dtypes: Any = ["float16", "float32", "float64", "uint8", "int8", "uint16", "int32", "int64", "uint64"]
    every = {dtype: spaces.Box(0, 100, (2,), np.dtype(dtype).type) for dtype in dtypes}
    every |= {"d": spaces.Discrete(4, start=-3), "md": spaces.MultiDiscrete([3, 4], start=[1, 2])}
    every |= {"mb": spaces.MultiBinary(3), "n": spaces.Box(-1.0, 1.0, ())}
    seen, acted = spaces.Dict(every), spaces.Dict({"all": spaces.Tuple(tuple(every.values()))})
    model = PPO("MultiInputPolicy", Anything(seen, acted, False, False), n_steps=16, batch_size=16, **SMALL)
    model.export(tmp_path / "policy.onnx", masks=False)
    rows = [model.observation_space.sample() for _ in range(30)]
    batch = {key: np.stack([row[key] for row in rows]) for key in model.observation_space.spaces}
    ours, (theirs, _) = exported_policy(tmp_path / "policy.onnx")(batch), model.predict(batch, deterministic=True)
    assert_same_actions(acted, ours, theirs, np.zeros(30, bool))


@pytest.mark.parametrize("n_envs", [1, 3])
def test_state_dependent_exploration_is_left_out(n_envs: int, tmp_path: Path) -> None:
    env = make_vec_env("Pendulum-v1", n_envs=n_envs)
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, use_sde=True, **SMALL).learn(16)
    model.export(tmp_path / "policy.pt2")
    seen = np.random.default_rng(0).normal(size=(n_envs, 3)).astype(np.float32)
    (ours,) = program(tmp_path / "policy.pt2")[0].module()(torch.from_numpy(seen))
    assert_same_actions(
        model.action_space, ours.numpy(), model.predict(seen, deterministic=True)[0], np.zeros(n_envs, bool)
    )


def test_the_model_stays_as_it_was() -> None:
    model = RecurrentPPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL)
    model.policy.set_training_mode(True)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    graph = model.acting_graph()
    assert model.policy.training
    assert not model.policy.actor_memory.in_operations
    assert all(parameter.requires_grad for parameter in model.policy.parameters())
    assert not graph.policy.training
    model.learn(16)
    assert any(not torch.equal(value, before[name]) for name, value in model.policy.state_dict().items())
    assert all(torch.equal(value, before[name]) for name, value in graph.policy.state_dict().items())


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, **SMALL)
    with pytest.raises(ValueError, match=r"policy\.h5' must end with \.onnx .* or \.pt2"):
        model.export(tmp_path / "policy.h5")
    with pytest.raises(ValueError, match="masks=True: ContinuousPolicy does not support action masks. Leave masks out"):
        model.export(tmp_path / "policy.onnx", masks=True)
    with pytest.raises(ValueError, match="has no images. Leave channels_last out"):
        model.export(tmp_path / "policy.onnx", channels_last=True)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[onnx\]'"):
        model.export(tmp_path / "policy.onnx")
    assert not any(tmp_path.iterdir())


class Branching(BaseFeaturesExtractor):
    """A user's own, which reads values."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations if observations.sum() > 0 else -observations


def test_a_policy_that_cannot_be_traced(tmp_path: Path) -> None:
    own = {"features_extractor_class": Branching, "features_extractor_kwargs": {"features_dim": 3}}
    model = SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, device="cpu", policy_kwargs=own)
    with pytest.raises(ValueError, match="cannot be exported: torch.export says .* without branches on values"):
        model.export(tmp_path / "policy.pt2")


def test_wrappers_around_the_normalisation_are_refused() -> None:
    env = VecFrameStack(VecNormalize(make_vec_env("Pendulum-v1")), 2)
    with pytest.raises(ValueError, match="VecFrameStack changed after VecNormalize"):
        PPO("MlpPolicy", env, **SMALL).acting_graph()


# -- sampled actions ---------------------------------------------------------------------------------------------------

DRAWN = {"standard_normal": torch.randn, "random": torch.rand}


def drawn(port: dict[str, Any], rows: int) -> np.ndarray:
    """What torch's generator gives next: as the policy would have drawn it, for each row or once for all."""
    shape = ((rows,) if port["for_each_row"] else ()) + tuple(port["shape"][1:])
    draw = DRAWN.get(port["draw"], lambda *sizes: torch.empty(sizes).exponential_())
    return np.broadcast_to(draw(*shape).numpy(), (rows, *port["shape"][1:])).copy()


SAMPLING = {
    "a Gaussian": lambda: PPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=16, **SMALL),
    "a squashed one": lambda: SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, **SMALL),
    "a choice, with memory": lambda: RecurrentPPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, **SMALL),
    "coins": lambda: PPO(
        "MlpPolicy", Anything(VECTOR, spaces.MultiBinary(3), False, False), n_steps=16, batch_size=16, **SMALL
    ),
    "noisy layers": lambda: Rainbow("MlpPolicy", "CartPole-v1", buffer_size=10, **SMALL),
    "quantile levels": lambda: IQN("MlpPolicy", "CartPole-v1", buffer_size=10, **SMALL),
}


@pytest.mark.parametrize("kind", one_of_each(SAMPLING, "a squashed one", "a choice, with memory", "noisy layers"))
def test_samples_of_the_same_random_numbers(kind: str) -> None:
    model, rows = SAMPLING[kind](), 50
    model.exploration_rate = 0.0
    graph = model.acting_graph(masks=False, stochastic=True)
    program = traced(graph).module()
    ports = [port.describe() for port in graph.inputs]
    seen = np.random.default_rng(0).normal(size=(rows, *ports[0]["shape"][1:])).astype(np.float32)
    torch.manual_seed(3)
    theirs, _ = model.predict(seen)
    torch.manual_seed(3)
    noise = [torch.from_numpy(drawn(port, rows)) for port in ports if port["role"] == "noise"]
    state = [torch.zeros(rows, *port["shape"][1:]) for port in ports if port["role"] == "state"]
    ours = program(torch.from_numpy(seen), *state, *noise)[0].numpy()
    assert_same_actions(model.action_space, ours, theirs, np.zeros(rows, bool))
    assert all(node.users for node in program.graph.nodes if node.op == "placeholder")


def test_the_runner_draws_what_is_asked_for(tmp_path: Path) -> None:
    model = SAMPLING["a Gaussian"]()
    model.export(tmp_path / "policy.onnx", stochastic=True)
    policy, seen = exported_policy(tmp_path / "policy.onnx"), np.zeros((500, 3), np.float32)
    ours, best = policy(seen), model.predict(seen, deterministic=True)[0]
    noise = np.random.default_rng(0).standard_normal((500, 1)).astype(np.float32)
    np.testing.assert_allclose(ours, np.clip(best + noise, -2, 2), rtol=AS_CLOSE, atol=AS_CLOSE)  # whose deviation is 1


def test_exploration_matrices_are_noise() -> None:
    model, rows = SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, use_sde=True, **SMALL), 5
    graph = model.acting_graph(stochastic=True)
    seen = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    model.actor.reset_noise(rows)
    (ours,) = traced(graph).module()(torch.from_numpy(seen), model.actor.exploration_noise.own)
    assert_same_actions(model.action_space, ours.numpy(), model.predict(seen)[0], np.zeros(rows, bool))


def test_what_draws_nothing_is_not_sampled() -> None:
    model = TD3("MlpPolicy", "Pendulum-v1", buffer_size=10, **SMALL)
    with pytest.raises(ValueError, match="stochastic=True: ContinuousPolicy draws nothing"):
        model.acting_graph(stochastic=True)
