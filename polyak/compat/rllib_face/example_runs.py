"""The functions of RLlib's example programs: the arguments of a script, and an experiment with a config.

With ``--no-tune`` the algorithm is trained here, and needs no Ray; else by Ray Tune.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from polyak.compat.rllib_face.tuning import tune_trainable
from polyak.hyperparameters.declaration import require

RETURN = "env_runners/episode_return_mean"
_TEXTS = "--env --output --wandb-key --wandb-project --wandb-run-name"
_NUMBERS = """\
--num-env-runners= --num-envs-per-env-runner= --num-agents=0 --evaluation-num-env-runners=0 --evaluation-interval=0
--num-samples=1 --max-concurrent-trials= --verbose=2 --checkpoint-freq=0 --tune-max-report-freq=5 --num-learners=
--num-aggregator-actors-per-learner= --num-cpus=0 --num-gpus="""
_SWITCHES = """\
--evaluation-parallel-to-training --no-tune --checkpoint-at-end --as-test --as-release-test --old-api-stack
--enable-new-api-stack --local-mode"""


def add_rllib_example_script_args(
    parser: argparse.ArgumentParser | None = None,
    default_reward: float = 100.0,
    default_iters: int = 200,
    default_timesteps: int = 100_000,
) -> argparse.ArgumentParser:
    """Returns a parser with the arguments of RLlib's example programs, under their names and with their defaults.

    Args:
        parser: the parser to add them to; ``None``: a new one.
        default_reward: default of ``--stop-reward``, the mean return at which training stops.
        default_iters: default of ``--stop-iters``.
        default_timesteps: default of ``--stop-timesteps``, in environment steps.
    """
    parser = argparse.ArgumentParser() if parser is None else parser
    add = parser.add_argument
    add("--algo", default="PPO")
    add("--framework", choices=["tf", "tf2", "torch"], default="torch")
    add("--log-level", choices=["INFO", "DEBUG", "WARN", "ERROR"])
    add("--evaluation-duration", type=lambda text: text if text == "auto" else int(text), default=10)
    add("--evaluation-duration-unit", choices=["episodes", "timesteps"], default="episodes")
    add("--stop-reward", type=float, default=default_reward)
    add("--stop-iters", type=int, default=default_iters)
    add("--stop-timesteps", type=int, default=default_timesteps)
    for name in ("--num-cpus-per-learner", "--num-gpus-per-learner"):
        add(name, type=float)
    for name in _TEXTS.split():
        add(name)
    for entry in _NUMBERS.split():
        name, _, default = entry.partition("=")
        add(name, type=int, default=int(default) if default else None)
    for name in _SWITCHES.split():
        add(name, action="store_true")
    return parser


def should_stop(stop: Mapping[str, Any], results: Mapping[str, Any], keep_ray_up: bool = False) -> bool:
    """Whether a result has reached one of some values.

    Args:
        stop: key of a result, of nested ones with slashes -> its least value.
        results: the results of ``train()``.
        keep_ray_up: do not shut Ray down then.
    """
    for key, least in stop.items():
        value = _at(results, key)
        if isinstance(value, int | float) and not math.isnan(value) and value >= least:
            print(f"Stop criterion ({key}={least}) fulfilled!")
            _shut_down(keep_ray_up)
            return True
    return False


def run_rllib_example_script_experiment(
    base_config: Any,
    args: Any = None,
    *,
    stop: Mapping[str, Any] | None = None,
    success_metric: Mapping[str, Any] | None = None,
    trainable: Any = None,
    tune_callbacks: list[Any] | None = None,
    keep_config: bool = False,
    keep_ray_up: bool = False,
    scheduler: Any = None,
    progress_reporter: Any = None,
) -> Any:
    """Train by a config and the arguments of a script.

    Args:
        base_config: takes the settings that were given as arguments.
        args: arguments from the parser of :func:`add_rllib_example_script_args`; ``None``: those of the program.
        stop: see :func:`should_stop`; ``None``: ``--stop-reward``, ``--stop-timesteps`` and ``--stop-iters``.
        success_metric: with ``--as-test``, one key and the value that must be reached; ``None``: the mean return.
        trainable: replaces the config's algorithm for the Tuner.
        tune_callbacks: callbacks of the Tuner.
        keep_config: leave the config as it is.
        keep_ray_up: do not shut Ray down at the end.
        scheduler: scheduler of the Tuner.
        progress_reporter: reporter of the Tuner.

    Returns:
        with ``--no-tune`` the last result; else the Tuner's.

    Raises:
        HyperparameterError: an unsupported argument.
        ValueError: ``--as-test``, and the value was not reached.
    """
    args = add_rllib_example_script_args().parse_args() if args is None else args
    for name in ("enable_new_api_stack", "local_mode", "as_release_test", "wandb_key", "num_gpus"):
        require(not getattr(args, name, None), name, getattr(args, name, None), "leave it out.")
    stop = stop or {
        RETURN: args.stop_reward,
        "env_runners/num_env_steps_sampled_lifetime": args.stop_timesteps,
        "training_iteration": args.stop_iters,
    }
    if not keep_config:
        _take(base_config, args)
    if find_spec("ray") is not None and (args.num_cpus or not args.no_tune):
        import_module("ray").init(num_cpus=args.num_cpus or None, ignore_reinit_error=True)
    if not args.no_tune:
        tuner = _tuner(base_config, args, stop, trainable, tune_callbacks, scheduler, progress_reporter)
        found = tuner.fit()
        _shut_down(keep_ray_up)
        _judge(found, args, stop, success_metric)
        return found
    require(not args.as_test, "as_test", True, "it takes Ray Tune: leave --no-tune out.")
    result: dict[str, Any] = {}
    with base_config.build() as algo:
        for iteration in range(stop.get("training_iteration", args.stop_iters)):
            result = algo.train()
            evaluated = _at(result, f"evaluation/{RETURN}")
            print(f"iter={iteration} R={_at(result, RETURN)}" + ("" if evaluated is None else f" R(eval)={evaluated}"))
            if should_stop(stop, result, keep_ray_up):
                return result
    _shut_down(keep_ray_up)
    return result


def _take(config: Any, args: Any) -> None:
    """Apply the given arguments to the config."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    config.framework(args.framework)
    if args.env is not None and config.env is None:
        config.environment(args.env)
    config.env_runners(**_some(given, "num_env_runners", "num_envs_per_env_runner"))
    names = ("num_learners", "num_cpus_per_learner", "num_gpus_per_learner", "num_aggregator_actors_per_learner")
    config.learners(**_some(given, *names))
    config.debugging(**_some(given, "log_level"))
    config.offline_data(**_some(given, "output"))
    if args.old_api_stack:
        config.api_stack(enable_rl_module_and_learner=False, enable_env_runner_and_connector_v2=False)
    if args.evaluation_interval > 0:
        config.evaluation(**{name: value for name, value in given.items() if name.startswith("evaluation_")})


def _some(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given}


def _tuner(
    config: Any, args: Any, stop: Mapping[str, Any], trainable: Any, callbacks: Any, scheduler: Any, reporter: Any
) -> Any:
    kind = trainable or tune_trainable(config)
    tune = import_module("ray.tune")
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # Tune's newer output uses no progress reporter
    run = tune.RunConfig(
        failure_config=tune.FailureConfig(max_failures=0, fail_fast="raise"),
        stop=dict(stop),
        verbose=1 if args.as_test else args.verbose,
        callbacks=callbacks,
        checkpoint_config=tune.CheckpointConfig(
            checkpoint_frequency=args.checkpoint_freq, checkpoint_at_end=args.checkpoint_at_end
        ),
        progress_reporter=reporter or tune.CLIReporter(max_report_frequency=args.tune_max_report_freq),
    )
    trials = {"num_samples": args.num_samples, "max_concurrent_trials": args.max_concurrent_trials}
    how = tune.TuneConfig(**trials, scheduler=scheduler)
    return tune.Tuner(kind, param_space=config, run_config=run, tune_config=how)


def _judge(found: Any, args: Any, stop: Mapping[str, Any], metric: Mapping[str, Any] | None) -> None:
    """Raise unless ``--as-test`` was left out, or a trial has reached the metric."""
    if not args.as_test:
        return
    keys = [key for key in (f"evaluation/{RETURN}", RETURN) if key in stop]
    key, least = next(iter((metric or {key: stop[key] for key in keys[:1]} or {RETURN: args.stop_reward}).items()))
    known = [float(value) for value in found.get_dataframe()[key] if not math.isnan(value)]  # NaN: no episode has ended
    if not known or max(known) < least:
        raise ValueError(f"{key} of {least} was not reached: the best is {max(known, default=None)}.")
    print(f"`{key}` of {least} reached! ok")


def _at(result: Any, key: str) -> Any:
    """Returns the entry of a nested key; ``None`` if there is none."""
    for part in key.split("/"):
        result = result.get(part.strip()) if isinstance(result, Mapping) else None
    return result


def _shut_down(keep: bool) -> None:
    if not keep and find_spec("ray") is not None:
        import_module("ray").shutdown()
