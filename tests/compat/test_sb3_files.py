"""Stable-Baselines3's files: what they bring back, old ones too, and the files that are written for it."""

import base64
import io
import json
import pickle
import pickletools
import warnings
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import (
    A2C,
    ARS,
    C51,
    DDPG,
    DQN,
    IQN,
    PPO,
    QRDQN,
    SAC,
    TD3,
    TQC,
    TRPO,
    CrossQ,
    DeepSARSA,
    HerReplayBuffer,
    MaskablePPO,
    Rainbow,
    RecurrentPPO,
)
from polyak.algorithm import Algorithm
from polyak.checkpoint.serialise import UntrustedError
from polyak.collecting.train_freq import TrainFreq, TrainFrequencyUnit
from polyak.compat.sb3_face import algorithms as compat
from polyak.compat.sb3_face.files import names, unpickle, writer
from polyak.envs import BitFlippingEnv, DummyVecEnv, InvalidActionEnvDiscrete, InvalidActionEnvMultiBinary, VecNormalize
from polyak.evaluation.in_environments import evaluate_policy
from polyak.experience import PrioritizedReplayBuffer
from polyak.nn import BaseFeaturesExtractor
from polyak.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from polyak.schedules import ConstantSchedule, FloatSchedule, LinearSchedule
from tests.compat.make_sb3_files import DATA, ENVS, masks, observations, remembering
from tests.tolerance import LIKELY, bound
from tests.worlds import Drawn

MODELS = {
    "ppo": PPO,
    "ppo_old_schedules": PPO,
    "a2c": A2C,
    "dqn": DQN,
    "sac": SAC,
    "sac_fixed": SAC,
    "td3": TD3,
    "ddpg": DDPG,
    "tqc": TQC,
    "crossq": CrossQ,
    "qrdqn": QRDQN,
    "trpo": TRPO,
    "ppo_mask": MaskablePPO,
    "ppo_mask_coins": MaskablePPO,
    "ars": ARS,
    "ppo_recurrent": RecurrentPPO,
    "ppo_recurrent_linear": RecurrentPPO,
    "dqn_her": DQN,
}
EXPECTED = {**np.load(DATA / "expected.npz"), **np.load(DATA / "crossq.npz")}


def seen(name: str) -> Any:
    return observations(ENVS.get(name, "BitFlipping"))


def environment(name: str) -> Any:
    """Where the model of that name learned."""
    if name == "dqn_her":
        return BitFlippingEnv(n_bits=4, max_steps=4)
    if name == "ppo_mask":
        return InvalidActionEnvDiscrete(5, n_invalid_actions=3, strict=True)
    if name == "ppo_mask_coins":
        return InvalidActionEnvMultiBinary(3, n_invalid_actions=2, strict=True)
    return ENVS[name]


def agree(actions: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for the last digit, which another processor may round otherwise."""
    assert actions.shape == expected.shape
    if expected.dtype.kind in "iu":
        assert (actions != expected).sum() <= 1
    else:
        np.testing.assert_allclose(actions, expected, rtol=0, atol=bound(3 * 64, size=2))  # the widths of the layers


Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def rewritten(name: str, target: Path, change: Change, **zip_options: Any) -> Path:
    """A copy of a file in which ``change`` has edited the description and the other members."""
    with zipfile.ZipFile(DATA / f"{name}.zip") as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    data = json.loads(members.pop("data"))
    change(data, members)
    with zipfile.ZipFile(target, "w", **zip_options) as archive:
        archive.writestr("data", json.dumps(data))
        for member, content in members.items():
            archive.writestr(member, content)
    return target


def pickled(value: Any) -> dict[str, str]:
    """As ``data`` holds a value that JSON cannot."""
    return {":type:": str(type(value)), ":serialized:": base64.b64encode(cloudpickle.dumps(value)).decode()}


def written(value: Any) -> dict[str, str]:
    """The same for one that names the peers' classes."""
    return {":type:": "?", ":serialized:": base64.b64encode(writer.dumps(value)).decode()}


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_acts_as_it_did(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MODELS[name].load(DATA / f"{name}.zip", device="cpu")
    agree(model.predict(seen(name), deterministic=True)[0], EXPECTED[name])
    assert model.seed == 0
    assert model.num_timesteps >= 20
    assert model._n_updates > 0


@pytest.mark.parametrize("name", ["ppo_mask", "ppo_mask_coins"])
@pytest.mark.parametrize("cls", [MaskablePPO, compat.MaskablePPO])
def test_a_model_keeps_to_masks_as_it_did(cls: type[MaskablePPO], name: str, tmp_path: Path) -> None:
    model, allowed = cls.load(DATA / f"{name}.zip", device="cpu"), masks(ENVS[name])
    actions = model.predict(seen(name), deterministic=True, action_masks=allowed)[0]
    agree(actions, EXPECTED[f"{name}/masked"])
    entries = actions.reshape(1000, -1) + 2 * np.arange(actions[0].size)
    assert np.take_along_axis(allowed, entries, 1).all()
    model.save(tmp_path / "again")
    again = (MaskablePPO if cls is compat.MaskablePPO else compat.MaskablePPO).load(tmp_path / "again", device="cpu")
    agree(again.predict(seen(name), deterministic=True, action_masks=allowed)[0], actions)


@pytest.mark.parametrize(
    ("cls", "name"), [(RecurrentPPO, "ppo_recurrent_linear"), (compat.RecurrentPPO, "ppo_recurrent")]
)
def test_a_model_remembers_as_it_did(cls: type[RecurrentPPO], name: str, tmp_path: Path) -> None:
    model = cls.load(DATA / f"{name}.zip", device="cpu")
    actions = remembering(model, seen(name))
    for part, array in zip(("actions", "hidden", "cell"), actions, strict=True):
        agree(array, EXPECTED[f"{name}/{part}"])
    model.save(tmp_path / "again")
    model.save_sb3(tmp_path / "exported")
    for other in (RecurrentPPO, compat.RecurrentPPO):
        for file in ("again", "exported"):
            loaded = other.load(tmp_path / file, device="cpu")
            for mine, theirs in zip(remembering(loaded, seen(name)), actions, strict=True):
                np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_on(name: str) -> None:
    model = MODELS[name].load(DATA / f"{name}.zip", env=environment(name), device="cpu")
    before = model.num_timesteps
    model.learn(20, reset_num_timesteps=False)
    assert model.num_timesteps >= before + 20


def test_optimizers_go_on_from_where_they_were() -> None:
    model = PPO.load(DATA / "ppo.zip", device="cpu")
    with zipfile.ZipFile(DATA / "ppo.zip") as archive:
        stored = torch.load(io.BytesIO(archive.read("policy.optimizer.pth")), weights_only=True)
    state = model.policy.optimizer.state_dict()
    for index, values in stored["state"].items():
        for key, value in values.items():
            assert torch.equal(state["state"][index][key], value)
    fresh = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    assert state["param_groups"][0]["fused"] == fresh.policy.optimizer.param_groups[0]["fused"]
    assert state["param_groups"][0]["eps"] == stored["param_groups"][0]["eps"]


def test_hyper_parameters_come_along() -> None:
    ppo = PPO.load(DATA / "ppo.zip")
    assert (ppo.n_steps, ppo.batch_size, ppo.n_epochs, ppo.policy_kwargs) == (32, 16, 2, {"net_arch": [4]})
    assert ppo.ep_info_buffer
    assert ppo.ep_info_buffer.maxlen == 100
    a2c = A2C.load(DATA / "a2c.zip")
    assert (a2c.use_sde, a2c.use_rms_prop, a2c.policy_kwargs) == (True, True, {"net_arch": [4]})
    td3 = TD3.load(DATA / "td3.zip")
    assert repr(td3.action_noise) == repr(NormalActionNoise(np.zeros(1), np.full(1, 0.1)))
    assert tuple(td3.train_freq) == (1, "step")
    assert td3.learner.steps == td3._n_updates
    dqn = DQN.load(DATA / "dqn.zip")
    assert dqn.exploration_rate == pytest.approx(0.05)
    assert dqn._n_calls == 40
    sac = SAC.load(DATA / "sac.zip")
    assert sac.ent_coef == "auto"
    assert sac.target_entropy == -1.0
    assert sac.log_ent_coef.item() != 0.0
    assert SAC.load(DATA / "sac_fixed.zip").ent_coef == 0.1
    tqc = TQC.load(DATA / "tqc.zip")
    assert tqc.policy_kwargs == {"net_arch": [4], "n_quantiles": 5, "n_critics": 3}
    assert (tqc.top_quantiles_to_drop_per_net, tqc.target_entropy) == (1, -1.0)
    qrdqn = QRDQN.load(DATA / "qrdqn.zip")
    assert qrdqn.policy.q_net.n_quantiles == 3
    assert qrdqn._n_calls == 48  # whole rollouts of 4 steps
    assert qrdqn.policy.optimizer.param_groups[0]["eps"] == 0.01 / qrdqn.batch_size
    trpo = TRPO.load(DATA / "trpo.zip")
    assert (trpo.n_steps, trpo.batch_size, trpo.n_critic_updates, trpo.target_kl) == (32, 16, 2, 0.01)
    assert len(trpo.policy.optimizer.state) == 4, "what the value function alone depends on"
    ars = ARS.load(DATA / "ars.zip")
    assert (ars.n_delta, ars.n_top, ars.delta_std, ars.policy_kwargs) == (3, 2, 0.1, {"net_arch": [4]})
    her = DQN.load(DATA / "dqn_her.zip")
    assert (her.replay_buffer_class, her.replay_buffer_kwargs) == (HerReplayBuffer, {"n_sampled_goal": 2})


def test_schedules_from_before_schedule_classes_are_recognised_without_running_them() -> None:
    model = PPO.load(DATA / "ppo_old_schedules.zip")
    assert model.clip_range(1) == 0.1
    assert model.lr_schedule(1) == pytest.approx(1e-3)
    assert model.lr_schedule(0.75) == pytest.approx(5.5e-4)


def test_going_on_from_the_last_observations() -> None:
    model = SAC.load(DATA / "sac.zip", env="Pendulum-v1", force_reset=False)
    assert model._last_obs.shape == (1, 3)
    assert SAC.load(DATA / "sac.zip", env="Pendulum-v1")._last_obs is None


def test_weights_alone_go_into_a_model(tmp_path: Path) -> None:
    def no_description(data: dict[str, Any], members: dict[str, bytes]) -> None:
        data.clear()

    model = PPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [4]}, device="cpu")
    model.set_parameters(rewritten("ppo", tmp_path / "m.zip", no_description))
    agree(model.predict(seen("ppo"), deterministic=True)[0], EXPECTED["ppo"])


def test_weights_alone_go_into_a_model_without_an_optimizer(tmp_path: Path) -> None:
    for cls in (ARS, compat.ARS):
        model = cls("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]})
        model.set_parameters(DATA / "ars.zip")
        agree(model.predict(seen("ars"))[0], EXPECTED["ars"])
    assert model.get_parameters().keys() == {"policy"}
    model.set_parameters(model.get_parameters())
    with pytest.raises(ValueError, match="'policy'.*missing"):
        model.set_parameters({})
    model.save_sb3(tmp_path / "again")
    agree(compat.ARS.load(tmp_path / "again").predict(seen("ars"))[0], EXPECTED["ars"])


def test_the_algorithm_is_found_out() -> None:
    with pytest.raises(ValueError, match="a model of PPO, not of A2C"):
        A2C.load(DATA / "ppo.zip")
    with pytest.raises(ValueError, match="a model of SAC, not of TD3"):
        TD3.load(DATA / "sac.zip")
    with pytest.raises(ValueError, match="a model of TQC, not of SAC"):
        SAC.load(DATA / "tqc.zip")
    with pytest.raises(ValueError, match="a model of SAC, not of TQC"):
        TQC.load(DATA / "sac.zip")
    with pytest.raises(ValueError, match="a model of QRDQN, not of DQN"):
        DQN.load(DATA / "qrdqn.zip")
    agree(TD3.load(DATA / "ddpg.zip").predict(seen("ddpg"))[0], EXPECTED["ddpg"])  # DDPG is a TD3 there

    class MyPPO(PPO):
        """A user's own."""

    assert type(MyPPO.load(DATA / "ppo.zip")) is MyPPO


def test_a_policy_class_that_cannot_be_read_is_named_by_its_module(tmp_path: Path) -> None:
    def change(data: dict[str, Any], members: dict[str, bytes]) -> None:
        lost = base64.b64encode(b"cnot_installed_here\nTheirs\n.").decode()
        data["policy_class"] = {":type:": "<class 'type'>", ":serialized:": lost, "__module__": "not_installed_here"}

    file = rewritten("ppo", tmp_path / "m.zip", change)
    with pytest.raises(UntrustedError, match="<class 'type'> of not_installed_here.*policy_class"):
        PPO.load(file)
    with pytest.raises(ValueError, match="of not_installed_here.*No module named.*policy_class"):
        PPO.load(file, trust=True)


# -- old files ---------------------------------------------------------------------------------------------------------


def old_spaces(data: dict[str, Any], members: dict[str, bytes]) -> None:
    """Before 2.0: spaces of gym, with a random generator in them."""
    high = gym.make("CartPole-v1").observation_space.high
    box = {"dtype": np.dtype(np.float32), "_shape": (4,), "low": -high, "high": high, "np_random": None}
    data["observation_space"] = written(writer.Object(("gym.spaces.box", "Box"), box))
    state = {"n": 2, "_shape": (), "dtype": np.dtype(np.int64), "_np_random": None}
    data["action_space"] = written(writer.Object(("gym.spaces.discrete", "Discrete"), state))


def old_names(data: dict[str, Any], members: dict[str, bytes]) -> None:
    """Before 1.3: no versions; before 0.9: another name for further tensors; before 1.8: a list around net_arch."""
    members["tensors.pth"] = members.pop("pytorch_variables.pth")
    del members["system_info.txt"], members["_stable_baselines3_version"]
    data["policy_kwargs"] = {"net_arch": [{"pi": [4], "vf": [4]}], "device": "cuda"}
    for name in ("normalize_advantage", "rollout_buffer_class", "rollout_buffer_kwargs", "_stats_window_size"):
        del data[name]
    data["create_eval_env"] = False


@pytest.mark.parametrize("change", [old_spaces, old_names], ids=lambda f: f.__name__)
def test_old_files(tmp_path: Path, change: Change) -> None:
    model = PPO.load(rewritten("ppo", tmp_path / "m.zip", change), env="CartPole-v1", device="cpu")
    agree(model.predict(seen("ppo"), deterministic=True)[0], EXPECTED["ppo"])


def test_the_optimizer_of_dqn_once_listed_the_targets_too(tmp_path: Path) -> None:
    def change(data: dict[str, Any], members: dict[str, bytes]) -> None:
        state = torch.load(io.BytesIO(members["policy.optimizer.pth"]), weights_only=True)
        group = state["param_groups"][0]
        group["params"] = list(range(2 * len(group["params"])))
        file = io.BytesIO()
        torch.save(state, file)
        members["policy.optimizer.pth"] = file.getvalue()

    model = DQN.load(rewritten("dqn", tmp_path / "m.zip", change), env="CartPole-v1", device="cpu")
    agree(model.predict(seen("dqn"), deterministic=True)[0], EXPECTED["dqn"])
    model.learn(20, reset_num_timesteps=False)


def test_an_actor_critic_once_had_one_name_for_shared_features(tmp_path: Path) -> None:
    """Before 1.7 the extractor was saved once."""
    options = {"net_arch": [4], "features_extractor_kwargs": {"features_dim": 3}}
    env = Drawn(observation_space=spaces.Box(0, 255, (1, 36, 36), np.uint8))
    model = PPO("CnnPolicy", env, n_steps=4, batch_size=2, policy_kwargs=options, device="cpu")
    model.save_sb3(tmp_path / "new.zip")
    with zipfile.ZipFile(tmp_path / "new.zip") as new, zipfile.ZipFile(tmp_path / "old.zip", "w") as old:
        for member in new.namelist():
            content = new.read(member)
            if member == "policy.pth":
                state = torch.load(io.BytesIO(content), weights_only=True)
                file = io.BytesIO()
                torch.save({k: v for k, v in state.items() if not k.startswith(("pi_", "vf_"))}, file)
                content = file.getvalue()
            old.writestr(member, content)
    obs = np.random.default_rng(0).integers(0, 256, (5, 1, 36, 36), np.uint8)
    again = PPO.load(tmp_path / "old.zip", device="cpu")
    np.testing.assert_array_equal(again.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])


def test_a_file_that_a_zip_program_has_packed_again(tmp_path: Path) -> None:
    path = rewritten("ppo", tmp_path / "m.zip", lambda data, members: None, compression=zipfile.ZIP_DEFLATED)
    agree(PPO.load(path, device="cpu").predict(seen("ppo"), deterministic=True)[0], EXPECTED["ppo"])


# -- trust -------------------------------------------------------------------------------------------------------------


def with_a_lambda(data: dict[str, Any], members: dict[str, bytes]) -> None:
    data["learning_rate"] = pickled(lambda left: 1e-3 * left)
    data["lr_schedule"] = pickled(lambda left: 1e-3 * left)


def test_a_lambda_needs_trust(tmp_path: Path) -> None:
    path = rewritten("ppo", tmp_path / "m.zip", with_a_lambda)
    with pytest.warns(UserWarning, match="learning_rate.*custom_objects") as caught:
        assert PPO.load(path).lr_schedule(1) == 3e-4
    assert len(caught) == 1
    assert "lr_schedule" not in str(caught[0].message)  # it is made from the learning rate
    assert PPO.load(path, trust=True).lr_schedule(0.5) == pytest.approx(5e-4)


def test_what_custom_objects_bring_is_not_looked_at(tmp_path: Path) -> None:
    path = rewritten("ppo", tmp_path / "m.zip", with_a_lambda)
    given = {"learning_rate": 0.1, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.3}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PPO.load(path, custom_objects=given)
        assert PPO.load(path, learning_rate=0.1).lr_schedule(1) == 0.1
    assert model.lr_schedule(1) == 0.1
    assert model.clip_range(1) == 0.3


def test_spaces_may_be_given(tmp_path: Path) -> None:
    def change(data: dict[str, Any], members: dict[str, bytes]) -> None:
        data["observation_space"] = pickled(lambda: None)

    path = rewritten("ppo", tmp_path / "m.zip", change)
    with pytest.raises(ValueError, match="observation_space cannot be read.*custom_objects"):
        PPO.load(path)
    env = gym.make("CartPole-v1")
    model = PPO.load(path, custom_objects={"observation_space": env.observation_space})
    agree(model.predict(seen("ppo"), deterministic=True)[0], EXPECTED["ppo"])


def test_policy_kwargs_that_hold_code_are_not_guessed(tmp_path: Path) -> None:
    def change(data: dict[str, Any], members: dict[str, bytes]) -> None:
        data["policy_kwargs"] = pickled({"net_arch": [4], "activation_fn": lambda: torch.nn.Tanh()})

    path = rewritten("ppo", tmp_path / "m.zip", change)
    with pytest.raises(UntrustedError, match="policy_kwargs.*trust=True"):
        PPO.load(path)
    given = PPO.load(path, custom_objects={"policy_kwargs": {"net_arch": [4]}})
    for model in (given, PPO.load(path, trust=True)):
        agree(model.predict(seen("ppo"), deterministic=True)[0], EXPECTED["ppo"])


class MyExtractor(BaseFeaturesExtractor):
    """Stands for a user's class, in a module that the program has imported."""


def test_a_users_own_class_is_found_where_it_is_imported() -> None:
    assert unpickle.loads(pickle.dumps({"features_extractor_class": MyExtractor})) == {
        "features_extractor_class": MyExtractor
    }


def test_with_trust_the_peers_names_are_polyaks() -> None:
    freq = writer.Call(names.TRAIN_FREQ, (4, writer.Call(names.TRAIN_UNIT, ("step",))))
    code = writer.dumps([freq, writer.Global(("pathlib", "PurePosixPath"))])  # not on the list, so all of it is run
    with pytest.raises(UntrustedError, match=r"pathlib.PurePosixPath.*trust=True"):
        unpickle.loads(code)
    assert unpickle.loads(code, trust=True)[0] == TrainFreq(4, TrainFrequencyUnit.STEP)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array(["a", "bc"]),
        np.float64(0.5),
        {"a": (1, [2.0, None]), "b": b"bytes"},
        {1, 2},
        torch.nn.ReLU,
        torch.optim.AdamW,
        np.float32,
    ],
    ids=repr,
)
@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_values_survive(value: Any, protocol: int) -> None:
    if isinstance(value, set) and protocol < 4:
        pytest.skip("that protocol builds sets by calling a builtin")
    np.testing.assert_equal(unpickle.loads(pickle.dumps(value, protocol)), value)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, np.inf, (3,), np.float32),
        spaces.Box(0, 255, (2, 2), np.uint8),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0, 1, (1,))}),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]),
    ],
    ids=str,
)
def test_spaces_survive(space: spaces.Space) -> None:
    space.seed(0)
    space.sample()
    assert unpickle.loads(pickle.dumps(space)) == space
    assert unpickle.loads(writer.dumps(space)) == space


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_model_survives_the_way_there_and_back_under_the_peers_names(name: str, tmp_path: Path) -> None:
    model = MODELS[name].load(DATA / f"{name}.zip", device="cpu")
    model.save_sb3(tmp_path / "m")
    again = MODELS[name].load(tmp_path / "m.zip", device="cpu")
    np.testing.assert_array_equal(
        again.predict(seen(name), deterministic=True)[0], model.predict(seen(name), deterministic=True)[0]
    )
    before, after = ({k: repr(v) for k, v in each.hyperparameters().items()} for each in (model, again))
    assert before == after
    torch.testing.assert_close(again.get_parameters(), model.get_parameters(), rtol=0, atol=0)
    assert again.num_timesteps == model.num_timesteps
    with zipfile.ZipFile(DATA / f"{name}.zip") as theirs, zipfile.ZipFile(tmp_path / "m.zip") as ours:
        assert ours.namelist() == theirs.namelist()
        expected, data = json.loads(theirs.read("data")), json.loads(ours.read("data"))
        for member in theirs.namelist():
            if member.endswith(".pth"):
                a, b = (torch.load(io.BytesIO(z.read(member)), weights_only=True) for z in (theirs, ours))
                torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert {key for key in expected.keys() - data.keys() if "batch_norm_stats" not in key} <= MADE_THERE
    assert not {"compile", "overlap"} & data.keys(), "of polyak's own"
    for key, value in data.items():
        if isinstance(value, dict) and ":serialized:" in value:
            code = base64.b64decode(value[":serialized:"])
            pickletools.dis(code, out=io.StringIO())
            assert b"polyak" not in code, key
            unpickle.loads(code)


MADE_THERE = {
    *("lr_schedule", "exploration_schedule", "log_ent_coef", "ent_coef_optimizer"),
    *("use_sde", "sde_sample_freq", "use_sde_at_warmup", "action_noise"),  # where the algorithm has no such option
    *("policy_delay", "target_policy_noise", "target_noise_clip"),  # of DDPG
    "tau",  # of CrossQ, which has nothing that follows
    *("ent_coef", "vf_coef", "max_grad_norm"),  # of TRPO, which has two objectives
    *("processes", "old_count", "n_params", "weights"),  # of ARS
}
"""Attributes that the peer's classes set by themselves, or make from others."""


@pytest.mark.parametrize(
    "value",
    [
        FloatSchedule(LinearSchedule(1.0, 0.1, 0.5)),
        ConstantSchedule(0.3),
        NormalActionNoise(np.zeros(2), np.full(2, 0.3)),
        OrnsteinUhlenbeckActionNoise(np.ones(1), np.ones(1), theta=0.3, dt=0.1),
        VectorizedActionNoise(NormalActionNoise(np.zeros(1), np.ones(1)), 2),
    ],
    ids=repr,
)
def test_schedules_and_noise_have_equals(value: Any, tmp_path: Path) -> None:
    options = {"action_noise": value} if "Noise" in type(value).__name__ else {"learning_rate": value}
    model = TD3("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [4]}, **options)
    model.save_sb3(tmp_path / "m")
    again = TD3.load(tmp_path / "m")
    if "action_noise" in options:
        assert type(again.action_noise) is type(value)
        assert repr(again.action_noise) == repr(value) or isinstance(value, VectorizedActionNoise)
    else:
        assert again.lr_schedule(0.8) == pytest.approx(FloatSchedule(value)(0.8))


def test_a_users_function_is_written_as_it_is(tmp_path: Path) -> None:
    def learning_rate(left: float) -> float:
        return 1e-3 * left

    PPO("MlpPolicy", "CartPole-v1", learning_rate=learning_rate).save_sb3(tmp_path / "m")
    assert PPO.load(tmp_path / "m", trust=True).lr_schedule(0.5) == pytest.approx(5e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"replay_buffer_class": PrioritizedReplayBuffer},
        {"replay_buffer_kwargs": {"sampler": "prioritized"}},
        {"prioritized": True},
        {"double": True},
        {"munchausen": True},
        {"dueling": True},
        {"noisy": True},
        {"policy_kwargs": {"dueling": True}},
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", [DQN, QRDQN])
def test_what_the_peer_lacks_is_not_written(cls: type[DQN], options: dict[str, Any], tmp_path: Path) -> None:
    model = cls("MlpPolicy", "CartPole-v1", buffer_size=10, **options)
    with pytest.raises(ValueError, match=f"{next(iter(options))}.*no equal in Stable-Baselines3"):
        model.save_sb3(tmp_path / "m.zip")
    assert not list(tmp_path.iterdir())


def test_uniform_smoothing_of_target_actions_is_not_written(tmp_path: Path) -> None:
    model = TD3("MlpPolicy", "Pendulum-v1", buffer_size=10, target_policy_noise=None)
    with pytest.raises(ValueError, match="target_policy_noise=None has no equal in Stable-Baselines3"):
        model.save_sb3(tmp_path / "m.zip")
    assert not list(tmp_path.iterdir())


def test_what_only_mattered_to_training_can_be_dropped(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=10, double=True)
    with pytest.raises(ValueError, match=r"double=True .* trains on without it, set model.double = False first\."):
        model.save_sb3(tmp_path / "m.zip")
    model.double = False
    model.save_sb3(tmp_path / "m.zip")
    with zipfile.ZipFile(tmp_path / "m.zip") as archive:
        assert not {"double", "dueling", "noisy", "sigma0", "prioritized"} & json.loads(archive.read("data")).keys()


@pytest.mark.parametrize("cls", [C51, IQN, Rainbow, DeepSARSA])
def test_an_algorithm_that_the_peer_lacks_is_not_written_as_what_it_extends(cls: type[DQN], tmp_path: Path) -> None:
    model = cls("MlpPolicy", "CartPole-v1")
    with pytest.raises(
        ValueError, match=rf"models of {cls.__name__} cannot be written .* only those of A2C.* save\(\)"
    ):
        model.save_sb3(tmp_path / "m.zip")
    assert not list(tmp_path.iterdir())


def test_a_program_s_subclass_is_written_as_what_it_extends(tmp_path: Path) -> None:
    class C51(DQN):
        """By chance of the name of another."""

    model = C51("MlpPolicy", "CartPole-v1", buffer_size=10)
    model.save_sb3(tmp_path / "m.zip")
    assert type(DQN.load(tmp_path / "m.zip")) is DQN


# -- networks that are called otherwise --------------------------------------------------------------------------------


def test_quantile_networks_go_through_files_by_either_s_names(tmp_path: Path) -> None:
    ours, theirs = QRDQN.load(DATA / "qrdqn.zip"), compat.QRDQN.load(DATA / "qrdqn.zip", device="cpu")
    assert sorted(theirs.policy.state_dict())[0] == "quantile_net.quantile_net.0.bias"
    assert sorted(ours.policy.state_dict())[0] == "q_net.q_net.0.bias"
    theirs.save(tmp_path / "theirs")
    ours.save(tmp_path / "ours")
    theirs.save_sb3(tmp_path / "theirs_sb3")
    ours.save_sb3(tmp_path / "ours_sb3")
    for cls, file in product((QRDQN, compat.QRDQN), ("theirs", "ours", "theirs_sb3", "ours_sb3")):
        model = cls.load(tmp_path / f"{file}.zip", device="cpu")
        agree(model.predict(seen("qrdqn"), deterministic=True)[0], EXPECTED["qrdqn"])
        options = {"buffer_size": 10, "policy_kwargs": {"net_arch": [4], "n_quantiles": 3}}
        fresh = cls("MlpPolicy", "CartPole-v1", device="cpu", **options)
        fresh.set_parameters(tmp_path / f"{file}.zip")
        torch.testing.assert_close(fresh.get_parameters(), model.get_parameters(), rtol=0, atol=0)


def test_renaming_twice_changes_nothing() -> None:
    given = [
        "policy.q_net.q_net.0.weight",
        "q_net_target.features_extractor.q_net.bias",
        "actor.q_net.0",
        "log_ent_coef",
    ]
    given += ["quantile_net.q_net.0", "quantile_net_target.quantile_net.0", "q_net_x.q_net.0"]
    once = list(names.renamed(dict.fromkeys(given)))
    assert once[:2] == [
        "policy.quantile_net.quantile_net.0.weight",
        "quantile_net_target.features_extractor.q_net.bias",
    ]
    assert once[2:4] == given[2:4]
    assert once[-1] == given[-1]
    assert list(names.renamed(dict.fromkeys(once))) == given


@pytest.mark.parametrize("options", [{"double": True}, {"munchausen": True}], ids=str)
def test_options_of_polyak_s_own_mean_the_same_to_networks_that_give_quantiles(options: dict[str, Any]) -> None:
    def trained(cls: type[QRDQN]) -> list[torch.Tensor]:
        settings = {"learning_starts": 8, "batch_size": 8, "buffer_size": 64, "target_update_interval": 16}
        model = cls("MlpPolicy", "CartPole-v1", seed=0, device="cpu", compile=False, **settings, **options)
        return list(model.learn(48).policy.state_dict().values())

    torch.testing.assert_close(trained(compat.QRDQN), trained(QRDQN), rtol=0, atol=0)


# -- statistics --------------------------------------------------------------------------------------------------------


def pendulum() -> DummyVecEnv:
    return DummyVecEnv([lambda: gym.make("Pendulum-v1")])


def test_statistics_come_along(tmp_path: Path) -> None:
    env = VecNormalize.load(DATA / "vecnormalize.pkl", pendulum())
    assert (env.gamma, env.clip_obs, env.training, env.norm_obs_keys) == (0.9, 5.0, True, None)
    np.testing.assert_allclose(
        env.normalize_obs(observations("Pendulum-v1")), EXPECTED["vecnormalize/obs"], rtol=0, atol=bound(4, size=10)
    )
    rewards = np.linspace(-10, 0, 1000)
    np.testing.assert_allclose(
        env.normalize_reward(rewards), EXPECTED["vecnormalize/reward"], rtol=0, atol=bound(4, size=10)
    )
    env.save_sb3(tmp_path / "again.pkl")
    again = VecNormalize.load(tmp_path / "again.pkl", pendulum())
    np.testing.assert_array_equal(again.obs_rms.mean, env.obs_rms.mean)
    assert again.ret_rms.count == env.ret_rms.count
    env.reset()
    env.step(np.zeros((1, 1)))


def test_statistics_of_a_dict_without_keys_are_of_all_keys(tmp_path: Path) -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (3,))})
    running = {
        key: writer.Object(names.RUNNING_MEAN_STD, {"mean": np.ones(n), "var": np.ones(n), "count": 2.0})
        for key, n in (("a", 2), ("b", 3))
    }
    state = {"training": False, "norm_obs": True, "norm_reward": False, "clip_obs": 10.0, "clip_reward": 10.0}
    state |= {"gamma": 0.9, "epsilon": 1e-8, "observation_space": space, "obs_rms": running}
    state["ret_rms"] = writer.Object(names.RUNNING_MEAN_STD, {"mean": np.zeros(()), "var": np.ones(()), "count": 1.0})
    (tmp_path / "old.pkl").write_bytes(writer.dumps(writer.Object(names.VEC_NORMALIZE, state)))

    env = VecNormalize.load(tmp_path / "old.pkl", DummyVecEnv([lambda: Drawn(observation_space=space)]))
    assert env.norm_obs_keys == ["a", "b"]
    np.testing.assert_array_equal(env.obs_rms["b"].mean, np.ones(3))


# -- replay buffers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thrifty", [False, True])
def test_experience_comes_along(thrifty: bool) -> None:
    model = SAC.load(DATA / "sac.zip", env="Pendulum-v1", device="cpu", optimize_memory_usage=thrifty)
    model.load_replay_buffer(DATA / "sac_replay.pkl")
    buffer = model.replay_buffer
    assert buffer.size() == 20
    np.testing.assert_array_equal(buffer.actions[:20], EXPECTED["sac_replay/actions"])
    np.testing.assert_array_equal(buffer.rewards[:20], EXPECTED["sac_replay/rewards"])
    assert buffer.sample(4).next_observations.shape == (4, 3)
    model.learn(20, reset_num_timesteps=False)


def test_experience_goes_into_a_model_without_an_environment() -> None:
    model = SAC.load(DATA / "sac.zip")
    model.load_replay_buffer(DATA / "sac_replay.pkl")
    assert model.replay_buffer.size() == 20


def test_hindsight_goes_on() -> None:
    model = DQN.load(DATA / "dqn_her.zip", env=BitFlippingEnv(n_bits=4, max_steps=4), device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the last episode is cut
        model.load_replay_buffer(DATA / "dqn_her_replay.pkl")
    buffer = model.replay_buffer
    np.testing.assert_array_equal(np.sort(buffer.rewards.ravel()), np.sort(EXPECTED["dqn_her_replay/rewards"].ravel()))
    assert buffer.full
    assert buffer.sample(8).observations["desired_goal"].shape == (8, 4)
    model.learn(20, reset_num_timesteps=False)


def test_a_buffer_that_keeps_each_observation_once() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=32, device="cpu")
    model.load_replay_buffer(DATA / "thrifty_replay.pkl")
    buffer = model.replay_buffer
    assert buffer.size() == 20
    going = buffer.dones[:19, 0] == 0
    np.testing.assert_array_equal(buffer.next_observations[:19][going], buffer.observations[1:20][going])
    assert np.abs(buffer.next_observations[19]).sum() > 0


def test_a_buffer_of_another_environment_is_refused() -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=32)
    with pytest.raises(ValueError, match=r"sac_replay.pkl: its actions are float32\[1\].*holds int64\[1\]"):
        model.load_replay_buffer(DATA / "sac_replay.pkl")
    with pytest.raises(ValueError, match="does not hold a replay buffer, but a VecNormalize"):
        model.load_replay_buffer(DATA / "vecnormalize.pkl")
    with pytest.raises(ValueError, match="does not hold a VecNormalize, but a ReplayBuffer"):
        VecNormalize.load(DATA / "sac_replay.pkl", pendulum())


# -- one file predicts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [PPO, SAC])
def test_one_file_predicts_on_raw_observations(cls: type[Algorithm], tmp_path: Path) -> None:
    env = VecNormalize(pendulum(), gamma=0.9)
    short = {"n_steps": 64, "batch_size": 32} if cls is PPO else {"learning_starts": 20, "buffer_size": 200}
    model = cls("MlpPolicy", env, seed=0, device="cpu", policy_kwargs={"net_arch": [8]}, **short).learn(64)
    model.save(tmp_path / "m")
    raw = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32) * [1, 1, 8]
    expected = model.predict(env.normalize_obs(raw), deterministic=True)[0]

    alone = cls.load(tmp_path / "m", device="cpu")
    np.testing.assert_array_equal(alone.predict(raw, deterministic=True)[0], expected)
    single = np.array([alone.predict(obs, deterministic=True)[0] for obs in raw[:20]])
    np.testing.assert_allclose(single, expected[:20], rtol=0, atol=bound(3 + 8 + LIKELY, size=4))
    alone.save(tmp_path / "again")
    np.testing.assert_array_equal(cls.load(tmp_path / "again").predict(raw, deterministic=True)[0], expected)

    wrapped = cls.load(tmp_path / "m", env=pendulum(), device="cpu")
    np.testing.assert_array_equal(wrapped.predict(env.normalize_obs(raw), deterministic=True)[0], expected)
    alone.set_env(pendulum())
    assert alone.get_vec_normalize_env() is not None
    np.testing.assert_array_equal(alone.predict(env.normalize_obs(raw), deterministic=True)[0], expected)


def test_a_raw_environment_is_evaluated_with_the_statistics_of_the_file(tmp_path: Path) -> None:
    env = VecNormalize(pendulum(), gamma=0.9)
    PPO("MlpPolicy", env, n_steps=64, batch_size=32, seed=0, device="cpu").learn(64).save(tmp_path / "m")
    frozen = VecNormalize.from_state_dict(pendulum(), env.state_dict() | {"training": False, "norm_reward": False})
    raw = pendulum()
    trained = PPO.load(tmp_path / "m", env=frozen)
    frozen.seed(3)
    raw.seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no Monitor
        through = evaluate_policy(trained, frozen, n_eval_episodes=2)[0]
        alone = evaluate_policy(PPO.load(tmp_path / "m"), raw, n_eval_episodes=2)[0]
    assert alone == pytest.approx(through)


def test_only_some_entries_of_a_dict_are_normalised(tmp_path: Path) -> None:
    space = spaces.Dict({"a": spaces.Box(-9, 9, (2,)), "b": spaces.Box(-1, 1, (3,))})
    env = VecNormalize(DummyVecEnv([lambda: Drawn(observation_space=space)]), norm_obs_keys=["a"])
    model = PPO("MultiInputPolicy", env, n_steps=16, batch_size=8, device="cpu").learn(16)
    model.save(tmp_path / "m")
    alone = PPO.load(tmp_path / "m", device="cpu")
    obs = {"a": np.full((5, 2), 3.0, np.float32), "b": np.ones((5, 3), np.float32)}
    np.testing.assert_array_equal(
        alone.predict(obs, deterministic=True)[0], model.predict(env.normalize_obs(obs), deterministic=True)[0]
    )
    with pytest.raises(ValueError, match="missing"):
        alone.predict({"b": obs["b"]})
    with pytest.raises(ValueError, match="tuple"):
        alone.predict((obs, {}))
