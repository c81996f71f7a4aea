"""What strangers write at first gets an error that says what to write instead."""

import copy
import inspect
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import spaces

import polyak
import polyak.compat.sb3 as sb3
from polyak import DQN, IQL, PPO, SAC, DiscreteCQL, DoubleQLearning, QLearning, collect
from polyak.algorithms import class_names
from polyak.envs import IdentityEnvMultiBinary, IdentityEnvMultiDiscrete
from polyak.envs.action_spaces import FROM_DATA, TAKE
from polyak.fields.dataset import LearnsFromData
from polyak.fields.offline import OfflineAlgorithm
from polyak.suggestions import SYNONYMS, did_you_mean


class Made(gym.Env):
    """A class that is given as it is."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("cls", "given", "meant"),
    [
        (PPO, "lr", "learning_rate"),
        (QLearning, "lr", "learning_rate"),
        (PPO, "entropy_coef", "ent_coef"),
        (PPO, "epochs", "n_epochs"),
        (PPO, "rollout_length", "n_steps"),
        (SAC, "replay_size", "buffer_size"),
        (SAC, "start_steps", "learning_starts"),
        (DQN, "discount", "gamma"),
        (DQN, "hidden_sizes", "policy_kwargs"),
        (IQL, "expectil", "expectile"),
    ],
)
def test_arguments_by_other_libraries_names(cls: Any, given: str, meant: str) -> None:
    arguments = ["CartPole-v1"] if cls is QLearning else ["MlpPolicy", "CartPole-v1"]
    with pytest.raises(TypeError, match=rf"{cls.__name__}.__init__.*argument '{given}'. Did you mean '{meant}'\?"):
        cls(*arguments, **{given: 1})


@pytest.mark.parametrize(
    ("cls", "meant"), [(DiscreteCQL, "conservative_weight"), (SAC, "ent_coef"), (QLearning, "learning_rate")]
)
def test_a_letter_means_what_the_algorithm_has(cls: Any, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"Did you mean '{meant}'"):
        cls(alpha=0.1)


def test_synonyms_hide_no_name_and_mean_what_there_is() -> None:
    names = {name for cls in class_names() for name in inspect.signature(getattr(polyak, cls)).parameters}
    names |= {name for cls in class_names() for name in inspect.signature(getattr(polyak, cls).learn).parameters}
    names |= {"n_envs", "n_eval_episodes", "observations", "deterministic"}
    assert set(SYNONYMS) <= names
    for meant, others in SYNONYMS.items():
        for other in others.split():
            assert other != meant
            assert did_you_mean(other, [meant]) == f" Did you mean {meant!r}?"


@pytest.mark.parametrize(
    ("given", "meant"), [("timesteps", "total_timesteps"), ("callbacks", "callback"), ("progresbar", "progress_bar")]
)
@pytest.mark.parametrize("make", [lambda: PPO("MlpPolicy", None), lambda: IQL("MlpPolicy", None), QLearning])
def test_arguments_of_learn(make: Any, given: str, meant: str) -> None:
    model = make()
    with pytest.raises(TypeError, match=rf"learn\(\) got an unexpected keyword argument '{given}'. Did.*'{meant}'\?"):
        model.learn(10, **{given: 1})


def test_learn_of_a_subclass_of_the_users_own() -> None:
    class Mine(PPO):
        def learn(self, total_timesteps: int, bonus: float = 0.0) -> Any:
            """Train with a bonus."""
            return bonus

    assert list(inspect.signature(Mine.learn).parameters) == ["self", "total_timesteps", "bonus"]
    assert Mine("MlpPolicy", None).learn(10, bonus=2.0) == 2.0
    with pytest.raises(TypeError, match="Mine.learn.* 'bonnus'. Did you mean 'bonus'"):
        Mine("MlpPolicy", None).learn(10, bonnus=2.0)


@pytest.mark.parametrize("cls", [PPO, sb3.PPO, DiscreteCQL])
def test_what_cannot_be_left_out(cls: Any) -> None:
    name = cls.__name__
    with pytest.raises(
        TypeError, match=rf"policy='CartPole-v1' is no policy.*Write {name}\('MlpPolicy', 'CartPole-v1'"
    ):
        cls("CartPole-v1", seed=1)
    with pytest.raises(TypeError, match=rf"missing the argument 'env'. policy=<.*Write {name}\('MlpPolicy', env\)"):
        cls(policy=Made())
    with pytest.raises(TypeError, match=rf"missing the argument 'env'. Write {name}\('MlpPolicy', env\)"):
        cls("MlpPolicy")
    with pytest.raises(TypeError, match=rf"{name}.__init__\(\) got multiple values for argument 'policy'"):
        cls(Made(), policy="MlpPolicy")
    model = cls("MlpPolicy", None)
    with pytest.raises(TypeError, match=rf"{name}.learn\(\) missing the argument 'total_timesteps'. Write learn\("):
        model.learn(log_interval=3)
    assert copy.copy(model).seed is None


def test_arguments_of_load(tmp_path: Any) -> None:
    PPO("MlpPolicy", "CartPole-v1").save(tmp_path / "model")
    with pytest.raises(TypeError, match="load.* 'lr'. Did you mean 'learning_rate'"):
        PPO.load(tmp_path / "model", lr=1e-3)

    class Alone(PPO):
        steps_environments = False

    with pytest.raises(ValueError, match="env='CartPole-v1' cannot be used: Alone learns without an environment"):
        Alone.load(tmp_path / "model", env="CartPole-v1")


@pytest.mark.parametrize(
    ("env", "hint"),
    [
        (Made, r"a class that makes one: make_vec_env\(Made, n_envs=4\), or Made\(\)"),
        (lambda: Made(), r"a function that makes one: make_vec_env\(function, n_envs=4\)"),
        (["CartPole-v1"] * 3, r"make_vec_env\('CartPole-v1', n_envs=3\)"),
        ([Made, Made], r"DummyVecEnv\(\[lambda: env0, lambda: env1\]\) or make_vec_env"),
        ((Made(),), r"DummyVecEnv\(\[.*\]\), where each function makes one"),
        ([], "make_vec_env"),
    ],
)
def test_what_environments_are_made_of(env: Any, hint: str) -> None:
    with pytest.raises(ValueError, match=f"is not an environment.*{hint}"):
        PPO("MlpPolicy", env)
    with pytest.raises(ValueError, match=f"is not an environment.*{hint}"):
        polyak.evaluate(PPO("MlpPolicy", "CartPole-v1"), env)


def test_an_environment_of_gym() -> None:
    old = type("Old", (), {"__module__": "gym.core"})
    with pytest.raises(ValueError, match="made for gym, which is no longer maintained: import gymnasium"):
        PPO("MlpPolicy", old())


@pytest.mark.parametrize(
    ("cls", "env", "others"),
    [
        (SAC, "CartPole-v1", "DQN, PPO or DiscreteSAC"),
        (DQN, "Pendulum-v1", "SAC, TD3 or PPO"),
        (DQN, IdentityEnvMultiDiscrete, "PPO, A2C or TRPO"),
        (SAC, IdentityEnvMultiBinary, "PPO, A2C or TRPO"),
    ],
)
def test_algorithms_for_the_space(cls: Any, env: Any, others: str) -> None:
    with pytest.raises(ValueError, match=f"another algorithm, such as {others}"):
        cls("MlpPolicy", env if isinstance(env, str) else env())


def test_algorithms_for_the_data() -> None:
    recorded = collect("CartPole-v1", None, 50, seed=0)
    with pytest.raises(ValueError, match="such as DiscreteCQL, BCQ or BC"):
        IQL("MlpPolicy", recorded)
    with pytest.raises(ValueError, match="is a dataset, but PPO learns by acting.*DiscreteCQL, BCQ or BC"):
        PPO("MlpPolicy", recorded)


@pytest.mark.parametrize("table", [TAKE, FROM_DATA])
def test_what_is_advised_takes_the_space(table: dict[type[spaces.Space], str]) -> None:
    for space, advised in table.items():
        for name in advised.replace(" or ", ", ").split(", "):
            cls = getattr(polyak, name)
            assert any(issubclass(space, kind) for kind in cls.action_spaces), (space, name)
            assert issubclass(cls, OfflineAlgorithm) == (table is FROM_DATA)
            assert table is TAKE or issubclass(cls, LearnsFromData)


def test_a_policy_in_the_place_of_the_environment() -> None:
    with pytest.raises(
        ValueError, match=r"env='MlpPolicy' is a policy.*the policy comes first: PPO\('MlpPolicy', env\)"
    ):
        PPO("CartPole-v1", "MlpPolicy")
    for cls in (QLearning, DoubleQLearning):
        with pytest.raises(ValueError, match=rf"env='MlpPolicy' is a policy.*takes none: {cls.__name__}\(env\)"):
            cls("MlpPolicy", "FrozenLake-v1")  # type: ignore[misc]
