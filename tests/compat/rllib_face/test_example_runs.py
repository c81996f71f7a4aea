"""The helpers by which RLlib's example programs run."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from polyak.compat.rllib_face.example_runs import add_rllib_example_script_args, run_rllib_example_script_experiment
from polyak.hyperparameters.declaration import HyperparameterError
from tests.compat.rllib_face.test_algorithm import ppo


def args(*given: str) -> Any:
    return add_rllib_example_script_args().parse_args(list(given))


def test_a_run_without_tune_ends_at_the_first_value_that_is_enough() -> None:
    given = args("--no-tune", "--stop-iters=5", "--num-envs-per-env-runner=2", "--log-level=ERROR")
    config = ppo()
    result = run_rllib_example_script_experiment(config, given, stop={"env_runners/num_episodes_lifetime": 1})
    assert result["training_iteration"] < 5
    assert (config.num_envs_per_env_runner, config.log_level) == (2, "ERROR")
    with pytest.raises(HyperparameterError, match="num_gpus"):
        run_rllib_example_script_experiment(ppo(), args("--no-tune", "--num-gpus=1"))


@pytest.mark.parametrize(("returns", "passes"), [([float("nan")], False), ([float("nan"), 120.0], True)])
def test_as_a_test_some_trial_must_have_reached_the_return(
    returns: list[float], passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tune is not run: it would have come to these returns."""
    table = {"env_runners/episode_return_mean": returns}
    asked: list[Any] = []
    tune = SimpleNamespace(
        Tuner=lambda *args, **how: SimpleNamespace(fit=lambda: SimpleNamespace(get_dataframe=lambda: table)),
        **dict.fromkeys(["RunConfig", "FailureConfig", "CheckpointConfig", "CLIReporter", "TuneConfig"], dict),
    )
    ray = SimpleNamespace(init=lambda **how: asked.append(how), shutdown=lambda: asked.append("shutdown"))
    for name, module in {"ray": ray, "ray.tune": tune}.items():
        monkeypatch.setitem(sys.modules, name, module)
    ray.__spec__ = SimpleNamespace()
    given = args("--as-test", "--num-cpus=3", "--stop-reward=100")
    if passes:
        run_rllib_example_script_experiment(ppo(), given, trainable=dict)
        assert asked == [{"num_cpus": 3, "ignore_reinit_error": True}, "shutdown"]
    else:
        with pytest.raises(ValueError, match="was not reached: the best is None"):
            run_rllib_example_script_experiment(ppo(), given, trainable=dict)
