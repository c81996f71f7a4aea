"""Draws the figures of README and of the gallery into ``docs/images``: ``python docs/gallery.py [name ...]``.

Each is drawn from results that were measured, or from a short training here.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from polyak import PPO, EvalCallback, QLearning, make_vec_env
from polyak.evaluation.intervals import mean_ends

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "benchmarks" / "results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def halfcheetah(folder: Path) -> None:
    """Mean return by environment steps; bands are 95 % intervals over seeds, dashed lines one seed."""
    runs: dict[tuple[str, str], list[list[list[float]]]] = {}
    for run in json.loads((RESULTS / "halfcheetah.json").read_text("utf-8")):
        runs.setdefault((run["row"], run["library"]), []).append(run["result"]["points"])
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    names = {"sb3": "Stable-Baselines3", "contrib": "sb3-contrib"}
    for (row, library), seeds in sorted(runs.items()):
        if row in ("SAC", "TD3", "TQC", "SimBa"):
            count = min(len(points) for points in seeds)
            steps = np.array([point[0] for point in seeds[0][:count]])
            returns = np.array([[point[2] for point in points[:count]] for points in seeds])
            label = f"{row}, {names.get(library, library)} ({len(seeds)} seed{'s' * (len(seeds) > 1)})"
            band(axes, steps, returns, label)
    axes.set(xlabel="environment steps", ylabel="return of deterministic episodes", title="HalfCheetah-v5")
    axes.legend(fontsize=8)
    figure.savefig(folder / "halfcheetah.png", dpi=120)


def speed(folder: Path) -> None:
    """Steps per second of whole trainings beside Stable-Baselines3 and SBX."""
    rows = bench_rows()
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))
    for shift, (column, name) in enumerate(((4, "Stable-Baselines3"), (5, "SBX"))):
        known = [
            (place, float(row[column].rstrip("x")))
            for place, row in zip(places, rows, strict=True)
            if row[column] != "-"
        ]
        axes.barh(
            [place + 0.4 * shift for place, _ in known], [ratio for _, ratio in known], 0.38, label=f"beside {name}"
        )
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(places + 0.2, [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="environment steps per second, ratio (above 1: polyak is faster)")
    axes.legend()
    figure.savefig(folder / "speed.png", dpi=120)


def bench_rows() -> list[list[str]]:
    """Rows of the first table of ``bench.md``: task, steps per second of each library, ratios."""
    text = (RESULTS / "bench.md").read_text("utf-8").partition("## ")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| task")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def cartpole(folder: Path, steps: int = 30_000, seeds: int = 3) -> None:
    """Learning curves of PPO with an interval over seeds, and an episode of the first agent."""
    curves: list[np.ndarray] = []
    for seed in range(seeds):
        envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
        model = PPO("MlpPolicy", envs, n_steps=32, batch_size=64, learning_rate=1e-3, gamma=0.98, seed=seed)
        with TemporaryDirectory() as kept:
            watch = EvalCallback(
                "CartPole-v1", eval_freq=max(steps // 80, 1), n_eval_episodes=10, log_path=kept, verbose=0
            )
            model.learn(steps, watch)
        curves.append(np.mean(watch.evaluations_results, axis=1))
        if seed == 0:
            first = model
    figure = Figure((7, 4), layout="constrained")
    axes = figure.subplots()
    band(axes, np.array(watch.evaluations_timesteps), np.array(curves), f"PPO ({seeds} seeds)")
    axes.set(xlabel="environment steps", ylabel="return of deterministic episodes", title="CartPole-v1")
    axes.legend()
    figure.savefig(folder / "cartpole.png", dpi=120)
    film(first, folder / "cartpole.gif")


def film(agent: PPO, gif: Path, frames: int = 120) -> None:
    """An episode of an agent on CartPole, every third frame."""
    import gymnasium
    import imageio.v3

    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    observation, _ = env.reset(seed=3)
    shown = []
    for step in range(3 * frames):
        if step % 3 == 0:
            shown.append(np.asarray(env.render())[::2, ::2])
        action, _ = agent.predict(observation, deterministic=True)
        observation, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
    imageio.v3.imwrite(gif, shown, duration=60, loop=0)


def cliff(folder: Path, steps: int = 50_000) -> None:
    """Values and greedy moves of Q-learning on the cliff."""
    from polyak.zoo.plots.grids import grid, grid_of, new_figure

    model = QLearning("CliffWalking-v1", learning_rate=0.5, gamma=1.0, seed=0).learn(steps)
    shape, _ = grid_of(model.get_env().envs[0])
    figure = new_figure(9, 3.5)
    grid(figure.add_subplot(), model.values, model.greedy, shape, _)
    figure.savefig(folder / "cliff.png", dpi=90)


def report(folder: Path) -> None:
    """The page of ``polyak report`` about short trainings, as a browser shows it."""
    with TemporaryDirectory() as kept:
        screenshot(report_page(Path(kept)), folder / "report.png")


def report_page(folder: Path, steps: int = 10_000, seeds: int = 3) -> Path:
    """The page of ``polyak report`` about short trainings."""
    for algorithm in ("ppo", "a2c"):
        for seed in range(seeds):
            line = ["--algo", algorithm, "--env", "CartPole-v1", "--seed", str(seed), "-n", str(steps)]
            command(folder, "train", *line, "--eval-freq", str(steps // 20), "--verbose", "0", "--log-folder", "logs")
    command(folder, "report", "logs")
    return folder / "report.html"


def command(folder: Path, *line: str) -> None:
    """One command of the command line, in a folder."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    whole = [sys.executable, "-m", "polyak", *line]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)


def screenshot(page: Path, image: Path, width: int = 1280, height: int = 1000) -> None:
    """What a browser without a window shows of a page.

    Raises:
        SystemExit: there is no Chromium and no Chrome.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise SystemExit(f"A screenshot needs a browser: one of {', '.join(BROWSERS)}. Install Chromium.")
    alone = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=20000"]
    where = [f"--window-size={width},{height}", f"--screenshot={image}", page.resolve().as_uri()]
    subprocess.run([found, *alone, *where], check=True, capture_output=True)


def band(axes: Axes, x: np.ndarray, curves: np.ndarray, label: str) -> None:
    """The mean of curves [seeds, points], with its interval if there are several."""
    several = len(curves) > 1
    (line,) = axes.plot(x, curves.mean(0), "-" if several else "--", label=label)
    if several:
        axes.fill_between(x, *mean_ends(curves.T), color=line.get_color(), alpha=0.15)


FIGURES: dict[str, Callable[..., Any]] = {
    "halfcheetah": halfcheetah,
    "speed": speed,
    "cartpole": cartpole,
    "cliff": cliff,
    "report": report,
}


def main(names: list[str]) -> None:
    """Draw the figures of these names, all without any."""
    if unknown := set(names) - FIGURES.keys():
        raise SystemExit(f"There are no figures {sorted(unknown)}. There are {', '.join(FIGURES)}.")
    IMAGES.mkdir(exist_ok=True)
    for name in names or FIGURES:
        FIGURES[name](IMAGES)
        print(f"wrote {name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
