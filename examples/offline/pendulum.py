"""What can be learned from another's experience: SAC learns to swing up a pendulum, and others from what it recorded.

    python examples/offline/pendulum.py --out runs/offline            # a quarter of an hour on two cores
    python examples/offline/pendulum.py --steps 500 --updates 200     # does it run?

SAC acts for 20,000 steps, from random actions to good ones, and its replay buffer is the dataset. BC imitates all of
that; the others learn from it which of those actions were good. Every curve is the mean return of ten episodes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import polyak
from polyak import Dataset, EvalCallback

ENV = "Pendulum-v1"
SMALL = {"policy_kwargs": {"net_arch": [64, 64]}, "learning_rate": 1e-3}
LEARNERS: dict[str, dict[str, Any]] = {
    "BC": {},
    "TD3BC": {},
    "ReBRAC": {},
    "IQL": {},
    "AWAC": {},
    "CQL": {"conservative_weight": 1.0},
}
"""Name -> settings besides the small networks that all have."""


def record(steps: int, seed: int) -> Dataset:
    """All that a SAC agent experienced while it learned."""
    agent = polyak.SAC("MlpPolicy", ENV, seed=seed, **SMALL).learn(steps)
    return Dataset.from_model(agent)


def curve(name: str, data: Dataset, updates: int, seed: int, out: Path) -> tuple[np.ndarray, np.ndarray]:
    """Updates, and the mean return after so many; all returns are written into a folder in `out`."""
    settings = {**SMALL, **LEARNERS[name]}
    folder = str(out / f"{name}_{seed}")
    evaluation = EvalCallback(ENV, eval_freq=max(updates // 10, 1), n_eval_episodes=10, log_path=folder, verbose=0)
    model = getattr(polyak, name)("MlpPolicy", data, seed=seed, **settings)
    model.learn(updates, evaluation)
    return np.array(evaluation.evaluations_timesteps), np.mean(evaluation.evaluations_results, axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20_000, help="environment steps of the agent that is recorded")
    parser.add_argument("--updates", type=int, default=20_000, help="gradient steps of each learner")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one training of each learner for each")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--out", type=Path, default=Path("runs/offline"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data = record(args.steps, seed=0)
    data.save(args.out / "sac.npz")
    print(f"{data}\nmean return of the recorded episodes: {data.returns.mean():.0f}")
    figure, axes = plt.subplots()
    axes.axhline(float(data.returns.mean()), color="grey", linestyle=":", label="recorded, mean")
    for name in args.learners:
        curves = [curve(name, data, args.updates, seed, args.out) for seed in args.seeds]
        updates, returns = curves[0][0], np.stack([values for _, values in curves])
        print(f"{name:8} " + " ".join(f"{value:7.0f}" for value in returns[:, -1]), flush=True)
        (line,) = axes.plot(updates, returns.mean(0), label=name)
        axes.fill_between(updates, returns.min(0), returns.max(0), color=line.get_color(), alpha=0.15)
    axes.set(xlabel="gradient steps", ylabel="return", title=f"{ENV}, learned from {len(data):,} recorded steps")
    axes.legend()
    figure.savefig(args.out / "curves.png", dpi=120)
    print(f"wrote {args.out / 'curves.png'}")


if __name__ == "__main__":
    main()
