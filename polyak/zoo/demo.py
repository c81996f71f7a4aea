"""``polyak demo``: one agent, from nothing to an image of it balancing the pole.

Trains PPO on CartPole-v1 until it is solved, measures it, and leaves the model, its learning curve and an episode.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.zoo.enjoy import frames_per_second, play
from polyak.zoo.environments import make_envs
from polyak.zoo.keeping import MODEL, conclusion, keep, learned, save_sound
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import outlasting_the_reader, writable_folder
from polyak.zoo.plots.curves import evaluation_curve, training_curve
from polyak.zoo.plots.images import write_image
from polyak.zoo.plots.look import Look
from polyak.zoo.plots.plot import draw_panels
from polyak.zoo.recording import draw_without_screen, write_video
from polyak.zoo.registry import find_algorithm, find_env
from polyak.zoo.settings import Settings, load_settings
from polyak.zoo.train import EVAL_SEED_OFFSET

if TYPE_CHECKING:
    from polyak.evaluation.in_environments import EvaluationResult

ENV_ID = "CartPole-v1"
N_EPISODES = 20
#: The mean return, out of 500, at which the environment's makers call it solved.
SOLVED = 475.0


@dataclass
class DemoOptions(CommandOptions):
    """Train PPO on CartPole-v1 until it is solved; write model, learning curve and an episode to a folder."""

    output: str = option("runs/demo", "--output", "-o", help="Folder for the files.")
    max_timesteps: int = option(200_000, "--max-timesteps", help="Give up after this many steps.", at_least=1)
    seed: int = option(0, "--seed", help="Seed of everything random.")
    video: str = option("gif", "--video", help="gif or mp4.", choices=("gif", "mp4"))
    progress: bool = option(True, "--progress/--no-progress", "-P", help="Show a progress bar.")


@outlasting_the_reader("the demonstration")
def demo(options: DemoOptions) -> float:
    """Run the demonstration, print where its files are and return the mean return of the final evaluation.

    Ctrl-C ends it, and exits with status 130 when the model is saved; after an error TrainingFailed is raised then.
    """
    from polyak.learning.engine.threads import chosen_threads

    folder = writable_folder("--output", options.output)
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("*.monitor.csv"), folder / "evaluations.npz"]:  # they would be drawn into the new curve
        old.unlink(missing_ok=True)
    algorithm = find_algorithm("ppo")
    settings = load_settings(algorithm, "ppo", ENV_ID)

    print(f"Training PPO on {ENV_ID} until ten evaluation episodes in a row last to the end (return 500) ...")
    started = time.perf_counter()
    with chosen_threads(1):  # on networks this small, a second thread costs more than it brings
        model, ended = _train(algorithm, settings, options, folder)
    path = folder / "ppo_cartpole.zip"
    kept = keep({MODEL: partial(save_sound, model, path, "polyak")})
    if (end := conclusion(ended, kept, model.num_timesteps, path)) is not None:
        raise end from ended
    seconds = time.perf_counter() - started
    print(
        f"Trained for {model.num_timesteps:,} steps in {seconds:.1f} s ({model.num_timesteps / seconds:,.0f} a second)"
    )

    result = _evaluate(model, options.seed)
    print(f"Return over {N_EPISODES} episodes: mean {result.mean:.1f}, 95% interval {result.ci_in_words}")

    written = {
        "model": path,
        "learning curve": _draw_curve(folder),
        "episode": _record(model, settings, options, folder),
    }
    print("Files:")
    for what, where in written.items():
        print(f"  {what:<14} {where}")
    if result.mean < SOLVED:
        raise SystemExit(
            f"Not solved within {options.max_timesteps:,} steps: mean return {result.mean:.1f} < {SOLVED:.0f}."
        )
    return result.mean


def _train(
    algorithm: type[Any], settings: Settings, options: DemoOptions, folder: Path
) -> tuple[Any, BaseException | None]:
    """Train until an evaluation of ten episodes reaches 500 (or to the cap); the progress bar counts to the cap.

    Returns the model, and the exception that ended training early, or None.
    """
    from polyak.callbacks.evaluating import EvalCallback
    from polyak.callbacks.stopping import StopTrainingOnRewardThreshold

    envs = make_envs(find_env(ENV_ID), settings, settings.n_envs, seed=options.seed, monitor_dir=folder)
    eval_envs = make_envs(find_env(ENV_ID), settings, 5, seed=options.seed + EVAL_SEED_OFFSET)
    try:
        # It stops long before the cap: too early for compiling to pay.
        options_here = {"seed": options.seed, "device": "cpu", "verbose": 0, "compile": False}
        model = algorithm(settings.policy, envs, **options_here, **settings.arguments)
        callback = EvalCallback(
            eval_envs,
            callback_on_new_best=StopTrainingOnRewardThreshold(500.0, verbose=0),
            n_eval_episodes=10,
            eval_freq=2_500,
            unit="timesteps",
            log_path=str(folder),
            verbose=0,
        )
        ended = learned(partial(model.learn, options.max_timesteps, callback, progress_bar=options.progress))
    finally:
        envs.close()
        eval_envs.close()
    return model, ended


def _evaluate(model: Any, seed: int) -> EvaluationResult:
    """Play new, deterministic episodes, which neither training nor its evaluations have used."""
    from polyak.envs import make_vec_env
    from polyak.evaluation.in_environments import evaluate

    envs = make_vec_env(ENV_ID, n_envs=5)
    try:
        return evaluate(model, envs, n_episodes=N_EPISODES, seed=seed + 2 * EVAL_SEED_OFFSET)
    finally:
        envs.close()


def _draw_curve(folder: Path) -> Path:
    """Draw the returns while learning, when actions are sampled, and those of the evaluations, when they are not."""
    curves = [
        training_curve(folder, "steps", "reward", window=10, label="training, mean of 10 episodes"),
        evaluation_curve([folder], "reward", label="evaluation, 10 deterministic episodes"),
    ]
    found = [curve for curve in curves if curve is not None]
    with Look().applied():
        figure = draw_panels({f"PPO on {ENV_ID}": found}, "steps", "reward", Look())
        return write_image(figure, folder / "learning_curve.png")


def _record(model: Any, settings: Settings, options: DemoOptions, folder: Path) -> Path:
    """Play one episode and write it as a moving image."""
    draw_without_screen()
    envs = make_envs(find_env(ENV_ID), settings, 1, seed=options.seed, env_kwargs={"render_mode": "rgb_array"})
    frames: list[np.ndarray] = []
    path = folder / f"episode.{options.video}"
    try:
        play(model, envs, 500, n_episodes=1, frames=frames)
        write_video(path, frames, frames_per_second(envs))
    finally:
        envs.close()
    return path
