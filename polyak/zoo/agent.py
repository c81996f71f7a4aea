"""A trained agent from its run folder, in environments like those of its training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from polyak.zoo.environments import make_envs
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.gallery import AGENTS
from polyak.zoo.hub.load import LoadOptions, load_from_hub
from polyak.zoo.literals import parse_pairs
from polyak.zoo.model_files import has_no_statistics, load_statistics
from polyak.zoo.options import CommandOptions, is_given, option
from polyak.zoo.output import note
from polyak.zoo.registry import (
    Environment,
    algorithm_name,
    check_algorithm,
    env_name,
    find_algorithm,
    find_env,
    is_atari_id,
    is_registered,
    parameter_names,
)
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.settings import RUN_KEYS, Settings, interpret
from polyak.zoo.sizes import MOST_ENVS, MOST_PROCESSES
from polyak.zoo.untrusted import USER, ZooAuthor, given_kwargs, named_algorithm, named_env, named_packages

if TYPE_CHECKING:
    from polyak.envs import VecEnv

#: Replacements of ``--custom-objects``: schedules, which only training needs.
_PLAIN = {"learning_rate": 0.0, "clip_range": 0.2, "clip_range_vf": None}
_OF_TRAINING = {"callback", "noise_type", "noise_std", "policy", "n_envs", "n_timesteps"}

#: A folder of this name is filled from the Hub on request.
_TRAINED_AGENTS = "rl-trained-agents"


@dataclass
class ModelOptions(CommandOptions):
    """The options that select a model and its files."""

    algo: str = option("ppo", "--algo", "-a", help="Algorithm that trained the agent.")
    env: str = option("CartPole-v1", "--env", "-e", help="Environment, as it was given to train; its name is enough.")
    folder: str = option("logs", "--log-folder", "--folder", "-f", help="Where runs are kept.")
    pretrained: bool = option(False, "--pretrained/", help="Take an agent that comes along; see `polyak gallery`.")
    exp_id: int = option(0, "--exp-id", help="Number of the run; 0: the latest that finished; -1: no sub-folder.")
    load_best: bool = option(False, "--load-best/", help="Take the model of the best evaluation.")
    load_checkpoint: int = option(-1, "--load-checkpoint", help="Take the checkpoint of this many steps.")
    load_last_checkpoint: bool = option(False, "--load-last-checkpoint/", help="Take the latest checkpoint.")
    env_kwargs: Sequence[str] = option([], "--env-kwargs", help="key:value ... on top of those of the training run.")
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    custom_objects: bool = option(
        False, "--custom-objects/", help="Leave learning rate and clip range of the file unread, if they cannot be."
    )
    trust: bool = option(
        False, "--trust/", help="Also run code that the run's files name or hold; for files that you trust only."
    )


@dataclass
class AgentOptions(ModelOptions):
    """The options that select an agent and how it acts."""

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": (
            *("algo", "env", "pretrained", "folder", "exp_id", "load_best", "load_checkpoint", "load_last_checkpoint"),
            *("n_timesteps", "n_episodes", "record", "output", "output_folder"),
        ),
        "What it does": ("max_episode_steps", "deterministic", "stochastic", "seed", "n_envs"),
        "What comes of it": (
            *("render", "no_render", "gif", "reward_log", "norm_reward", "confidence", "progress", "verbose"),
        ),
        "Environment and machine": ("env_kwargs", "gym_packages", "device", "num_threads"),
        "Files": ("trust", "custom_objects"),
    }

    deterministic: bool = option(False, "--deterministic/", help="Most likely actions (the default except on Atari).")
    stochastic: bool = option(False, "--stochastic/", help="Sampled actions (the default on Atari and MiniGrid).")
    n_envs: int = option(1, "--n-envs", help="Environments side by side.", at_least=1, at_most=MOST_ENVS)
    seed: int = option(0, "--seed", help="Seed of the environments and of sampled actions.")
    device: str = option("auto", "--device", help="auto, cpu, cuda, ...")
    num_threads: int = option(
        -1, "--num-threads", help="PyTorch threads; -1 leaves PyTorch's choice.", at_most=MOST_PROCESSES
    )


class SavedAgent:
    """The run that `AgentOptions` name: its folder, algorithm, environment and settings.

    Raises ZooError when the run or the environment does not exist, or options contradict each other.
    """

    def __init__(self, options: AgentOptions) -> None:
        if options.deterministic and options.stochastic:
            raise ZooError("--deterministic and --stochastic exclude each other. Give one of them.")
        self.options = options
        self.author = ZooAuthor.of_file(options.trust, options.gym_packages)
        algo = _algorithm_of(options, self.author)
        check_algorithm(algo)
        self.folder = _find_run(options)
        self.environment = self._find_env()
        self.algorithm = find_algorithm(algo)  # imports PyTorch
        self.settings = self._read_settings()

    @property
    def path(self) -> Path:
        """The model file that the options name."""
        options = self.options
        return self.folder.model(
            best=options.load_best,
            checkpoint=options.load_checkpoint if options.load_checkpoint >= 0 else None,
            last_checkpoint=options.load_last_checkpoint,
        )

    @property
    def deterministic(self) -> bool:
        """Whether it takes its most likely actions."""
        name = self.environment.name
        samples = self.options.stochastic or is_atari_id(name) or name.startswith("MiniGrid-")
        return self.options.deterministic or not samples

    @contextmanager
    def loaded(
        self, path: Path, *, render_mode: str | None = None, monitor_dir: Path | None = None, norm_reward: bool = False
    ) -> Iterator[tuple[Any, VecEnv]]:
        """Load the model file `path`; yields the model and its environments, which are closed at the end.

        The first time, a line on stderr names the chosen run, and why it was chosen. Normalisation statistics stay as
        they were saved. `norm_reward` normalises rewards too, if training did. Raises ZooError when the model does not
        load, or its environments cannot be made.
        """
        if self.folder.choice:
            note(self.folder.choice)
            self.folder = replace(self.folder, choice="")
        kwargs = {"render_mode": render_mode} if render_mode is not None else {}
        typed = parse_pairs(self.options.env_kwargs, "--env-kwargs")
        kwargs |= given_kwargs(self.folder.read_yaml("args.yml"), self.author, self._file("args.yml"), typed) | typed
        how: dict[str, Any] = {"seed": self.options.seed, "env_kwargs": kwargs, "monitor_dir": monitor_dir}
        with usage_errors(f"Cannot make the environment {self.environment.name}"):
            how["normalize"] = self._statistics(path)
            envs = make_envs(self.environment, self.settings, self.options.n_envs, **how)
        try:
            from polyak.envs.normalisation import as_trained

            with usage_errors(f"Cannot load {path}"):
                model = self.algorithm.load(
                    path,
                    env=envs,
                    device=self.options.device,
                    custom_objects=self._custom_objects(),
                    seed=self.options.seed,
                    trust=self.options.trust,
                )
            envs = model.get_env()
            normalizer = model.get_vec_normalize_env()
            if normalizer is not None:
                normalizer.training = False
                normalizer.norm_reward = norm_reward
            elif norm_reward:
                raise ZooError(f"--norm-reward: {path} was trained without normalisation. Leave the flag out.")
            with as_trained(model, envs):
                yield model, envs
        finally:
            envs.close()

    def _file(self, name: str) -> str:
        return str(self.folder.settings_folder / name)

    def _find_env(self) -> Environment:
        """Find the environment that the command names; if only a name, as the training run was given it."""
        arguments, source = self.folder.read_yaml("args.yml"), self._file("args.yml")
        of_run, packages = named_env(arguments, source), self.options.gym_packages
        of_file = self.options.env == env_name(of_run)
        text, author = (of_run, self.author) if of_file else (self.options.env, USER)
        return find_env(text, packages or named_packages(arguments, self.author, source), author, source)

    def _read_settings(self) -> Settings:
        """The settings that concern environments: how it was trained is in the model."""
        raw = self.folder.read_yaml("config.yml")
        raw = {key: value for key, value in raw.items() if key in RUN_KEYS.keys() - _OF_TRAINING}
        settings = interpret(self.algorithm, self.options.algo, raw, self._file("config.yml"), self.author)
        return settings.find_classes()

    def _statistics(self, path: Path) -> Callable[[VecEnv], VecEnv] | None:
        """The normaliser for a model without statistics of its own: of Stable-Baselines3."""
        if self.settings.normalize is None or not has_no_statistics(path):
            return None
        found = self.folder.normalizer_of(path)
        if found is None:
            raise ZooError(f"The run was normalised, but its statistics {self.folder.normalizer} are missing.")
        return partial(load_statistics, found, trust=self.options.trust)

    def _custom_objects(self) -> dict[str, Any]:
        if not self.options.custom_objects:
            return {}
        taken = parameter_names(self.algorithm)
        return {name: value for name, value in _PLAIN.items() if name in taken}


def _algorithm_of(options: AgentOptions, author: ZooAuthor) -> str:
    """The algorithm that the options name; if only by the name of the user's own, as the training run was given it."""
    if ":" in options.algo or is_registered(options.algo):
        return options.algo
    try:
        run = _named_run(options)
    except ZooError:  # there is no such algorithm
        return options.algo
    return named_algorithm(run.read_yaml("args.yml"), options.algo, author, str(run.settings_folder / "args.yml"))


def _named_run(options: AgentOptions) -> RunFolder:
    """The run that the options name. For a checkpoint it need not have finished."""
    if options.pretrained:
        return _pretrained(options)
    finished = options.load_checkpoint < 0 and not options.load_last_checkpoint
    return RunFolder.find(Path(options.folder), options.algo, env_name(options.env), options.exp_id, finished=finished)


def _pretrained(options: AgentOptions) -> RunFolder:
    """Return the run of a pretrained agent."""
    others = ("folder", "exp_id", "load_best", "load_checkpoint", "load_last_checkpoint")
    if any(is_given(options, name) for name in others):
        raise ZooError("--pretrained agents have one model each. Leave out --log-folder, --exp-id and --load-...")
    algo, env = algorithm_name(options.algo).lower(), env_name(options.env)
    if not (AGENTS / algo / f"{env}_1").exists():
        raise ZooError(f"No agent of {options.algo} on {env} comes along. `polyak gallery` lists those that do.")
    return RunFolder(AGENTS / algo / f"{env}_1", env)


def _find_run(options: AgentOptions) -> RunFolder:
    """The run that the options name; that of the Zoo's trained agents is downloaded if it is not there."""
    folder = Path(options.folder)
    try:
        run = _named_run(options)
        missing = options.exp_id < 0 and not run.final_model.exists()
    except ZooError:
        if folder.name != _TRAINED_AGENTS:
            raise
        missing = True
    if missing and folder.name == _TRAINED_AGENTS:
        wanted = LoadOptions(options.algo, options.env, options.folder, exp_id=options.exp_id, trust=options.trust)
        return load_from_hub(wanted)
    return run
