"""``polyak benchmark-agents``: measure the trained agents of a folder, as ``rl_zoo3.benchmark`` does.

Each agent plays a number of steps; its episodes stay under ``<benchmark-dir>/<algo>-<EnvId>/`` as monitor files, and
``<benchmark-dir>/benchmark.md`` has a row for each, in the Zoo's columns.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from polyak.writing import replacing
from polyak.zoo.agent import SavedAgent
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.errors import ZooError
from polyak.zoo.hub.load import LoadOptions, load_from_hub
from polyak.zoo.hub.repository import agents_of
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import note, writable_folder
from polyak.zoo.registry import algorithm_names, env_name
from polyak.zoo.report.groups import in_force
from polyak.zoo.run_folder import RunFolder, file_name, run_name
from polyak.zoo.sizes import MOST_ENVS, MOST_PROCESSES

COLUMNS = ("algo", "env_id", "mean_reward", "std_reward", "n_timesteps", "eval_timesteps", "eval_episodes")


@dataclass
class BenchmarkAgentsOptions(CommandOptions):
    """Measure trained agents, those of a folder and of the Hub, and write benchmark.md in the Zoo's columns."""

    log_dir: str = option("rl-trained-agents", "--log-dir", help="Where the runs of the agents are.")
    benchmark_dir: str = option("logs/benchmark", "--benchmark-dir", help="Where episodes and table are kept.")
    n_timesteps: int = option(150_000, "--n-timesteps", "-n", help="Steps that each agent plays.", at_least=1)
    n_envs: int = option(1, "--n-envs", help="Environments side by side.", at_least=1, at_most=MOST_ENVS)
    seed: int = option(0, "--seed", help="Seed of the environments and of sampled actions.")
    num_threads: int = option(2, "--num-threads", help="PyTorch threads.", at_most=MOST_PROCESSES)
    test_mode: bool = option(False, "--test-mode", help="Measure one agent only.")
    with_mujoco: bool = option(False, "--with-mujoco", help="Measure agents of MuJoCo's robots too.")
    no_hub: bool = option(False, "--no-hub", help="Do not download the agents of the Hub that are missing.")
    organization: str = option("sb3", "--organization", "-orga", help="Owner of the agents on the Hub.")
    trust: bool = option(
        False, "--trust", help="Also run code that the runs' files name or hold; for files that you trust only."
    )
    verbose: int = option(1, "--verbose", help="0 says little, 1 each episode.")


@dataclass(frozen=True)
class Agent:
    """A trained agent: the latest run of an algorithm on an environment, by the name of that alone.

    The run's args.yml names the module of its environment, and `SavedAgent` decides whether that is allowed.
    """

    algo: str
    env: str

    @property
    def name(self) -> str:
        """Name of its folder in the benchmark's."""
        return f"{self.algo}-{file_name(self.env)}"


def benchmark_agents(options: BenchmarkAgentsOptions) -> Path:
    """Measure the agents that `options` name and return the table's file.

    Earlier measurements are kept. An agent that cannot be played is named on stderr and left out. Raises ZooError when
    there is none at all.
    """
    logs = Path(options.log_dir)
    folder = writable_folder("--benchmark-dir", options.benchmark_dir)
    if not options.no_hub:
        _download(options)
    agents = sorted(find_agents(logs), key=lambda agent: agent.name)
    if not agents:
        raise ZooError(f"There are no trained agents under --log-dir {options.log_dir!r}. Give a folder of runs.")
    rows = []
    for agent in agents:
        try:
            if not options.with_mujoco and _is_mujoco(_playing(agent, options)):
                continue
            rows.append(_measured(agent, options, folder / agent.name))
        except (ZooError, ImportError) as error:
            note(f"{agent.name} is left out: {error}")
            continue
        if options.test_mode:
            break
    if not rows:
        raise ZooError(f"None of the agents under --log-dir {options.log_dir!r} could be measured.")
    page = folder / "benchmark.md"
    with replacing(page) as file:
        file.write(as_markdown(rows).encode())
    print(f"Wrote {page}")
    return page


def find_agents(logs: Path) -> Iterator[Agent]:
    """Yield the agents that have a run under `logs`; a folder called ``module:NAME`` is none of polyak's."""
    for parent in sorted(path for path in logs.iterdir() if ":" not in path.name) if logs.is_dir() else []:
        names = {run_name(path) for path in parent.iterdir() if path.is_dir()} if parent.is_dir() else set()
        for name in sorted(name for name in names if name):
            run = RunFolder.find(logs, parent.name, name)
            yield Agent(parent.name, env_name(str(run.read_yaml("args.yml").get("env") or name)))


def _download(options: BenchmarkAgentsOptions) -> None:
    """Download the agents of the Hub that are missing."""
    have = {agent.name for agent in find_agents(Path(options.log_dir))}
    for name in agents_of(options.organization):
        algo, _, env = name.partition("-")
        if name in have or algo not in algorithm_names():
            continue
        wanted = LoadOptions(algo=algo, env=env, folder=options.log_dir, organization=options.organization)
        try:
            load_from_hub(wanted)
        except ZooError as error:
            note(f"{name} is left out: {error}")
        if options.test_mode:
            return


def _is_mujoco(options: EnjoyOptions) -> bool:
    return "mujoco" in str(SavedAgent(options).environment.spec.entry_point).lower()


def _playing(agent: Agent, options: BenchmarkAgentsOptions) -> EnjoyOptions:
    """Return the options of `polyak enjoy` that play an agent."""
    return EnjoyOptions(
        algo=agent.algo,
        env=agent.env,
        folder=options.log_dir,
        n_timesteps=options.n_timesteps,
        n_envs=options.n_envs,
        seed=options.seed,
        num_threads=options.num_threads,
        trust=options.trust,
        render=False,
        verbose=options.verbose,
    )


def _measured(agent: Agent, options: BenchmarkAgentsOptions, folder: Path) -> dict[str, str]:
    """Return the row of an agent, from the episodes that it has played before or plays now."""
    from polyak.envs import load_results

    if not folder.is_dir():
        growing = folder.with_name(f".{folder.name}.unfinished")
        shutil.rmtree(growing, ignore_errors=True)
        enjoy(replace(_playing(agent, options), reward_log=str(growing)))
        os.rename(growing, folder)
    episodes = load_results(str(folder))
    if not len(episodes):
        raise ZooError(f"no episode ended within --n-timesteps {options.n_timesteps}; delete {folder} to try again.")
    config = RunFolder.find(Path(options.log_dir), agent.algo, agent.env)
    return {
        "algo": agent.algo,
        "env_id": agent.env,
        "mean_reward": f"{np.mean(episodes['r']):.3f}",
        "std_reward": f"{np.std(episodes['r']):.3f}",
        "n_timesteps": steps(config),
        "eval_timesteps": str(int(episodes["l"].sum())),
        "eval_episodes": str(len(episodes)),
    }


def steps(run: RunFolder) -> str:
    """Return how long a run trained, as the Zoo writes it: ``500k``, ``2M``; ``?`` if its files do not contain it."""
    asked_for = in_force(run.read_yaml("config.yml"), run.read_yaml("args.yml")).get("n_timesteps")
    number = float(run.interruption[0] or asked_for or -1)
    if number < 0:
        return "?"
    scale, unit = (1e6, "M") if number >= 1e6 else (1e3, "k") if number >= 1e3 else (1.0, "")
    return f"{number / scale:g}{unit}"


def as_markdown(rows: list[dict[str, str]]) -> str:
    """Return a table of `rows` with `COLUMNS`, those of numbers aligned to the right."""
    lines = [COLUMNS, *([row[column] for column in COLUMNS] for row in rows)]
    cells = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([cells[0], "|---|---|---:|---:|---|---:|---:|", *cells[1:], ""])
