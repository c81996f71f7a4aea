"""Trains the agents that come along, ``polyak gallery``, and measures each over 100 episodes.

    python benchmarks/agents.py                                   # all of them; goes on where it was stopped
    python benchmarks/agents.py --agents ppo/CartPole-v1
    python benchmarks/agents.py --train-only                      # polyak/zoo/agents is left as it is

Each is trained by ``polyak train`` with its tuned settings and the first seed. What is kept of a run is its settings,
its evaluations, and the model of the best evaluation without the state of its optimizers.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_line import add_choice

ROOT = Path(__file__).resolve().parents[1]
AGENTS = ROOT / "polyak" / "zoo" / "agents"
EPISODES = 100
OF_EPISODES = ("returns", "lengths", "successes")
LOGS = Path("runs/agents")
"""Seen from the project's folder, where commands run."""
DEMONSTRATIONS = LOGS / "pendulum.npz"
"""What SAC's agent does on Pendulum; BC learns from it."""
TRAININGS: dict[str, list[str]] = {
    "ppo/CartPole-v1": [],
    "trpo/Acrobot-v1": [],
    "recurrent_ppo/CartPoleNoVel-v1": [],
    "maskable_ppo/Taxi-v4": [],
    "qrdqn/MountainCar-v0": [],
    "sac/Pendulum-v1": ["--eval-freq", "2000"],
    "bc/Pendulum-v1": ["--eval-freq", "2000", "--dataset", str(DEMONSTRATIONS)],
    "ppo/MountainCarContinuous-v0": [],
    "appo/CartPole-v1": [],
    "sac/HalfCheetah-v5": [
        *("--eval-freq", "5000", "-n", "40000"),
        *("-params", "policy_kwargs:dict(net_arch=[128, 128])"),
    ],
    "ppo/LunarLander-v3": ["--eval-freq", "50000", "--eval-episodes", "20"],
    "td3/Pendulum-v1": [
        *("--eval-freq", "2500", "--eval-episodes", "20", "-n", "15000"),
        *("-params", "policy_kwargs:dict(net_arch=[64, 64])"),
    ],
}
"""Algorithm and environment -> further arguments of ``polyak train``."""
GAMES: dict[str, dict[str, Any]] = {
    "alphazero/tictactoe": {
        "policy": "MlpPolicy",
        "policy_kwargs": {"net_arch": [64, 64]},
        "simulations": 25,
        "n_games": 64,
        "seed": 1,
    },
}
"""Algorithm and game -> arguments of the class, which plays against itself."""
POSITIONS, PARTS = 30_000, 10
"""Of a game: how many are played, and how often they are interrupted for an evaluation."""
OPPONENT = {"simulations": 50, "seed": 1000}
"""The search with random games that a game's agent is measured against."""


def polyak(*arguments: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "polyak", *arguments]
    return subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def train(agent: str, more: Sequence[str]) -> Path:
    """The run folder of an agent, trained if it is not there."""
    algo, env = agent.split("/")
    folder = ROOT / LOGS / algo / f"{env}_1"
    if not (folder / f"{env}.zip").exists():
        shutil.rmtree(folder, ignore_errors=True)
        if algo == "bc":
            model = str(LOGS / "sac" / f"{env}_1" / "best_model.zip")
            acting = ("--model", model, "--deterministic", "-n", "10000")
            polyak("data", "collect", "--env", env, *acting, "-o", str(DEMONSTRATIONS))
        polyak("train", "--algo", algo, "--env", env, "--seed", "1", "-f", str(LOGS), "--verbose", "0", *more)
    return folder


def publish(agent: str, run: Path) -> None:
    """Keep what ``polyak gallery`` and ``polyak enjoy --pretrained`` read of a run."""
    import polyak as library

    algo, env = agent.split("/")
    partial = AGENTS / algo / f"{env}_1.partial"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / env).mkdir(parents=True)
    best = run / "best_model.zip"
    model = library.load(best if best.exists() else run / f"{env}.zip", device="cpu")
    for optimizer in model.learner.optimizers.values():
        optimizer.state.clear()
    model.save(partial / f"{env}.zip")
    for name in ("args.yml", "config.yml"):
        shutil.copy(run / env / name, partial / env / name)
    if (run / "evaluations.npz").exists():
        shutil.copy(run / "evaluations.npz", partial / "evaluations.npz")
    which = ["--load-best"] if best.exists() else []
    how = ("-n", str(EPISODES), "--seed", "1000", "-o", "json")
    found = polyak("evaluate", "--algo", algo, "--env", env, "-f", str(LOGS), *which, *how)
    score = {name: value for name, value in json.loads(found).items() if name not in ("model", *OF_EPISODES)}
    (partial / "score.json").write_text(json.dumps(score, indent=1) + "\n")
    folder = AGENTS / algo / f"{env}_1"
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def results_of(model: Any, games: int) -> list[float]:
    """Results in [-1, 1] of pairs of games against the opponent, in which either begins once."""
    from polyak import MCTS
    from polyak.algorithms.search.self_play import match

    opponent = MCTS(model.env, **OPPONENT)
    return [match(model.search, opponent, 2) - 1 for _ in range(games // 2)]


def publish_game(agent: str, settings: dict[str, Any]) -> None:
    """Train a game's agent, measure it, and keep what ``polyak gallery`` and ``polyak play --pretrained`` read."""
    import numpy as np

    from polyak import AlphaZero
    from polyak.evaluation import mean_interval
    from polyak.zoo import plain_yaml

    algo, game = agent.split("/")
    folder = AGENTS / algo / f"{game}_1"
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    (partial / game).mkdir(parents=True)
    model = AlphaZero(env=game, device="cpu", **settings)
    steps, found = [], []
    for _ in range(PARTS):
        model.learn(POSITIONS // PARTS, reset_num_timesteps=False, log_interval=None)
        steps.append(model.num_timesteps)
        found.append(results_of(model, 20))
    np.savez(partial / "evaluations.npz", timesteps=steps, results=found)
    for optimizer in model.learner.optimizers.values():
        optimizer.state.clear()
    model.save(partial / f"{game}.zip")
    (partial / game / "config.yml").write_text(plain_yaml.write_yaml({"n_timesteps": POSITIONS, **settings}))
    results = results_of(model, EPISODES)
    interval = mean_interval(results)
    score = {"algo": algo, "env": game, "training_steps": model.num_timesteps, "n_episodes": EPISODES}
    score |= {"opponent": OPPONENT, "mean_return": float(np.mean(results)), "std_return": float(np.std(results))}
    score |= {"confidence": 0.95, "interval": list(interval) if interval.is_known else None}
    (partial / "score.json").write_text(json.dumps(score, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains the agents that come along.")
    add_choice(parser, "--agents", [*TRAININGS, *GAMES])
    parser.add_argument("--train-only", action="store_true", help="leave polyak/zoo/agents as it is")
    args = parser.parse_args()
    for agent in args.agents:
        if agent in GAMES and not args.train_only:
            publish_game(agent, GAMES[agent])
        elif agent in TRAININGS:
            run = train(agent, TRAININGS[agent])
            if not args.train_only:
                publish(agent, run)
        print(agent, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
