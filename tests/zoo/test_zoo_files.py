"""Setting files and run folders of RL Baselines3 Zoo, read as they are; and nothing in them is run."""

import importlib.util
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import yaml

from polyak.zoo.errors import ZooError
from polyak.zoo.literals import import_name
from polyak.zoo.peer_names import our_path
from polyak.zoo.plain_yaml import read_yaml, write_yaml
from polyak.zoo.registry import ALIASES, find_algorithm
from polyak.zoo.settings import interpret, load_settings, read_conf_file, tuned_blocks

THE_ZOOS_NAMES = ["a2c", "ddpg", "dqn", "ppo", "sac", "td3", "ars", "crossq", "qrdqn", "tqc", "trpo", "ppo_lstm"]
ZOO_HYPERPARAMS = os.environ.get("POLYAK_ZOO_HYPERPARAMS", "")


@pytest.mark.parametrize("algo", THE_ZOOS_NAMES)
def test_every_algorithm_of_the_zoo_has_its_name_here(algo: str) -> None:
    assert issubclass(find_algorithm(algo), object)
    assert find_algorithm(algo.upper()) is find_algorithm(algo)
    assert "default" in tuned_blocks(find_algorithm(algo))[0]


def test_other_names() -> None:
    assert find_algorithm("ppo_lstm").__name__ == "RecurrentPPO"
    assert set(ALIASES) == {"ppo_lstm", "ppo_mask"}
    with pytest.raises(ZooError, match="'her' is no algorithm but a kind of replay buffer: use --algo tqc"):
        find_algorithm("her")


ZOO_BLOCKS = """
default: &defaults
  n_timesteps: !!float 1e6
  policy: 'MlpPolicy'
  normalize: "{'norm_obs': False, 'norm_reward': True}"

CarRacing-v3:
  <<: *defaults
  n_envs: 8
  frame_stack: 2
  policy: 'CnnPolicy'
  env_wrapper:
    - rl_zoo3.wrappers.FrameSkip:
        skip: 2
    - rl_zoo3.wrappers.YAMLCompatResizeObservation:
        shape: [64, 64]
    - gymnasium.wrappers.transform_observation.GrayscaleObservation:
        keep_dim: true
  vec_env_wrapper:
    - stable_baselines3.common.vec_env.VecMonitor
  callback:
    - rl_zoo3.callbacks.RawStatisticsCallback
  learning_rate: lin_1e-4
  clip_range: 0.2
  use_sde: True
  policy_kwargs: "dict(log_std_init=-2,
                       ortho_init=False,
                       activation_fn=nn.GELU,
                       net_arch=dict(pi=[256], vf=[256])
                       )"
"""


def test_a_block_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "ppo.yml"
    path.write_text(ZOO_BLOCKS)
    settings = load_settings(find_algorithm("ppo"), "ppo", "CarRacing-v3", str(path))
    assert settings.n_timesteps == 1_000_000
    assert settings.normalize == {"norm_obs": False, "norm_reward": True}
    assert settings.arguments["policy_kwargs"]["net_arch"] == {"pi": [256], "vf": [256]}
    assert settings.arguments["policy_kwargs"]["activation_fn"].__name__ == "GELU"
    assert settings.arguments["learning_rate"](0.5) == pytest.approx(5e-5)
    assert [spec.kwargs for spec in settings.env_wrapper] == [{"skip": 2}, {"shape": [64, 64]}, {"keep_dim": True}]
    named = [spec.find() for spec in settings.env_wrapper + settings.vec_env_wrapper]
    assert [(cls.__module__.partition(".")[0], cls.__name__) for cls in named] == [
        ("polyak", "FrameSkip"),
        ("polyak", "YAMLCompatResizeObservation"),
        ("gymnasium", "GrayscaleObservation"),
        ("polyak", "VecMonitor"),
    ]
    assert type(settings.callback[0]()).__name__ == "RawStatisticsCallback"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("sb3_contrib.common.wrappers.TimeFeatureWrapper", "polyak.envs.wrappers.time_feature"),
        ("rl_zoo3.wrappers.MaskVelocityWrapper", "polyak.envs.wrappers.mask_velocity"),
        ("rl_zoo3.wrappers.HistoryWrapperObsDict", "polyak.envs.wrappers.history"),
        ("stable_baselines3.common.atari_wrappers.AtariWrapper", "polyak.envs.wrappers.atari"),
        ("gymnasium.wrappers.time_limit.TimeLimit", "gymnasium.wrappers.common"),
        ("gym.wrappers.TimeLimit", "gymnasium.wrappers.common"),
        ("stable_baselines3.common.callbacks.CheckpointCallback", "polyak.callbacks.saving"),
    ],
)
def test_import_paths_of_the_peers(theirs: str, ours: str) -> None:
    assert import_name(our_path(theirs)).__module__ == ours
    assert our_path("my.own.Wrapper") == "my.own.Wrapper"


def test_what_has_no_equal_says_so() -> None:
    with pytest.raises(ZooError, match="ParallelTrainCallback has no equal in polyak: .* Leave it out"):
        our_path("rl_zoo3.callbacks.ParallelTrainCallback")


def test_options_of_memory_in_sb3_contribs_words() -> None:
    raw = {"policy_kwargs": "dict(lstm_hidden_size=64, enable_critic_lstm=False, net_arch=[8])"}
    settings = interpret(find_algorithm("ppo_lstm"), "ppo_lstm", raw, "test")
    assert settings.arguments["policy_kwargs"] == {"memory_size": 64, "critic_memory": "none", "net_arch": [8]}


@pytest.mark.skipif(
    not (ZOO_HYPERPARAMS or importlib.util.find_spec("rl_zoo3")), reason="needs rl_zoo3 or POLYAK_ZOO_HYPERPARAMS"
)
def test_every_file_of_an_installed_zoo_is_read() -> None:
    spec = importlib.util.find_spec("rl_zoo3")
    folder = Path(ZOO_HYPERPARAMS or Path(str(spec and spec.origin)).parent / "hyperparams")
    read = 0
    for path in sorted(folder.glob("*.yml")):
        if path.stem == "her":  # of a class that is no more, there too
            continue
        algorithm = find_algorithm(path.stem)
        blocks, source = read_conf_file(str(path))
        for block in blocks.values():
            settings = interpret(algorithm, path.stem, block, source)
            for spec_ in [*settings.env_wrapper, *settings.vec_env_wrapper]:
                our_path(spec_.path)
            read += 1
    assert read > 200


# -- run folders -------------------------------------------------------------------------------------------------------


def test_an_ordered_dict_of_the_zoos_is_a_dict() -> None:
    content = OrderedDict([("n_envs", 2), ("normalize", True), ("train_freq", (1, "episode")), ("a", OrderedDict())])
    text = yaml.dump(content)
    assert "!!python/object/apply:collections.OrderedDict" in text
    assert read_yaml(text, "x") == {"n_envs": 2, "normalize": True, "train_freq": (1, "episode"), "a": {}}
    assert list(read_yaml(text, "x")) == ["n_envs", "normalize", "train_freq", "a"]


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [{marker}]",
        "!!python/object/apply:collections.OrderedDict\n- - - a\n    - !!python/object/apply:os.mkdir [{marker}]",
        "!!python/tuple [!!python/object/apply:os.mkdir [{marker}]]",
        "!!python/object/new:os.mkdir [{marker}]",
        "a: !!python/name:os.mkdir",
        "a: !!python/module:os",
        "!!python/object/apply:collections.OrderedDict {{a: 1}}",
        "!!python/object/apply:collections.OrderedDict [[a], [b]]",
        "!!python/object/apply:collections.OrderedDict [[[a]]]",
        "!!python/object/apply:collections.OrderedDict [3]",
        "!!python/tuple 3",
        "a: [1, 2",
    ],
)
def test_anything_else_is_refused_unread(tmp_path: Path, text: str) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(ZooError, match=r"Cannot read x\.yml as plain YAML") as refused:
        read_yaml(text.format(marker=marker), "x.yml")
    assert "\n" not in str(refused.value)
    assert not marker.exists()


def test_what_is_written_is_plain() -> None:
    import numpy as np

    content = {"a": np.float64(0.5), "b": np.int64(3), "c": (1, [np.bool_(True)]), "d": OrderedDict, "e": Path("x")}
    text = write_yaml(content)
    assert "!!" not in text
    assert yaml.safe_load(text) == {"a": 0.5, "b": 3, "c": [1, [True]], "d": "collections.OrderedDict", "e": "x"}


# -- Python code that the command line names ---------------------------------------------------------------------------


def test_settings_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import torch\nhyperparams = {'CartPole-v1': dict(n_envs=3, policy_kwargs=dict(activation_fn=torch.nn.ELU))}"
    (tmp_path / "my_settings.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for named in ("my_settings.py", "my_settings"):
        settings = load_settings(find_algorithm("ppo"), "ppo", "CartPole-v1", named)
        assert settings.n_envs == 3
        assert settings.arguments["policy_kwargs"]["activation_fn"].__name__ == "ELU"
        assert settings.source == f"{named} [CartPole-v1]"


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("none.py", "x = 1", "has no dict called hyperparams"),
        ("wrong.py", "hyperparams = [1]", "must map environment ids to blocks"),
        ("broken.py", "1/0", r"the file cannot be loaded: ZeroDivisionError: .*broken.py, line 1"),
        ("missing.py", None, "'missing.py' does not exist"),
        ("no_such_module", None, "Cannot import the package 'no_such_module' that should hold settings"),
    ],
)
def test_mistakes_in_python_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if code is not None:
        (tmp_path / name).write_text(code)
    with pytest.raises(ZooError, match=message):
        read_conf_file(name)
