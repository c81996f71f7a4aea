"""Model files: what they bring back, what they refuse, and that reading them runs nothing."""

import base64
import json
import os
import pickle
import sys
import warnings
import zipfile
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak import A2C, C51, DQN, PPO, QRDQN, SAC, TQC, HerReplayBuffer, Rainbow
from polyak.checkpoint.saved import read, write
from polyak.checkpoint.serialise import Untrusted, UntrustedError, decode, encode, find_class
from polyak.envs import BitFlippingEnv, DummyVecEnv, VecNormalize
from polyak.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise, VectorizedActionNoise
from polyak.parts.part import KeptAttributes
from polyak.schedules import LinearSchedule
from polyak.writing import replacing
from tests.trials import trial


def through_json(value: Any, trust: bool = False) -> Any:
    return decode(json.loads(json.dumps(encode(value))), trust)


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        -2.5,
        "text",
        [1, [2.0, None]],
        (1, "step"),
        {"a": {"b": (1, 2)}},
        {1: "one", (2, 3): "pair"},
        {"$tuple": 1},
        {"pi": [64], "vf": []},
        nn.ReLU,
        torch.optim.AdamW,
        HerReplayBuffer,
        float("inf"),
    ],
    ids=repr,
)
def test_values_survive(value: Any) -> None:
    assert through_json(value) == value
    assert type(through_json(value)) is type(value)


def test_arrays_and_scalars_survive() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(through_json(array), array)
    assert through_json(array).dtype == np.float32
    assert through_json(np.int64(7)) == 7
    assert isinstance(through_json(np.int64(7)), np.int64)
    assert np.isnan(through_json(float("nan")))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, np.inf, (3,), np.float32),
        spaces.Box(np.zeros(2, np.uint8), np.array([255, 7], np.uint8), dtype=np.uint8),
        spaces.Discrete(5, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Dict({"x": spaces.Box(0, 1, (1,))})}),
        spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))]),
    ],
    ids=str,
)
def test_spaces_survive(space: spaces.Space) -> None:
    assert through_json(space) == space


def test_noise_and_schedules_survive() -> None:
    normal = through_json(NormalActionNoise(np.zeros(2), np.full(2, 0.3)))
    assert repr(normal) == repr(NormalActionNoise(np.zeros(2), np.full(2, 0.3)))
    ou = OrnsteinUhlenbeckActionNoise(np.ones(1), np.ones(1), theta=0.3, dt=0.1)
    assert repr(through_json(ou)) == repr(ou)
    vectorized = through_json(VectorizedActionNoise(ou, 3))
    assert len(vectorized.noises) == 3
    assert through_json(LinearSchedule(1.0, 0.1, 0.5))(0.75) == pytest.approx(0.55)


def test_a_lambda_needs_trust() -> None:
    assert isinstance(through_json(lambda x: x + 1), Untrusted)
    assert through_json(lambda x: x + 1, trust=True)(1) == 2


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:Popen", "builtins:eval", "polyak.checkpoint.serialise:decode"]
)
def test_only_classes_that_options_hold_are_looked_up(name: str) -> None:
    with pytest.raises(UntrustedError):
        find_class(name)


@pytest.mark.parametrize(
    "body",
    [
        ["polyak.nn.policies.base:Policy", "load"],
        ["polyak.experience.replay_buffer:ReplayBuffer", "__init__"],
        ["torch.nn:Linear", "__module__"],
        ["polyak.experience.hindsight.relabel:GoalSelectionStrategy", "__members__"],
        ["polyak.experience.hindsight.relabel:GoalSelectionStrategy", "mro"],
        ["polyak.experience.hindsight.relabel:GoalSelectionStrategy", ["FUTURE"]],
    ],
    ids=str,
)
def test_only_members_of_enums_are_read_as_such(body: list[Any]) -> None:
    for trust in (False, True):
        with pytest.raises(ValueError, match="is not a member of an enum"):
            decode({"$enum": body}, trust)


def test_a_module_that_is_not_imported_is_not_imported() -> None:
    assert "antigravity" not in sys.modules
    with pytest.raises(UntrustedError, match="antigravity"):
        find_class("antigravity:Module")
    assert "antigravity" not in sys.modules


# -- models ------------------------------------------------------------------------------------------------------------


def tiny(**changes: Any) -> PPO:
    options = {"n_steps": 16, "batch_size": 8, "policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0}
    return PPO("MlpPolicy", "CartPole-v1", **options | changes)


def test_a_lambda_as_learning_rate(tmp_path: Path) -> None:
    tiny(learning_rate=lambda left: 1e-3 * left).save(tmp_path / "m")
    with pytest.warns(UserWarning, match="learning_rate.*custom_objects"):
        assert PPO.load(tmp_path / "m").lr_schedule(1) == 3e-4
    assert PPO.load(tmp_path / "m", trust=True).lr_schedule(0.5) == pytest.approx(5e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert PPO.load(tmp_path / "m", trust=True, custom_objects={"learning_rate": 0.1}).lr_schedule(1) == 0.1


def test_exclude_and_overrides(tmp_path: Path) -> None:
    model = tiny(gamma=0.9, ent_coef=0.5)
    model.save(tmp_path / "m", exclude=["gamma"])
    loaded = PPO.load(tmp_path / "m", ent_coef=0.1)
    assert (loaded.gamma, loaded.ent_coef) == (0.99, 0.1)
    model.save(tmp_path / "n", exclude=["gamma"], include=["gamma"])
    assert PPO.load(tmp_path / "n").gamma == 0.9
    with pytest.warns(UserWarning, match="dummy.*replace nothing"):
        assert not hasattr(PPO.load(tmp_path / "n", custom_objects={"dummy": 1}), "dummy")
    with pytest.raises(ValueError, match="include=.*teapot"):
        model.save(tmp_path / "n", include=["teapot"])
    with pytest.raises(ValueError, match="policy_kwargs.*differ"):
        PPO.load(tmp_path / "m", policy_kwargs={"net_arch": [9]})


@pytest.mark.parametrize(
    ("cls", "name", "value", "stored"),
    [
        (SAC, "ent_coef", 0.1, "'auto'"),
        (SAC, "use_sde", True, "False"),
        (DQN, "dueling", True, "False"),
        (C51, "v_min", -5.0, "-10.0"),  # of the size that the file's has
        (A2C, "use_rms_prop", False, "True"),
    ],
)
def test_what_networks_and_optimizers_are_made_with_is_the_files(
    cls: Any, name: str, value: Any, stored: str, tmp_path: Path
) -> None:
    cls(**trial(cls)).save(tmp_path / "m")
    for given in ({name: value}, {"custom_objects": {name: value}}):
        with pytest.raises(ValueError, match=rf"m'.*{name}={value}, which is {stored} in the file.*Leave it out of"):
            cls.load(tmp_path / "m", **given)
        with pytest.raises(ValueError) as error:
            cls.load(tmp_path / "m", **given, gamma=0.5)
        assert "gamma" not in str(error.value)
    own = getattr(cls.load(tmp_path / "m"), name)
    assert getattr(cls.load(tmp_path / "m", **{name: own}, gamma=0.5), name) == own


def test_a_damaged_file_is_not_blamed_on_an_argument(tmp_path: Path) -> None:
    SAC(**trial(SAC)).save(tmp_path / "m")
    saved = read(tmp_path / "m")
    saved.networks.popitem()
    write(saved, tmp_path / "damaged")
    with pytest.raises(ValueError, match="the file is damaged, or made for something else"):
        SAC.load(tmp_path / "damaged", gamma=0.5)


def test_another_number_of_environments(tmp_path: Path) -> None:
    tiny().learn(16).save(tmp_path / "m")
    env = DummyVecEnv([lambda: gym.make("CartPole-v1") for _ in range(3)])
    loaded = PPO.load(tmp_path / "m", env=env)
    assert loaded.n_envs == 3
    loaded.learn(48)
    with pytest.raises(ValueError, match="env has 1 environments.*n_envs=3"):
        loaded.set_env(gym.make("CartPole-v1"))


def test_normalisation_statistics_travel_with_the_model(tmp_path: Path) -> None:
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]), gamma=0.9)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=32, seed=0).learn(128)
    model.save(tmp_path / "m")
    loaded = PPO.load(tmp_path / "m", env="Pendulum-v1")
    wrapped = loaded.get_vec_normalize_env()
    assert wrapped is not None
    np.testing.assert_array_equal(wrapped.obs_rms.mean, env.obs_rms.mean)
    np.testing.assert_array_equal(wrapped.ret_rms.var, env.ret_rms.var)
    assert wrapped.gamma == 0.9
    own = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    assert PPO.load(tmp_path / "m", env=own).get_vec_normalize_env() is own


def test_parameters_by_name() -> None:
    model, other = tiny(seed=0), tiny(seed=1)
    model.learn(16)
    assert set(model.get_parameters()) == {"policy", "policy.optimizer"}
    other.set_parameters(model.get_parameters())
    for a, b in zip(model.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="not a part of this model"):
        other.set_parameters({"critic": {}}, exact_match=False)
    with pytest.raises(ValueError, match="missing"):
        other.set_parameters({"policy": model.policy.state_dict()})
    other.set_parameters({"policy": model.policy.state_dict()}, exact_match=False)
    with pytest.raises(RuntimeError, match="Missing key"):
        other.set_parameters({"policy": {}, "policy.optimizer": model.policy.optimizer.state_dict()})


# -- replay buffers ----------------------------------------------------------------------------------------------------


def test_a_models_file_is_not_a_replay_buffer(tmp_path: Path) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=300)
    with pytest.raises(ValueError, match="kind 'polyak'"):
        model.load_replay_buffer(_saved(model, tmp_path))
    model.save_replay_buffer(tmp_path / "replay.pkl")
    with pytest.raises(ValueError, match="kind 'polyak-replay'"):
        DQN.load(tmp_path / "replay.pkl")
    with pytest.raises(ValueError, match="no environment"):
        DQN.load(_saved(model, tmp_path)).save_replay_buffer(tmp_path / "x")


def test_hindsight_replay_continues(tmp_path: Path) -> None:
    env = BitFlippingEnv(n_bits=4, max_steps=4)
    options = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 2}}
    model = DQN("MultiInputPolicy", env, buffer_size=200, learning_starts=20, seed=0, **options).learn(102)
    model.save(tmp_path / "m")
    model.save_replay_buffer(tmp_path / "r")
    loaded = DQN.load(tmp_path / "m", env=BitFlippingEnv(n_bits=4, max_steps=4))
    assert loaded.replay_buffer_class is HerReplayBuffer
    counted = []
    for truncates in (False, True):
        loaded.load_replay_buffer(tmp_path / "r", truncate_last_traj=truncates)
        counted.append(int((loaded.replay_buffer.ep_length > 0).sum()))
    assert counted[0] < counted[1] == loaded.replay_buffer.size(), "the last episode had not ended"
    loaded.learn(50, reset_num_timesteps=False)
    assert DQN.load(tmp_path / "m").predict(env.reset()[0], deterministic=True)[0].shape == ()


def test_options_of_every_kind_survive(tmp_path: Path) -> None:
    kwargs = {"net_arch": {"pi": [8], "vf": [4]}, "activation_fn": nn.ELU, "optimizer_class": torch.optim.AdamW}
    model = tiny(learning_rate=LinearSchedule(1e-3, 0.0, 1.0), clip_range_vf=0.3, target_kl=0.1, policy_kwargs=kwargs)
    model.learn(32).save(tmp_path / "m")
    loaded = PPO.load(tmp_path / "m", env="CartPole-v1")
    assert loaded.policy_kwargs == kwargs
    assert isinstance(loaded.policy.optimizer, torch.optim.AdamW)
    assert loaded.lr_schedule(0.25) == pytest.approx(2.5e-4)
    assert loaded.clip_range_vf(1) == 0.3
    loaded.learn(32)


def _saved(model: Any, folder: Path) -> Path:
    model.save(folder / "model.zip")
    return folder / "model.zip"


# -- bad files ---------------------------------------------------------------------------------------------------------


def _rewritten(source: Path, target: Path, change: Any) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, change(json.loads(data)) if name == "polyak.json" else data)
    return target


class Hostile:
    def __reduce__(self) -> Any:
        return os.mkdir, ("pwned",)


def test_bad_files_are_refused_with_a_reason(tmp_path: Path) -> None:
    good = _saved(tiny(), tmp_path)
    data = good.read_bytes()
    cases: dict[str, tuple[bytes, str]] = {
        "text": (b"hello", "not a model file"),
        "empty": (b"", "not a model file"),
        "cut": (data[: len(data) // 2], "not a model file"),
        "pickle": (pickle.dumps(Hostile()), "not a model file"),
    }
    for name, (content, reason) in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            PPO.load(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        PPO.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="holds a model of PPO, not of A2C"):
        A2C.load(good)
    assert not Path("pwned").exists()


@pytest.mark.parametrize(("one", "other"), [(C51, DQN), (QRDQN, DQN), (Rainbow, C51), (TQC, SAC)])
def test_an_algorithm_is_not_taken_for_the_one_that_it_extends(one: type, other: type, tmp_path: Path) -> None:
    env = "Pendulum-v1" if one is TQC else "CartPole-v1"
    for saver, loader in ((one, other), (other, one)):
        saver("MlpPolicy", env, buffer_size=300).save(tmp_path / "m")
        with pytest.raises(
            ValueError, match=f"a model of {saver.__name__}, not of {loader.__name__}. Use {saver.__name__}"
        ):
            loader.load(tmp_path / "m")


def test_a_programs_subclass_and_what_it_extends_load_each_others_files(tmp_path: Path) -> None:
    class Mixin:
        """Of a program's."""

    class Mine(Mixin, DQN):
        """Plain DQN."""

    class Further(Mine):
        """Plain DQN."""

    for saver, loader in product((DQN, Mine, Further), repeat=2):
        saver("MlpPolicy", "CartPole-v1", buffer_size=300).save(tmp_path / "m")
        assert type(loader.load(tmp_path / "m")) is loader
    with pytest.raises(ValueError, match="a model of Further, not of C51"):
        C51.load(tmp_path / "m")


def test_a_peers_damaged_file_is_recognised(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "sb3.zip", "w") as archive:
        archive.writestr("data", "{}")
        archive.writestr("policy.pth", b"")
    with pytest.raises(ValueError, match="sb3.zip: policy.pth cannot be read as tensors"):
        PPO.load(tmp_path / "sb3.zip")


def test_a_zip_of_something_else_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(ValueError, match="not written by polyak.*readme.txt"):
        PPO.load(tmp_path / "other.zip")


def test_a_flipped_byte_in_the_weights_is_noticed(tmp_path: Path) -> None:
    good = _saved(tiny(), tmp_path)
    data = bytearray(good.read_bytes())
    with zipfile.ZipFile(good) as archive:
        info = archive.getinfo("networks.safetensors")
    data[info.header_offset + info.file_size // 2] ^= 0xFF
    (tmp_path / "flipped").write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        PPO.load(tmp_path / "flipped")


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda d: d["hyperparameters"].update(gamma=7), ValueError, "gamma=7"),
        (lambda d: d["hyperparameters"].update(tua=1), TypeError, "tua"),
        (lambda d: d.update(format_version=99), ValueError, "format version 99"),
        (lambda d: d.update(policy={"$class": "os:system"}), UntrustedError, "os:system"),
        (lambda d: d.update(policy={"$class": "nowhere_to_be_found:X"}), UntrustedError, "not imported"),
        (lambda d: d["hyperparameters"].update(policy_kwargs={"net_arch": [9]}), RuntimeError, "do not fit"),
        (lambda d: d["hyperparameters"].update(gamma={"$magic": 1}), ValueError, "unknown tag"),
    ],
)
def test_changed_descriptions_are_refused(tmp_path: Path, change: Any, error: type[Exception], match: str) -> None:
    def edit(info: dict[str, Any]) -> str:
        change(info)
        return json.dumps(info)

    bad = _rewritten(_saved(tiny(), tmp_path), tmp_path / "bad.zip", edit)
    with pytest.raises(error, match=match):
        PPO.load(bad)


@pytest.mark.parametrize("trust", [False, True])
def test_a_class_of_another_program_is_named_with_a_way_out(tmp_path: Path, trust: bool) -> None:
    def edit(info: dict[str, Any]) -> str:
        info["hyperparameters"]["policy_kwargs"] = {"features_extractor_class": {"$class": "__main__:Mine"}}
        return json.dumps(info)

    file = _rewritten(_saved(tiny(), tmp_path), tmp_path / "theirs.zip", edit)
    with pytest.raises(ValueError, match="'__main__:Mine', which is not there.*custom_objects") as caught:
        PPO.load(file, trust=trust)
    assert "trust=True" not in str(caught.value)
    assert PPO.load(file, custom_objects={"policy_kwargs": {"net_arch": [8]}}).predict(np.zeros(4))[0] in (0, 1)


def test_a_module_that_is_not_there_is_named_where_it_would_be_imported() -> None:
    with pytest.raises(ValueError, match="'nowhere_to_be_found:X'.*No module named.*custom_objects"):
        find_class("nowhere_to_be_found:X", trust=True)
    lost = base64.b64encode(b"cnowhere_to_be_found\nX\n.").decode()
    with pytest.raises(ValueError, match="describes as an X,.*No module named.*custom_objects"):
        decode({"$pickle": lost, "repr": "an X"}, trust=True)


def test_a_class_that_cannot_be_found_by_name_is_written_whole() -> None:
    theirs = type("Mine", (nn.Module,), {"__module__": "__main__", "width": 3})  # as if unpickled
    assert isinstance(through_json(theirs), Untrusted)
    assert through_json(theirs, trust=True).width == 3


def test_nothing_in_a_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blob = {"$pickle": base64.b64encode(pickle.dumps(Hostile())).decode(), "repr": "harmless"}

    def edit(info: dict[str, Any]) -> str:
        info["hyperparameters"]["learning_rate"] = blob
        info["hyperparameters"]["policy_kwargs"] = {"net_arch": [8], "activation_fn": blob}
        info["extra_state"] = {"x": blob}
        return json.dumps(info)

    bad = _rewritten(_saved(tiny(), tmp_path), tmp_path / "bad.zip", edit)
    with pytest.raises(UntrustedError, match="policy_kwargs.*pickled code"):
        PPO.load(bad)
    with pytest.warns(UserWarning, match="learning_rate"):
        PPO.load(bad, custom_objects={"policy_kwargs": {"net_arch": [8]}})
    assert not (tmp_path / "pwned").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "model.zip"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="power cut"), replacing(target) as file:
        file.write(b"half of the new")
        raise RuntimeError("power cut")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_file_holds_no_pickle(tmp_path: Path) -> None:
    saved = read(_saved(tiny().learn(16), tmp_path))
    assert "$pickle" not in json.dumps(saved.info)
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert set(archive.namelist()) == {
            "polyak.json",
            "networks.safetensors",
            "optimizers.safetensors",
            "state.safetensors",
        }


class Counting(DQN):
    """Counts what it has learned in, besides what DQN counts."""

    made_of: ClassVar = {"kept": partial(KeptAttributes, names={"rounds": "_rounds", "mood": "_mood"})}
    _rounds = 0
    _mood = "new"


def test_values_that_a_class_names_are_in_its_files(tmp_path: Path) -> None:
    model = Counting("MlpPolicy", "CartPole-v1", target_update_interval=3, policy_kwargs={"net_arch": [4]}, seed=0)
    model.learn(12)
    model._rounds, model._mood = 7, "tired"
    model.save(tmp_path / "model")
    extra = read(tmp_path / "model").info["extra_state"]
    assert (extra["rounds"], extra["mood"], extra["_n_calls"]) == (7, "tired", 12)
    loaded = Counting.load(tmp_path / "model")
    assert (loaded._rounds, loaded._mood, loaded._n_calls) == (7, "tired", 12)
