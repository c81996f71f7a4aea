"""Spaces: every algorithm has one, and what is drawn from it can be written, read and trained with."""

from typing import Any

import optuna
import pytest
import yaml
from gymnasium import spaces

from polyak.algorithm_info import Search, Task, tune
from polyak.algorithms import REGISTRY, get
from polyak.algorithms.tabular.table import TableAlgorithm
from polyak.envs import VecEnv, make_vec_env
from polyak.experience import collect
from polyak.fields.offline import OfflineAlgorithm
from polyak.zoo.models import new_model
from polyak.zoo.registry import find_algorithm
from polyak.zoo.settings import interpret, load_settings
from polyak.zoo.tuning.problem import is_plain, merged

TUNED = [name for name in REGISTRY if not get(name).card.needs]
CONTINUOUS = [name for name in TUNED if get(name).action_spaces == (spaces.Box,)]


def random_trial(seed: int = 0) -> Any:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed)).ask()


def drawn(algo: str, task: Task, seed: int) -> dict[str, Any]:
    return get(algo).card.search(random_trial(seed), task)


def test_every_algorithm_has_a_space() -> None:
    assert [name for name in REGISTRY if get(name).card.search] == TUNED


def test_of_parts_with_one_name_the_last_is_drawn_in_the_place_of_the_first() -> None:
    search = Search(tune.rate(), tune.discount(), tune.rate(1e-2, 2e-2))
    assert [part.name for part in search] == ["learning_rate", "gamma"]
    values = Search(search, tune.choice("learning_rate", ["lin_1"]))(random_trial(), Task(100))
    assert values.keys() == {"learning_rate", "gamma"}
    assert values["learning_rate"] == "lin_1"
    assert not Search()


def test_entries_of_policy_kwargs_are_drawn_by_themselves() -> None:
    search = Search(tune.of_policy(tune.whole("a", 3, 3)), tune.of_policy(tune.whole("b", 4, 4)), tune.network())
    drawn_of = search(random_trial(), Task(100))["policy_kwargs"]
    assert drawn_of.keys() == {"net_arch", "activation_fn", "a", "b"}
    assert search(random_trial(), Task(100, images=True)) == {"policy_kwargs": {"a": 3, "b": 4}}


@pytest.mark.parametrize(
    ("algo", "n_timesteps"),
    [
        pytest.param(algo, steps, marks=[pytest.mark.slow] * ((i + k) % 2))
        for i, algo in enumerate(TUNED)
        for k, steps in enumerate((200, 1_000_000))
    ],
)
def test_draws_are_plain_and_fit_the_constructor(algo: str, n_timesteps: int) -> None:
    algorithm = find_algorithm(algo)
    raw = load_settings(algorithm, algo, "CartPole-v1").raw
    for seed in range(4):
        n_envs = (1, 8, 10)[seed % 3]
        task = Task(n_timesteps, n_envs, continuous=seed % 2 == 0, images=seed == 1, goals=seed == 2)
        values = drawn(algo, task, seed)
        assert is_plain(values)
        assert yaml.safe_load(yaml.safe_dump(values)) == values
        settings = interpret(algorithm, algo, merged(raw, values), "test")
        assert set(values) <= {*settings.raw}
        rows = n_envs * values.get("n_steps", 0)
        if "gae_lambda" in values:
            assert rows <= max(128 + n_envs, 32 * n_envs, n_timesteps)
            assert values.get("batch_size", 0) <= max(rows, 1)
        assert values.get("learning_starts", 0) <= max(100, n_timesteps / 5)


@pytest.mark.parametrize("algo", TUNED)
def test_models_are_built_from_draws(algo: str) -> None:
    algorithm = find_algorithm(algo)
    tabular = issubclass(algorithm, TableAlgorithm)
    env_id = "Pendulum-v1" if algo in CONTINUOUS else "FrozenLake-v1" if tabular else "CartPole-v1"
    raw = load_settings(algorithm, algo, env_id).raw
    env: Any = make_vec_env(env_id, n_envs=raw.get("n_envs", 1))
    n_envs = env.num_envs
    if issubclass(algorithm, OfflineAlgorithm):
        env.close()
        env = collect(env_id, None, 100, seed=0)
    task = Task(20_000, n_envs, continuous=algo in CONTINUOUS)
    values = {**drawn(algo, task, 1), **({"buffer_size": 1000} if "buffer_size" in raw else {})}
    settings = interpret(algorithm, algo, merged(raw, values), "test")
    model = new_model(algorithm, settings, env, device="cpu")
    assert model.gamma == settings.gamma if "gamma" in values else True
    if isinstance(env, VecEnv):
        env.close()


def test_what_is_drawn_inside_a_mapping_leaves_the_rest_of_it() -> None:
    base = {"policy_kwargs": {"ortho_init": False, "net_arch": [8]}, "gamma": 0.9, "n_envs": 4}
    both = merged(base, {"policy_kwargs": {"net_arch": [64]}, "gamma": 0.99})
    assert both == {"policy_kwargs": {"ortho_init": False, "net_arch": [64]}, "gamma": 0.99, "n_envs": 4}
    assert base["policy_kwargs"] == {"ortho_init": False, "net_arch": [8]}


@pytest.mark.parametrize("value", [{"a": (1, 2)}, {"a": float("nan")}, {1: 2}, {"a": int}, {"a": {"b": object()}}])
def test_what_is_not_plain(value: Any) -> None:
    assert not is_plain(value)
