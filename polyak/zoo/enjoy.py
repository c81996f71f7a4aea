"""``polyak enjoy``: watch, measure or record a trained agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.zoo.environments import make_envs
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.literals import parse_pairs
from polyak.zoo.options import option
from polyak.zoo.output import outlasting_the_reader, writable_folder
from polyak.zoo.own_code import check_remembered
from polyak.zoo.recording import check_path, draw_without_screen, is_headless, write_video
from polyak.zoo.registry import Environment, env_name, find_algorithm, find_env, is_atari_id
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.settings import Settings, import_paths, interpret

if TYPE_CHECKING:
    from polyak.envs import VecEnv


@dataclass
class EnjoyOptions:
    """Load a trained agent from logs/<algo>/<env>_<n>/ and let it act; print its returns."""

    algo: str = option("ppo", "--algo", "-a", help="Algorithm that trained the agent.")
    env: str = option("CartPole-v1", "--env", "-e", help="Environment, as it was given to train; its name is enough.")
    folder: str = option("logs", "--folder", "-f", help="Where runs are kept.")
    n_timesteps: int = option(1000, "--n-timesteps", "-n", help="Steps to make, over all environments.")
    n_episodes: int = option(-1, "--n-episodes", help="End after this many episodes; -1 counts steps only.")
    exp_id: int = option(0, "--exp-id", help="Number of the run; 0 is the latest, -1 no run sub-folder.")
    load_best: bool = option(False, "--load-best", help="Load the model of the best evaluation.")
    load_checkpoint: int = option(-1, "--load-checkpoint", help="Load the checkpoint of this many steps.")
    load_last_checkpoint: bool = option(False, "--load-last-checkpoint", help="Load the latest checkpoint.")
    deterministic: bool = option(False, "--deterministic", help="Most likely actions (the default except on Atari).")
    stochastic: bool = option(False, "--stochastic", help="Sampled actions.")
    render: bool = option(True, "--render/--no-render", help="Open a window, if there is a screen.")
    record: str = option("", "--record", help="Write what happens to this .gif or .mp4 file.")
    reward_log: str = option("", "--reward-log", help="Folder for monitor.csv files of the episodes.")
    n_envs: int = option(1, "--n-envs", help="Environments side by side.")
    seed: int = option(0, "--seed", help="Seed of the environments and of sampled actions.")
    device: str = option("auto", "--device", help="auto, cpu, cuda, ...")
    num_threads: int = option(-1, "--num-threads", help="PyTorch threads; -1 leaves PyTorch's choice.")
    env_kwargs: Sequence[str] = option([], "--env-kwargs", help="key:value ... on top of those of the training run.")
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    progress: bool = option(False, "--progress/--no-progress", "-P", help="Show a progress bar.")
    verbose: int = option(1, "--verbose", help="0 prints the summary only, 1 each episode.")


@dataclass
class Episodes:
    """What was seen: return, length and (where the environment tells) success of each finished episode."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)


def enjoy(options: EnjoyOptions) -> Episodes:
    """Run the agent that `options` describe, print its episodes and return them.

    Raises ZooError when the run, the model, the environment or an option value does not exist.
    """
    from polyak.core.engine.threads import chosen_threads

    record = _check(options)
    algorithm = find_algorithm(options.algo)
    folder = RunFolder.find(Path(options.folder), options.algo, env_name(options.env), options.exp_id)
    path = folder.model(
        best=options.load_best,
        checkpoint=options.load_checkpoint if options.load_checkpoint >= 0 else None,
        last_checkpoint=options.load_last_checkpoint,
    )
    environment = _find_env(options, folder)
    settings = _read_settings(options, algorithm, folder)
    envs = _make_envs(options, environment, settings, folder)
    frames: list[np.ndarray] = []
    try:
        with usage_errors(f"Cannot load {path}"):
            model = algorithm.load(path, env=envs, device=options.device, seed=options.seed)
        envs = _frozen(model)
        with outlasting_the_reader("playing"), chosen_threads(options.num_threads):
            print(f"Loaded {path} ({model.num_timesteps:,} steps of training)")
            episodes = play(
                model,
                envs,
                options.n_timesteps,
                n_episodes=options.n_episodes if options.n_episodes > 0 else None,
                deterministic=options.deterministic or not (options.stochastic or is_atari_id(environment.name)),
                frames=frames if record else None,
                progress=options.progress,
                verbose=options.verbose,
            )
            if record is not None:
                write_video(record, frames, frames_per_second(envs))
                print(f"Recorded {len(frames)} frames to {record}")
            _print_summary(episodes)
    finally:
        envs.close()
    return episodes


def _find_env(options: EnjoyOptions, folder: RunFolder) -> Environment:
    """Find the environment that the command names; where it gives a mere name, as the training run was given it."""
    arguments = folder.read_yaml("args.yml")
    text, packages = options.env, options.gym_packages
    remembered = str(arguments.get("env", ""))
    if text == env_name(remembered) != remembered:
        check_remembered(remembered.rpartition(":")[0], Path(options.folder))
        text = remembered
    if not packages:
        packages = [str(package) for package in arguments.get("gym_packages") or []]
        for package in packages:
            check_remembered(package, Path(options.folder))
    return find_env(text, packages)


def _read_settings(options: EnjoyOptions, algorithm: type[Any], folder: RunFolder) -> Settings:
    raw = folder.read_yaml("config.yml")
    for path in import_paths(raw):
        check_remembered(path, Path(options.folder))
    return interpret(algorithm, options.algo, raw, str(folder.settings_folder))


def _make_envs(options: EnjoyOptions, environment: Environment, settings: Settings, folder: RunFolder) -> VecEnv:
    """Build the environments as the training run had them, and so that they can be seen."""
    remembered = folder.read_yaml("args.yml").get("env_kwargs") or {}
    kwargs = {**remembered, **parse_pairs(options.env_kwargs, "--env-kwargs")}
    mode = _render_mode(options)
    if mode is not None:
        kwargs.setdefault("render_mode", mode)
    reward_log = Path(options.reward_log) if options.reward_log else None
    how: dict[str, Any] = {"seed": options.seed, "env_kwargs": kwargs, "monitor_dir": reward_log}
    with usage_errors(f"Cannot make the environment {environment.name}"):
        return make_envs(environment, settings, options.n_envs, **how)


def play(
    model: Any,
    envs: VecEnv,
    n_timesteps: int,
    *,
    n_episodes: int | None = None,
    deterministic: bool = True,
    frames: list[np.ndarray] | None = None,
    progress: bool = False,
    verbose: int = 0,
) -> Episodes:
    """Let `model` act in `envs` for `n_timesteps` or `n_episodes`, whichever comes first.

    `frames`, if a list, receives the picture before each step; `verbose` 1 prints each episode as it ends.
    """
    from polyak.core.watching.evaluation import masks_for

    episodes = Episodes()
    observation: Any = envs.reset()
    state: Any = None
    starts = np.ones(envs.num_envs, dtype=bool)
    masks = masks_for(model, envs)
    more = {} if masks is None else {"action_masks": masks.after_reset(observation)}
    for _ in _steps(-(-n_timesteps // envs.num_envs), progress):
        if frames is not None:
            frames.extend(_picture(envs))
        action, state = model.predict(
            observation, state=state, episode_start=starts, deterministic=deterministic, **more
        )
        observation, _, starts, infos = envs.step(action)
        if masks is not None:
            more = {"action_masks": masks.after_step(observation, starts, infos)}
        for done, info in zip(starts, infos, strict=True):
            if done:
                _note(episodes, info, verbose)
        if n_episodes is not None and len(episodes.returns) >= n_episodes:
            break
    return episodes


def frames_per_second(envs: VecEnv) -> float:
    """The speed at which the environment says that its pictures follow each other (30 if it does not say)."""
    metadata = getattr(envs, "metadata", None) or {}
    return float(metadata.get("render_fps") or 30)


def _check(options: EnjoyOptions) -> Path | None:
    """Refuse contradictory options; return where to record, if anywhere."""
    if options.deterministic and options.stochastic:
        raise ZooError("--deterministic and --stochastic exclude each other. Give one of them.")
    for flag, value in (("--n-timesteps", options.n_timesteps), ("--n-envs", options.n_envs)):
        if value < 1:
            raise ZooError(f"{flag} must be at least 1, got {value}.")
    if options.reward_log:
        writable_folder("--reward-log", options.reward_log)
    return check_path(options.record) if options.record else None


def _render_mode(options: EnjoyOptions) -> str | None:
    if options.record:
        draw_without_screen()
        return "rgb_array"
    if not options.render:
        return None
    if is_headless():
        print("No screen: nothing is shown. Use --record episode.gif for pictures.")
        return None
    return "human"


def _frozen(model: Any) -> VecEnv:
    """Return the model's environments with its normalisation statistics as they were saved."""
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        normalizer.training = False
        normalizer.norm_reward = False
    envs: VecEnv = model.get_env()
    return envs


def _steps(n_steps: int, progress: bool) -> Any:
    if not progress:
        return range(n_steps)
    try:
        from tqdm.auto import trange
    except ImportError as error:
        raise ImportError("--progress needs tqdm: pip install 'polyak[extra]'.") from error
    return trange(n_steps)


def _picture(envs: VecEnv) -> list[np.ndarray]:
    frame = envs.render(mode="rgb_array")
    return [] if frame is None else [np.asarray(frame, dtype=np.uint8)]


def _note(episodes: Episodes, info: dict[str, Any], verbose: int) -> None:
    """Take down a finished episode, in the environment's own rewards (Monitor's)."""
    episode = info.get("episode")
    if episode is None:  # an Atari life ended, not the game
        return
    episodes.returns.append(float(episode["r"]))
    episodes.lengths.append(int(episode["l"]))
    if "is_success" in info:
        episodes.successes.append(bool(info["is_success"]))
    if verbose > 0:
        print(f"Episode {len(episodes.returns)}: return {episodes.returns[-1]:.2f}, length {episodes.lengths[-1]}")


def _print_summary(episodes: Episodes) -> None:
    if not episodes.returns:
        print("No episode ended. Give more steps with --n-timesteps.")
        return
    if episodes.successes:
        print(f"Success rate: {100 * np.mean(episodes.successes):.1f}%")
    print(f"{len(episodes.returns)} episodes")
    print(f"Mean return: {np.mean(episodes.returns):.2f} +/- {np.std(episodes.returns):.2f}")
    print(f"Mean length: {np.mean(episodes.lengths):.2f} +/- {np.std(episodes.lengths):.2f}")
