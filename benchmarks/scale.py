"""``polyak.rllib`` beside RLlib: the same configs, built and trained by each, alone and with runners on Ray.

    python benchmarks/scale.py                                    # hours: most of them the peer's way to the return
    python benchmarks/scale.py --rows ppo-0 ppo-2 --repeats 1
    python benchmarks/scale.py --seconds 3 --cap 3 --repeats 1 --wait 0     # does it run?
    python benchmarks/scale.py --scaling                          # runners whose environments sleep

Run it where ``polyak[scale]`` and psutil are installed; RLlib has a virtual environment of its own. Every run is a
fresh process, libraries in turn; figures are medians. Memory is the sum of the proportional set sizes of a run's whole
tree of processes, Ray's own among them, and its largest value of those seen twice a second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import psutil
from bench import NOISY, OtherLoad, wait_until_quiet
from command_line import add_choice, add_out, add_repeats, add_threads, add_wait, at_least, positive
from processes import Beside, RunFailed, interpreter, run_worker, stop_workers_with_me
from reports import machine, versions_line, write

LIBRARIES = ("polyak", "rllib")
GOAL = 450.0
MIB = 2.0**20


class Row(NamedTuple):
    """One algorithm with a number of runners, in the words of both libraries."""

    title: str
    algo: str
    config: dict[str, dict[str, Any]]
    goal: float | None = GOAL
    warm_up: int = 0
    """Environment steps before the clock of throughput starts."""


_NETS = {"fcnet_hiddens": [64, 64], "fcnet_activation": "tanh", "vf_share_layers": False}
_PPO = {
    "training": {
        "lr": 1e-3,
        "train_batch_size_per_learner": 1024,
        "minibatch_size": 256,
        "num_epochs": 10,
        "lambda_": 0.95,
        "clip_param": 0.2,
        "use_kl_loss": False,
        "vf_clip_param": 1e6,
        "vf_loss_coeff": 0.5,
        "grad_clip": 0.5,
    },
    "rl_module": {"model_config": _NETS},
}
_DQN = {
    "training": {"lr": 5e-4, "n_step": [2, 5], "epsilon": [[0, 1.0], [10_000, 0.02]]},
    "rl_module": {"model_config": {"fcnet_hiddens": [256], "fcnet_activation": "linear", "head_fcnet_hiddens": [256]}},
}
_RAINBOW = {
    "env_runners": {"num_env_runners": 0, "rollout_fragment_length": 4},
    "training": {
        "lr": 2.5e-4,
        "n_step": 3,
        "num_atoms": 51,
        "v_min": 0.0,
        "v_max": 100.0,
        "noisy": True,
        "sigma0": 0.5,
        "dueling": True,
        "double_q": True,
        "epsilon": [[0, 1.0], [10_000, 0.02]],
    },
    "rl_module": {"model_config": {"fcnet_hiddens": [256], "fcnet_activation": "relu", "head_fcnet_hiddens": [256]}},
}
_SAC = {
    "training": {
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "alpha_lr": 3e-4,
        "n_step": 1,
        "train_batch_size_per_learner": 256,
        "replay_buffer_config": {"type": "EpisodeReplayBuffer", "capacity": 100_000},
        "num_steps_sampled_before_learning_starts": 1000,
    },
    "rl_module": {"model_config": {"fcnet_hiddens": [256], "head_fcnet_hiddens": [256], "fcnet_activation": "relu"}},
}
_ASYNC = {
    "training": {
        "lr": 1e-3,
        "train_batch_size_per_learner": 500,
        "vf_loss_coeff": 0.05,
        "entropy_coeff": 0.0,
    },
    "reporting": {"min_time_s_per_iteration": 1},
    "rl_module": {"model_config": _NETS},
}


def _with(
    runners: int, envs: int, base: dict[str, dict[str, Any]], env: str = "CartPole-v1", **training: Any
) -> dict[str, dict[str, Any]]:
    config: dict[str, dict[str, Any]] = {"environment": {"env": env}, **deepcopy(base)}
    places = {"num_env_runners": runners, "num_envs_per_env_runner": envs}
    config["env_runners"] = {**config.get("env_runners", {}), **places}
    config["learners"] = {"num_learners": 0}
    config["training"].update(training)
    return config


_APPO: dict[str, Any] = {
    "lambda_": 0.99,
    "target_network_update_freq": 0.25,
    "circular_buffer_num_batches": 4,
    "circular_buffer_iterations_per_batch": 2,
}
ROWS = {
    "ppo-0": Row("PPO, no runners", "PPO", _with(0, 8, _PPO)),
    "ppo-2": Row("PPO, 2 runners", "PPO", _with(2, 8, _PPO)),
    "dqn-0": Row("DQN, no runners", "DQN", _with(0, 1, _DQN), warm_up=1500),
    "rainbow-0": Row("Rainbow, no runners, an update every 4 steps", "DQN", _with(0, 1, _RAINBOW), None, 1500),
    "dqn-2": Row("DQN, 2 runners", "DQN", _with(2, 1, _DQN), None, warm_up=1500),
    "sac-0": Row("SAC on Pendulum-v1, no runners", "SAC", _with(0, 1, _SAC, env="Pendulum-v1"), None, 1500),
    "sac-2": Row("SAC on Pendulum-v1, 2 runners", "SAC", _with(2, 1, _SAC, env="Pendulum-v1"), None, 1500),
    "impala-0": Row("IMPALA, no runners", "IMPALA", _with(0, 10, _ASYNC)),
    "impala-2": Row("IMPALA, 2 runners", "IMPALA", _with(2, 5, _ASYNC)),
    "appo-0": Row("APPO, no runners", "APPO", _with(0, 10, _ASYNC, **_APPO)),
    "appo-2": Row("APPO, 2 runners", "APPO", _with(2, 5, _ASYNC, **_APPO)),
}
"""Environments of a runner are as many as make a batch of the asynchronous ones one fragment of each."""

SLEEP_S = 0.002
SCALING = {
    "environment": {"env": "sleeper", "env_config": {"seconds": SLEEP_S}},
    "learners": {"num_learners": 0},
    "training": {"num_epochs": 1, "minibatch_size": 500, "use_kl_loss": False},
    "rl_module": {"model_config": {**_NETS, "fcnet_hiddens": [32]}},
}
SCALING_ROWS = 500
"""Steps of each runner in a batch: a second of sleep."""


class Metric(NamedTuple):
    """One table."""

    key: str
    title: str
    digits: int
    higher_is_better: bool


METRICS = (
    Metric("env_steps_per_s", "Environment steps learned from, per second", 0, True),
    Metric("processor_us_per_step", "Microseconds of processors for a step, all processes together", 0, False),
    Metric("driver_us_per_step", "Microseconds of the driver's processor for a step", 0, False),
    Metric("seconds_to_goal", f"Seconds of training to a mean return of {GOAL:g} in the last 100 episodes", 1, False),
    Metric("import_build_s", "Seconds to import, and to build the algorithm", 2, False),
    Metric("peak_memory_mib", "Peak memory of all processes, MiB", 0, False),
)


class MemoryWatch(Beside):
    """The largest memory that all processes below this one had together while the ``with`` block ran.

    Attributes:
        peak_mib: the sum of proportional set sizes: pages that several share count once.
        processes: the most that there were.
    """

    def __init__(self, every_s: float = 0.5) -> None:
        super().__init__()
        self.peak_mib, self.processes, self._every = 0.0, 0, every_s

    def _run(self) -> None:
        me = psutil.Process()
        while not self.over.wait(self._every):
            sizes = [size for child in me.children(recursive=True) if (size := _proportional(child)) is not None]
            self.peak_mib = max(self.peak_mib, sum(sizes) / MIB)
            self.processes = max(self.processes, len(sizes))


def _proportional(process: psutil.Process) -> int | None:
    """A process's share of memory in bytes; None of one that is gone."""
    try:
        found = process.memory_full_info()
    except psutil.Error:
        return None
    return int(getattr(found, "pss", found.uss))


def once(library: str, job: dict[str, Any], args: argparse.Namespace, what: str) -> dict[str, Any] | None:
    """One run; None, and a line, if it fails."""
    wait_until_quiet(args.wait)
    with OtherLoad() as load, MemoryWatch() as memory:
        try:
            result = run_worker(library, job, args.threads, timeout_s=args.cap + 10 * args.seconds + 300)
        except RunFailed as error:
            print(f"{what} FAILED: {error}", flush=True)
            return None
    seen = {"other_cores": load.cores, "peak_memory_mib": memory.peak_mib, "processes": memory.processes}
    return {**result, **seen}


def run_row(name: str, args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """All runs of one row, libraries in turn; library -> one result per repeat."""
    row = ROWS[name]
    runs: dict[str, list[dict[str, Any]]] = {library: [] for library in args.libs}
    for repeat in range(args.repeats):
        for library in args.libs:
            config = {**row.config, "debugging": {"seed": repeat}} if row.algo in ("PPO", "DQN") else row.config
            clocks = {"seconds": args.seconds, "goal": row.goal, "cap_s": args.cap, "warm_up": row.warm_up}
            job = {"measure": "scale", "algo": row.algo, "config": config, **clocks}
            result = once(library, job, args, f"{name} {library} repeat {repeat}")
            if result is None:
                continue
            runs[library].append(result)
            goal = result["seconds_to_goal"]
            reached = f"{goal:.1f} s" if goal else f"not in {args.cap:g} s ({result['last_return']:.0f})"
            rate = result["env_steps_per_s"]
            print(
                f"{name:10} {library:7} {repeat + 1}/{args.repeats}: {'-' if rate is None else f'{rate:,.0f}':>8} "
                f"steps/s | {GOAL:g}: {reached if row.goal else '-'} | begins in {result['import_build_s']:.1f} s | "
                f"{result['peak_memory_mib']:,.0f} MiB in {result['processes']} processes",
                flush=True,
            )
    return runs


def median(results: list[dict[str, Any]], key: str) -> float | None:
    """Of the runs that have the figure, if most do."""
    found = [result[key] for result in results if result[key] is not None]
    return statistics.median(found) if 2 * len(found) > len(results) else None


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines: one table a figure."""
    where = report["machine"]
    yield "# Scale"
    yield ""
    yield (
        "CartPole-v1 but where a row names another, equal settings, "
        f"{where['cpus']} CPU cores ({where['processor']}), medians of "
        f"{report['repeats']} fresh processes, {report['seconds']:g} s of throughput each. Ratios above 1: polyak is "
        f"better. `*`: other processes used more than {NOISY:g} cores. `-`: there is no such figure, or the return was "
        f"not reached in {report['cap']:g} s."
    )
    for metric in METRICS:
        yield ""
        yield f"## {metric.title}"
        yield ""
        yield "| | polyak | RLlib | ratio |"
        yield "|---|---:|---:|---:|"
        for name, runs in report["runs"].items():
            if metric.key == "seconds_to_goal" and ROWS[name].goal is None:
                continue
            values = [median(runs.get(library, []), metric.key) for library in LIBRARIES]
            ratio = "-"
            ours, theirs = values
            if ours and theirs:
                ratio = f"{ours / theirs if metric.higher_is_better else theirs / ours:.1f}x"
            everyone = [result["other_cores"] or 0.0 for results in runs.values() for result in results]
            noisy = "*" if max(everyone, default=0.0) > NOISY else ""
            cells = " | ".join("-" if value is None else f"{value:,.{metric.digits}f}" for value in values)
            yield f"| {ROWS[name].title}{noisy} | {cells} | {ratio} |"
    yield ""
    yield versions_line(report["versions"])


def run_scaling(args: argparse.Namespace) -> dict[str, dict[int, list[dict[str, Any]]]]:
    """Library -> number of runners -> one result per repeat."""
    runs: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for repeat in range(args.repeats):
        for runners in args.runners:
            for library in args.libs:
                config: dict[str, dict[str, Any]] = deepcopy(SCALING)
                config["env_runners"] = {"num_env_runners": runners, "num_envs_per_env_runner": 1}
                config["training"]["train_batch_size_per_learner"] = SCALING_ROWS * runners
                job = {"measure": "scaling", "algo": "PPO", "config": config, "seconds": args.seconds}
                result = once(library, job, args, f"{runners} runners of {library}, repeat {repeat}")
                if result is not None:
                    runs.setdefault(library, {}).setdefault(runners, []).append(result)
                    rate = result["env_steps_per_s"]
                    print(
                        f"{library:7} {runners:2} runners {repeat + 1}/{args.repeats}: {rate:,.0f} steps/s", flush=True
                    )
    return runs


def scaling_markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines: throughput beside as many times that of one runner."""
    where = report["machine"]
    yield "# Scaling"
    yield ""
    yield (
        f"PPO, its whole loop, on environments that sleep {1e3 * SLEEP_S:g} ms a step, one for each runner; "
        f"{where['cpus']} CPU cores ({where['processor']}), medians of {report['repeats']} fresh processes of "
        f"{report['seconds']:g} s. Linear: as many times the throughput of the fewest runners, for each runner."
    )
    for library, of_runners in report["runs"].items():
        fewest = min(of_runners)
        first = median(of_runners[fewest], "env_steps_per_s") or 0.0
        yield ""
        yield f"## {library}"
        yield ""
        yield "| runners | steps/s | linear | of linear | steps/s while sampling | peak memory, MiB |"
        yield "|---:|---:|---:|---:|---:|---:|"
        for runners, results in of_runners.items():
            rate = median(results, "env_steps_per_s") or 0.0
            linear, sampled = first * runners / fewest, median(results, "sampled_per_s")
            shown, memory = "-" if sampled is None else f"{sampled:,.0f}", median(results, "peak_memory_mib")
            yield f"| {runners} | {rate:,.0f} | {linear:,.0f} | {rate / linear:.0%} | {shown} | {memory:,.0f} |"
    yield ""
    yield versions_line(report["versions"])


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="polyak.rllib beside RLlib.")
    add_choice(parser, "--rows", list(ROWS))
    add_choice(parser, "--libs", list(LIBRARIES))
    add_repeats(parser, 3, "runs per row and library")
    add = parser.add_argument
    add("--seconds", type=positive, default=30.0, help="seconds of throughput in a run (default 30)")
    add("--cap", type=positive, default=300.0, help="longest training of a run that does not reach the return, s")
    add("--scaling", action="store_true", help="measure runners whose environments sleep, instead of the rows")
    add("--runners", type=at_least(1), nargs="+", default=[1, 2, 4, 8, 16], help="how many (default 1 2 4 8 16)")
    add_threads(parser, 1)
    add_wait(parser)
    add_out(parser, "scale")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    stop_workers_with_me()
    for library in args.libs:
        interpreter(library)
    runs = run_scaling(args) if args.scaling else {name: run_row(name, args) for name in args.rows}
    every = [results for row in runs.values() for results in row.values()]
    versions = {}
    for library in args.libs:
        rows = runs.get(library, {}).values() if args.scaling else [row[library] for row in runs.values()]
        for results in rows:
            versions.update({library: results[0]["versions"]} if results else {})
    report = {
        "machine": machine(),
        **{name: getattr(args, name) for name in ("repeats", "seconds", "cap", "threads")},
        "runs": runs,
        "versions": versions,
    }
    out = args.out.with_name(f"{args.out.name}_runners") if args.scaling else args.out
    print(write(report, scaling_markdown(report) if args.scaling else markdown(report), out))
    return 0 if every and all(len(results) == args.repeats for results in every) else 1


if __name__ == "__main__":
    sys.exit(main())
