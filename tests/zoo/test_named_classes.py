"""The classes that settings may name, by their authors."""

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from polyak.envs.reading import untrusted
from polyak.zoo import plain_yaml
from polyak.zoo.errors import ZooError
from polyak.zoo.plain_yaml import read_yaml
from polyak.zoo.untrusted import USER, NamedClass, ZooAuthor
from tests.zoo.test_cli import run

MINE = """
import gymnasium


class Louder(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * float(reward)


def louder(env):
    return Louder(env)


def silent(env):
    return None


class Odd:
    def __init__(self, env):
        pass
"""
SMALL = ["-n", 32, "--eval-freq", -1, "--device", "cpu", "--verbose", 0, "--seed", 1]
NUMBERS = ["n_steps:16", "batch_size:16", "n_epochs:1", "n_envs:1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder from which ``my_wrappers`` can be imported."""
    (tmp_path / "my_wrappers.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("my_wrappers", None)


def test_code_of_ones_own_is_named_on_the_command_line_or_trusted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.yml").write_text(
        "CartPole-v1: {n_envs: 1, n_steps: 16, batch_size: 16, n_epochs: 1, env_wrapper: my_wrappers.Louder}"
    )
    train = ["train", "--conf-file", "own.yml", *SMALL]
    assert run(*train) == 2
    message = capsys.readouterr().err
    for part in ("own.yml", "env_wrapper names 'my_wrappers.Louder'", "--gym-packages my_wrappers", "--trust"):
        assert part in message
    assert "my_wrappers" not in sys.modules
    assert not (here / "logs").exists()
    assert run(*train, "--gym-packages", "my_wrappers") == 0
    assert run(*train, "--trust") == 0
    assert run("train", "-params", *NUMBERS, "env_wrapper:my_wrappers.Louder", *SMALL) == 0


def test_a_run_with_code_of_ones_own_is_played_when_that_is_named_or_trusted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("train", "-params", *NUMBERS, "env_wrapper:my_wrappers.Louder", *SMALL) == 0
    enjoy = ["enjoy", "-n", 200, "--no-render", "--verbose", 0]
    capsys.readouterr()
    assert run(*enjoy) == 2
    message = capsys.readouterr().err
    assert str(Path("logs/ppo/CartPole-v1_1/CartPole-v1/config.yml")) in message
    assert run(*enjoy, "--gym-packages", "my_wrappers") == run(*enjoy, "--trust") == 0


def test_what_is_trusted_may_be_a_function_and_must_make_what_is_wanted(here: Path) -> None:
    def named(path: str) -> NamedClass:
        return NamedClass(path, {}, "env_wrapper", "own.yml", USER)

    env = gymnasium.make("CartPole-v1")
    assert type(named("my_wrappers.louder")(env)).__name__ == "Louder"
    with pytest.raises(
        ZooError, match=r"own\.yml: env_wrapper names 'my_wrappers\.silent', which made None and no Env"
    ):
        named("my_wrappers.silent")(env)
    with pytest.raises(ZooError, match="not a subclass of Env"):
        named("my_wrappers.Odd")(env)
    with pytest.raises(ZooError, match="not a subclass of Wrapper"):
        NamedClass("my_wrappers.louder", author=ZooAuthor(packages=("my_wrappers",))).find()


def test_what_a_package_hands_on_of_another_is_not_its_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "registered.py").write_text("from my_wrappers import Louder\n")
    with pytest.raises(ZooError, match="not a subclass"):
        NamedClass("registered.Louder", author=ZooAuthor(packages=("registered",))).find()
    assert NamedClass("registered.Louder", author=ZooAuthor(packages=("registered", "my_wrappers"))).find()
    sys.modules.pop("registered", None)


def test_packages_that_registered_may_be_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(untrusted, "_registered", lambda: frozenset({"my_wrappers", "json"}))
    named = NamedClass("my_wrappers.Louder")
    with pytest.raises(ZooError, match="not run unasked"):
        named.find()  # it lies in the current folder
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert named.find().__name__ == "Louder"
    with pytest.raises(ZooError, match="not run unasked"):
        NamedClass("json.JSONDecoder").find()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"shape": [64, 64]},
        {"info_keywords": ("is_success",)},
        {"max_episode_steps": 10**9},
        {"padding_type": "zero", "dtype": "float32", "key": None, "ratio": 0.5, "flag": True},
        {"map_name": "4x4", "obs_type": "grayscale", "render_mode": "rgb_array"},
        {"config": {"observation": {"type": "Kinematics", "features": ["x", "y"]}, "simulation_frequency": 15}},
    ],
    ids=str,
)
def test_plain_arguments_are_as_they_were(kwargs: dict[str, object]) -> None:
    NamedClass("gymnasium.wrappers.TimeLimit", kwargs).check()


def test_the_limits_of_yaml_are_where_they_are_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    most, longest = plain_yaml.MOST_NODES // 10, plain_yaml.LONGEST // 10  # smaller ones are sooner reached
    monkeypatch.setattr(plain_yaml, "MOST_NODES", most)
    monkeypatch.setattr(plain_yaml, "LONGEST", longest)
    items = (most - 2) // 2  # the mapping, its key, the list
    assert len(read_yaml(f"a: [{'1, ' * (most - 3)}]", "x")["a"]) == most - 3
    assert len(read_yaml(f"a: '{'x' * (longest - 5)}'", "x")["a"]) == longest - 5
    assert read_yaml(f"a: {2**63 - 1}", "x") == {"a": 2**63 - 1}
    nested = f"{'[' * 48}{']' * 48}"
    assert read_yaml(f"a: {nested}", "x")["a"]
    text = f"a: &a [{'1, ' * (items - 2)}]\nb: *a"
    assert read_yaml(text, "x")["b"] == [1] * (items - 2)
    for beyond in (
        f"a: [{'1, ' * (most - 2)}]",
        f"a: '{'x' * (longest - 4)}'",
        f"a: {2**63}",
        f"a: [[{nested}]]",
        f"{text}\nc: *a",
    ):
        with pytest.raises(ZooError, match="Cannot read my.yml"):
            read_yaml(beyond, "my.yml")
