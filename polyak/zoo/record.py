"""``polyak record-video`` and ``polyak record-training``: films of one agent, or of how it learned."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from polyak.zoo.agent import AgentOptions, SavedAgent
from polyak.zoo.enjoy import frames_per_second, play
from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import note, writable_folder
from polyak.zoo.recording import Film, draw_without_screen
from polyak.zoo.registry import algorithm_name
from polyak.zoo.run_folder import file_name


@dataclass
class RecordVideoOptions(AgentOptions):
    """Film a trained agent: <output folder>/final-model-<algo>-<env>-step-0-to-step-<n>.mp4."""

    output_folder: str = option("", "--output-folder", "-o", help="Where films go; the run's folder videos/ if empty.")
    n_timesteps: int = option(1000, "--n-timesteps", "-n", help="Length of the film, in steps.", at_least=1)
    gif: bool = option(False, "--gif/", "-g", help="Make a GIF instead of an MP4.")
    no_render: bool = option(False, "--no-render/", help="Open no window; none is opened without it either.")


@dataclass
class RecordTrainingOptions(AgentOptions):
    """Film a training: each checkpoint and then the final model act for a while, in one film, training.mp4."""

    output_folder: str = option("", "--output-folder", "-o", help="Where the film goes; the run's folder if empty.")
    n_timesteps: int = option(1000, "--n-timesteps", "-n", help="Steps that each model makes in the film.", at_least=1)
    gif: bool = option(False, "--gif/", "-g", help="Make a GIF instead of an MP4.")


def record_video(options: RecordVideoOptions) -> Path:
    """Film the agent that `options` name and return the file; ZooError if there is no such agent, or no image."""
    agent = SavedAgent(options)
    folder = _output_folder(options, agent.folder.path / "videos")
    path = agent.path
    if options.load_checkpoint >= 0 or options.load_last_checkpoint:
        what = f"checkpoint-{next(steps for steps, file in agent.folder.checkpoints().items() if file == path)}"
    else:
        what = "best-model" if options.load_best else "final-model"
    whose = f"{algorithm_name(options.algo)}-{file_name(agent.environment.name)}"
    name = f"{what}-{whose}-step-0-to-step-{options.n_timesteps}"
    return _film(agent, options, folder / f"{name}{_suffix(options)}", {"": path})


def record_training(options: RecordTrainingOptions) -> Path:
    """Film all checkpoints of a run, then its final model, and return the file; ZooError if there is no checkpoint."""
    agent = SavedAgent(options)
    if options.load_best or options.load_last_checkpoint or options.load_checkpoint >= 0:
        raise ZooError("record-training films every checkpoint. Leave --load-..., or use record-video.")
    folder = _output_folder(options, agent.folder.path)
    checkpoints = agent.folder.checkpoints()
    if not checkpoints:
        raise ZooError(f"No checkpoints in {agent.folder.path}. Train with --save-freq to have some.")
    models = {f"{steps:,} steps": path for steps, path in checkpoints.items()}
    if agent.folder.final_model.is_file():
        models["final model"] = agent.folder.final_model
    return _film(agent, options, folder / f"training{_suffix(options)}", models)


def _output_folder(options: RecordVideoOptions | RecordTrainingOptions, standard: Path) -> Path:
    return writable_folder("--output-folder", options.output_folder or str(standard))


def _suffix(options: RecordVideoOptions | RecordTrainingOptions) -> str:
    return ".gif" if options.gif else ".mp4"


def _film(
    agent: SavedAgent, options: RecordVideoOptions | RecordTrainingOptions, path: Path, models: dict[str, Path]
) -> Path:
    """Film each of `models`, which are named by their captions, in one film."""
    from polyak.learning.engine.threads import chosen_threads

    draw_without_screen()
    with ExitStack() as stack:
        stack.enter_context(chosen_threads(options.num_threads))
        film: Film | None = None
        for caption, file in models.items():
            with agent.loaded(file, render_mode="rgb_array") as (model, envs):
                if film is None:
                    film = stack.enter_context(Film(path, frames_per_second(envs)))
                film.caption = caption
                steps = options.n_timesteps * envs.num_envs
                play(model, envs, steps, deterministic=agent.deterministic, frames=film)
            if caption:
                note(f"filmed {file.name}")
    print(f"Saving video to {path}")
    return path
