"""``polyak enjoy``: watch, measure or record a trained agent."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from polyak.zoo.agent import AgentOptions, SavedAgent
from polyak.zoo.options import option
from polyak.zoo.output import outlasting_the_reader, writable_folder
from polyak.zoo.recording import Film, check_path, draw_without_screen, is_headless

if TYPE_CHECKING:
    from polyak.envs import VecEnv


@dataclass
class EnjoyOptions(AgentOptions):
    """Load a trained agent from logs/<algo>/<env>_<n>/ and let it act; print its returns."""

    n_timesteps: int = option(1000, "--n-timesteps", "-n", help="Steps to make, over all environments.", at_least=1)
    n_episodes: int = option(-1, "--n-episodes", help="End after this many episodes; -1 counts steps only.")
    render: bool = option(True, "--render/--no-render", help="Open a window, if there is a screen.")
    record: str = option("", "--record", help="Write what happens to this .gif or .mp4 file.")
    norm_reward: bool = option(False, "--norm-reward/", help="Sum up rewards as VecNormalize gave them in training.")
    reward_log: str = option("", "--reward-log", help="Folder for monitor.csv files of the episodes.")
    progress: bool = option(False, "--progress/--no-progress", "-P", help="Show a progress bar.")
    verbose: int = option(1, "--verbose", help="0 prints the summary only, 1 each episode.")


class Frames(Protocol):
    """A sink of images: a list, or a film."""

    def extend(self, frames: Iterable[np.ndarray], /) -> None:
        """Add some."""


@dataclass
class PlayedEpisodes:
    """Return, length and (where the environment reports it) success of each finished episode."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)


def enjoy(options: EnjoyOptions) -> PlayedEpisodes:
    """Run the agent that `options` describe, print its episodes and return them.

    Raises ZooError when the run, the model, the environment or an option value does not exist.
    """
    record = _check(options)
    agent = SavedAgent(options)
    from polyak.learning.engine.threads import chosen_threads

    path = agent.path
    how: dict[str, Any] = {"render_mode": _render_mode(options), "norm_reward": options.norm_reward}
    how["monitor_dir"] = Path(options.reward_log) if options.reward_log else None
    with agent.loaded(path, **how) as (model, envs), ExitStack() as stack:
        stack.enter_context(outlasting_the_reader("playing"))
        stack.enter_context(chosen_threads(options.num_threads))
        print(f"Loaded {path} ({model.num_timesteps:,} steps of training)")
        film = None if record is None else stack.enter_context(Film(record, frames_per_second(envs)))
        episodes = play(
            model,
            envs,
            options.n_timesteps,
            n_episodes=options.n_episodes if options.n_episodes > 0 else None,
            deterministic=agent.deterministic,
            frames=film,
            norm_reward=options.norm_reward,
            progress=options.progress,
            verbose=options.verbose,
        )
        if film is not None:
            print(f"Recorded {film.frames} frames to {record}")
        _print_summary(episodes)
    return episodes


def play(
    model: Any,
    envs: VecEnv,
    n_timesteps: int,
    *,
    n_episodes: int | None = None,
    deterministic: bool = True,
    frames: Frames | None = None,
    norm_reward: bool = False,
    progress: bool = False,
    verbose: int = 0,
) -> PlayedEpisodes:
    """Let `model` act in `envs` for `n_timesteps` or `n_episodes`, whichever comes first.

    `frames` receives the image before each step. Returns are the environment's own, or with `norm_reward` sums of the
    rewards that `envs` give. `verbose` 1 prints each episode as it ends.
    """
    from polyak.evaluation.in_environments import masks_for, states_with_rewards

    episodes = PlayedEpisodes()
    observation: Any = envs.reset()
    state: Any = None
    starts = np.ones(envs.num_envs, dtype=bool)
    sums = np.zeros(envs.num_envs)
    masks = masks_for(model, envs)
    more = {} if masks is None else {"action_masks": masks.after_reset(observation)}
    for _ in _steps(-(-n_timesteps // envs.num_envs), progress):
        if frames is not None:
            frames.extend(_image(envs))
        action, state = model.predict(
            observation, state=state, episode_start=starts, deterministic=deterministic, **more
        )
        observation, rewards, starts, infos = envs.step(action)
        state = states_with_rewards(model, state, rewards)
        sums += rewards
        if masks is not None:
            more = {"action_masks": masks.after_step(observation, starts, infos)}
        for index in np.flatnonzero(starts):
            if _note(episodes, infos[index], sums[index] if norm_reward else None, verbose):
                sums[index] = 0.0
        if n_episodes is not None and len(episodes.returns) >= n_episodes:
            break
    return episodes


def frames_per_second(envs: VecEnv) -> float:
    """Return the frame rate in the environment's metadata; 30 if it has none."""
    metadata = getattr(envs, "metadata", None) or {}
    return float(metadata.get("render_fps") or 30)


def _check(options: EnjoyOptions) -> Path | None:
    """Refuse impossible options; return where to record, if anywhere."""
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
        print("No screen: nothing is shown. Use --record episode.gif for images.")
        return None
    return "human"


def _steps(n_steps: int, progress: bool) -> Any:
    if not progress:
        return range(n_steps)
    try:
        from tqdm.auto import trange
    except ImportError as error:
        raise ImportError("--progress needs tqdm: pip install 'polyak[extra]'.") from error
    return trange(n_steps)


def _image(envs: VecEnv) -> list[np.ndarray]:
    frame = envs.render(mode="rgb_array")
    return [] if frame is None else [np.asarray(frame, dtype=np.uint8)]


def _note(episodes: PlayedEpisodes, info: dict[str, Any], summed: float | None, verbose: int) -> bool:
    """Take down an episode if one has finished, with the environment's own rewards (Monitor's) unless `summed` is."""
    episode = info.get("episode")
    if episode is None:  # an Atari life ended, not the game
        return False
    episodes.returns.append(float(episode["r"] if summed is None else summed))
    episodes.lengths.append(int(episode["l"]))
    if "is_success" in info:
        episodes.successes.append(bool(info["is_success"]))
    if verbose > 0:
        print(f"Episode Reward: {episodes.returns[-1]:.2f}\nEpisode Length {episodes.lengths[-1]}")
    return True


def _print_summary(episodes: PlayedEpisodes) -> None:
    if not episodes.returns:
        print("No episode ended. Give more steps with --n-timesteps.")
        return
    if episodes.successes:
        print(f"Success rate: {100 * np.mean(episodes.successes):.2f}%")
    print(f"{len(episodes.returns)} Episodes")
    print(f"Mean reward: {np.mean(episodes.returns):.2f} +/- {np.std(episodes.returns):.2f}")
    print(f"Mean episode length: {np.mean(episodes.lengths):.2f} +/- {np.std(episodes.lengths):.2f}")
