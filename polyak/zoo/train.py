"""``polyak train``: tuned settings in, a folder of logs, models and evaluations out."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

from polyak.distributed.placement import STRATEGIES, Reservation, placement_of
from polyak.warning import printable
from polyak.writing import replacing
from polyak.zoo.data.files import check_without_envs, dataset_for, environment_of
from polyak.zoo.environments import check_own_env, make_envs, normalized
from polyak.zoo.errors import TrainingFailed, ZooError, in_one_line, usage_errors
from polyak.zoo.interruption import Stops, answered_signals
from polyak.zoo.joining import join
from polyak.zoo.keeping import MODEL, Kept, conclusion, keep, learned, save_sound
from polyak.zoo.literals import parse_pairs
from polyak.zoo.model_files import FORMATS, check_writable, has_no_statistics, load_statistics, save
from polyak.zoo.models import fit_policy, new_model
from polyak.zoo.options import is_given, option, to_arguments
from polyak.zoo.output import note, outlasting_the_reader, writable_folder
from polyak.zoo.own_code import stored_text
from polyak.zoo.plain_yaml import plain
from polyak.zoo.registry import (
    STANDARD_ENV,
    Environment,
    algorithm_name,
    check_names,
    find_algorithm,
    is_atari_id,
    parameter_names,
)
from polyak.zoo.report.groups import in_force
from polyak.zoo.resuming import Resumed, locked, tidy
from polyak.zoo.run_folder import ARGUMENTS, ERROR, FULL, RunFolder, file_name, run_numbers
from polyak.zoo.seeds import number_of_processes, parse_seeds, train_seeds, where_runs_are
from polyak.zoo.settings import Settings, fit_batch, load_settings
from polyak.zoo.sizes import MOST_PROCESSES
from polyak.zoo.tuning.command import check_no_study, settings_of_trial, tune_as_train
from polyak.zoo.tuning.options import STUDY, TrainingOptions

if TYPE_CHECKING:
    from polyak.callbacks.callback import BaseCallback
    from polyak.envs import VecEnv
    from polyak.experience import Dataset


TRACKERS = ("wandb", "mlflow")
#: Distance between the seeds of training and evaluation environments, so that they never share an episode.
EVAL_SEED_OFFSET = 1_000_000


@dataclass
class TrainOptions(TrainingOptions):
    """Train an agent with tuned settings; evaluate, checkpoint and save it under logs/<algo>/<env>_<n>/."""

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": (
            *("algo", "env", "n_timesteps", "hyperparams", "seed", "seeds", "n_envs", "eval_freq", "save_freq"),
            *("resume", "trained_agent", "device", "log_folder", "verbose"),
        ),
        "Settings": ("conf_file", "trust"),
        "Environments": ("vec_env", "n_runners", "transport", "env_kwargs", "gym_packages"),
        "Cluster": (
            *("address", "working_dir", "num_cpus_per_runner", "num_gpus_per_runner"),
            *("runner_strategy", "min_runners", "wait_for_room"),
        ),
        "Evaluations": ("eval_episodes", "n_eval_envs", "eval_env_kwargs"),
        "Files and output": (
            *("keep_full", "save_replay_buffer", "save_format", "uuid", "log_interval", "tensorboard_log", "progress"),
        ),
        "What to learn from": ("dataset", "truncate_last_trajectory"),
        "Processes and the machine": ("processes", "n_replay_shards", "num_threads"),
        "Experiment trackers": (
            *("track", "track_with", "wandb_project_name", "wandb_entity", "wandb_group", "wandb_tags"),
        ),
        "Search for better settings, as polyak tune does": ("optimize_hyperparameters", *STUDY),
    }

    optimize_hyperparameters: bool = option(
        False, "--optimize-hyperparameters", "-optimize", help="Look for better settings, as `polyak tune` does."
    )
    seed: int = option(-1, "--seed", help="Seed; a random one by default (-1).")
    seeds: Sequence[str] = option([], "--seeds", help="Train once for each of these: 0..9, or 0 1 2.")
    processes: int = option(
        -1,
        "--processes",
        help="Trainings at a time with --seeds; -1: as many as there are CPUs.",
        at_most=MOST_PROCESSES,
    )
    n_runners: int = option(
        0,
        "--n-runners",
        help="Processes that step the environments, an equal share each; 0: this one.",
        at_least=0,
        at_most=MOST_PROCESSES,
    )
    n_replay_shards: int = option(
        0,
        "--n-replay-shards",
        help="Processes that hold the replay buffer, each that of some environments; 0: this one.",
        at_most=MOST_PROCESSES,
    )
    transport: str = option("ray", "--transport", help="How these processes are reached: ray, or local (in this one).")
    num_cpus_per_runner: float = option(1.0, "--num-cpus-per-runner", help="Processors that each runner reserves.")
    num_gpus_per_runner: float = option(0.0, "--num-gpus-per-runner", help="GPUs that each runner reserves.")
    runner_strategy: str = option(
        "SPREAD", "--runner-strategy", help="On which nodes of a cluster runners are.", choices=STRATEGIES
    )
    min_runners: int = option(
        0,
        "--min-runners",
        help="Runners that there must be room for; the others come and go with the nodes. 0: all.",
        at_least=0,
        at_most=MOST_PROCESSES,
    )
    wait_for_room: float = option(0.0, "--wait-for-room", help="Seconds to wait until a cluster has room for runners.")
    address: str = option("", "--address", help="Cluster of Ray to join: auto, HOST:PORT or ray://HOST:PORT.")
    working_dir: str = option("", "--working-dir", help="Folder with your modules, sent to all nodes of the cluster.")
    eval_freq: int = option(25_000, "--eval-freq", help="Steps between evaluations; 0: none.")
    save_freq: int = option(-1, "--save-freq", help="Steps between checkpoints; -1: none.")
    keep_full: int = option(
        1, "--keep-full", help="Full checkpoints that stay, for --resume, with --save-freq and signals.", at_least=0
    )
    resume: str = option("", "--resume", help="Folder of a run to resume.")
    save_replay_buffer: bool = option(
        False, "--save-replay-buffer/--no-save-replay-buffer", help="Save the replay buffer with the final model."
    )
    save_format: str = option("polyak", "--save-format", help="polyak, or sb3, which SB3 loads.", choices=FORMATS)
    log_interval: int = option(
        -1, "--log-interval", help="Iterations or episodes between tables; -1 default, -2 never."
    )
    tensorboard_log: str = option("", "--tensorboard-log", "-tb", help="Folder of TensorBoard logs.")
    trained_agent: str = option("", "--trained-agent", "-i", help="Model file (.zip) to continue training.")
    truncate_last_trajectory: bool = option(
        True,
        "--truncate-last-trajectory/--keep-last-trajectory",
        help="End the unfinished episode of a loaded HER replay buffer as a time limit would.",
    )
    track: bool = option(False, "--track/--no-track", help="Send settings and metrics to an experiment tracker.")
    track_with: str = option("wandb", "--track-with", help="wandb (Weights & Biases) or mlflow.", choices=TRACKERS)
    wandb_project_name: str = option("polyak", "--wandb-project-name", help="Project of W&B, or experiment of MLflow.")
    wandb_entity: str = option("", "--wandb-entity", help="Entity (team) of W&B.")
    wandb_group: str = option("", "--wandb-group", help="Group of the run where it is tracked.")
    wandb_tags: Sequence[str] = option([], "--wandb-tags", "-tags", help="Tags of the run where it is tracked.")
    progress: bool = option(False, "--progress/--no-progress", "-P", help="Show a progress bar.")
    uuid: bool = option(False, "--uuid/--no-uuid", "-uuid", help="Append a random identifier to the run's folder.")


def train(options: TrainOptions) -> Any:
    """Train as `options` say and return the trained model (None with ``--seeds``, which train in other processes).

    Writes the run folder described in `polyak.zoo.run_folder`. Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 stop early, still
    save, with a full checkpoint, and exit with status 130, 143, 129 and 138. Raises ZooError for a wrong option,
    algorithm, environment or setting, before any folder is made or after removing it again; TrainingFailed, after
    saving the model, if training raised.
    """
    if options.resume:
        return resume(options)
    if not (options.env or options.dataset):
        options = replace(options, env=STANDARD_ENV)
    check_names(options.algo, options.env, options.gym_packages)
    if options.optimize_hyperparameters:
        return tune_as_train(options)
    check_no_study(options)
    if options.trial_id >= 0:
        file = str(settings_of_trial(options))
        options = replace(options, conf_file=file, trial_id=-1, storage="", study_name="")
    if options.seeds:
        return _train_each(options)
    if options.seed < 0:
        options = replace(options, seed=secrets.randbelow(2**31 - EVAL_SEED_OFFSET - 100_000))
    algorithm, environment, settings, dataset = _look_up(options)
    from polyak.learning.engine.threads import chosen_threads
    from polyak.zoo.run_notes import taking_notes

    with outlasting_the_reader("training"), chosen_threads(options.num_threads):
        if environment.is_own:
            _check_own_env(options, environment, settings)
        folder = RunFolder.create(Path(options.log_folder), options.algo, environment.name, options.uuid)
        tidy(folder.path.parent)
        with taking_notes(folder), answered_signals() as stops:
            return _execute(_Run(options, algorithm, environment, settings, folder, dataset, stops))


def resume(options: TrainOptions, **instead: Any) -> Any:
    """Resume the run in the folder ``options.resume``, as `train` does; `instead` are options that are not as it
    was begun with."""
    run = Resumed.of(options, **instead)
    with locked(run.folder), outlasting_the_reader("training"), answered_signals() as stops:
        from polyak.learning.engine.threads import chosen_threads
        from polyak.zoo.run_notes import taking_notes

        tidy(run.folder.path.parent)
        _check_cluster(run.options)
        with taking_notes(run.folder), chosen_threads(run.options.num_threads):
            return _execute(
                _Run(run.options, run.algorithm, run.environment, run.settings, run.folder, run.dataset, stops, run)
            )


def _train_each(options: TrainOptions) -> None:
    """Train with each of the seeds; wrong options are reported once, before any training begins."""
    seeds = parse_seeds(options.seeds)
    if options.seed >= 0:
        raise ZooError(f"--seed {options.seed} and --seeds exclude each other. Give one of them.")
    environment = _look_up(options)[1]
    alike = replace(options, seeds=[], processes=-1)
    parent = Path(options.log_folder) / algorithm_name(options.algo).lower()
    earlier = run_numbers(parent, environment.name)
    with outlasting_the_reader("training"), answered_signals():
        status = train_seeds(to_arguments(alike), seeds, number_of_processes(options.processes, len(seeds)))
        runs = [run for number, run in run_numbers(parent, environment.name).items() if number not in earlier]
        print(where_runs_are([RunFolder(run, environment.name) for run in runs], seeds))
    if status:
        raise SystemExit(status)


def _look_up(options: TrainOptions) -> tuple[type[Any], Environment, Settings, Dataset | None]:
    """Find the classes and files that the options name, and refuse options that no run could use; writes nothing."""
    algorithm = find_algorithm(options.algo)
    if needed := getattr(getattr(algorithm, "card", None), "needs", ""):
        raise ZooError(
            f"--algo {options.algo} needs {needed}, which only a program can give: polyak.{algorithm.__name__}."
        )
    if options.dataset and options.save_replay_buffer:
        raise ZooError("--save-replay-buffer: with --dataset there is no replay buffer to save. Leave the flag out.")
    dataset = dataset_for(options.dataset, algorithm, options.algo, options.trust) if options.dataset else None
    environment = environment_of(options, dataset)
    overrides = parse_pairs(options.hyperparams, "--hyperparams")
    how: dict[str, Any] = {"trust": options.trust, "packages": options.gym_packages}
    settings = load_settings(algorithm, options.algo, environment.name, options.conf_file or None, overrides, **how)
    _check(options, algorithm)
    if options.n_envs > 0:
        settings.n_envs = options.n_envs
    _check_cluster(options)
    _check_runners(options, algorithm, settings)
    _check_shards(options, algorithm, settings)
    if "batch_size" not in overrides and "n_epochs" in parameter_names(algorithm) and (changed := fit_batch(settings)):
        note(changed)
    if dataset is not None:
        check_without_envs(settings)
    return algorithm, environment, settings, dataset


def _execute(run: _Run) -> Any:
    """Build, train and save; a run that cannot be built leaves no folder, and one that fails saves its model."""
    try:
        model, callbacks = run.build()
    except BaseException:
        run.abandon()
        raise
    steps = model.num_timesteps
    ended = learned(partial(run.learn, model, callbacks))
    run.stops.saving()
    if isinstance(ended, (ZooError, ImportError)) and model.num_timesteps == steps:  # a mistake in the options
        run.abandon()
        raise ended
    if isinstance(ended, KeyboardInterrupt):
        kept = run.kept or run.save_interrupted(model)
    else:
        if ended is not None:
            run.folder.write_fault(ended, model.num_timesteps)
        kept = run.save(model)
    end = conclusion(ended, kept, model.num_timesteps, run.folder.final_model, run.folder.settings_folder / ERROR)
    if end is None:
        run.delete_full_checkpoints()
    run.close(0 if end is None else end.status if isinstance(end, TrainingFailed) else int(end.code or 0))
    if end is not None:
        if isinstance(end, TrainingFailed) and ended is not None:
            end.outcome += f"; `polyak replay-fault {run.folder.path}` runs it again"
        raise end from ended
    return model


def _say_what_stays(normalizer: Any, asked: dict[str, Any]) -> None:
    """Report the settings of a model's own normalisation that differ from the options."""
    kept = {name: getattr(normalizer, name, value) for name, value in asked.items()}
    if differ := [f"{name}={kept[name]}, not {value}" for name, value in asked.items() if kept[name] != value]:
        note(f"the model keeps the normalisation that it learned with: {'; '.join(differ)}.")


def _check_own_env(options: TrainOptions, environment: Environment, settings: Settings) -> None:
    advice = check_own_env(environment, settings, parse_pairs(options.env_kwargs, "--env-kwargs"))
    if options.verbose > 0:
        print(f"Checked {environment.source}: it follows the Gymnasium API.")
        for sentence in advice:
            print(f"  advice: {sentence}")


def _check(options: TrainOptions, algorithm: type[Any]) -> None:
    """Refuse option values that no run could use."""
    if options.save_replay_buffer and "buffer_size" not in parameter_names(algorithm):
        raise ZooError(f"--save-replay-buffer: {options.algo} has no replay buffer. Leave the flag out.")
    if options.trained_agent and not Path(options.trained_agent).is_file():
        raise ZooError(f"--trained-agent {options.trained_agent!r} is not a file. Give the path of a saved .zip model.")
    if options.track:
        try:
            __import__(options.track_with)
        except ImportError as error:
            tracker = options.track_with
            raise ImportError(f"--track with {tracker} needs {tracker}: pip install 'polyak[track]'.") from error
    writable_folder("--log-folder", options.log_folder)
    if options.tensorboard_log:
        writable_folder("--tensorboard-log", options.tensorboard_log)


def _check_shards(options: TrainOptions, algorithm: type[Any], settings: Settings) -> None:
    """Refuse shards of a replay buffer if there is none, or fewer environments."""
    shards = options.n_replay_shards
    if not 0 <= shards <= settings.n_envs:
        raise ZooError(
            f"--n-replay-shards must be from 0 to the number of environments, {settings.n_envs}, got {shards}."
        )
    if shards and ("n_replay_shards" not in parameter_names(algorithm) or options.dataset):
        raise ZooError(f"--n-replay-shards {shards}: this training replays nothing of its own. Leave the option out.")


def _check_cluster(options: TrainOptions) -> None:
    """Join the cluster that the options name. Refuse options about processes that are not used."""
    on_ray = options.transport == "ray"
    for name in TrainOptions.PANELS["Cluster"]:
        joins = name in ("address", "working_dir")
        elsewhere = on_ray and (options.n_runners or (joins and options.n_replay_shards))
        if not elsewhere and is_given(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise ZooError(f"{flag}: no part of this training is in another process on Ray. Give --n-runners.")
    join(options.address, options.working_dir)


def _check_runners(options: TrainOptions, algorithm: type[Any], settings: Settings) -> None:
    """Refuse runners that this training cannot use."""
    runners = options.n_runners
    if options.min_runners > runners:
        raise ZooError(f"--min-runners {options.min_runners} must be at most --n-runners {runners}.")
    if runners == 0:
        return
    if "n_runners" not in parameter_names(algorithm) or options.dataset:
        raise ZooError(f"--n-runners {runners}: this training does not act with networks. Leave the option out.")
    if settings.n_envs % runners:
        most = runners * -(-settings.n_envs // runners)
        raise ZooError(
            f"--n-runners {runners} cannot share {settings.n_envs} environments evenly. Give --n-envs {most}."
        )


class _Run:
    """One training run: its environments, model, callbacks and files."""

    def __init__(
        self,
        options: TrainOptions,
        algorithm: type[Any],
        environment: Environment,
        settings: Settings,
        folder: RunFolder,
        dataset: Dataset | None,
        stops: Stops,
        resumed: Resumed | None = None,
    ) -> None:
        self.options = options
        self.stops = stops
        self.resumed = resumed
        self.checkpoint = None if resumed is None else resumed.checkpoint
        self.dataset = dataset
        self.algorithm = algorithm
        self.environment = environment
        self.env_id = environment.name
        self.settings = settings
        self.folder = folder
        self.n_timesteps = options.n_timesteps if options.n_timesteps > 0 else settings.n_timesteps
        self.env_kwargs = parse_pairs(options.env_kwargs, "--env-kwargs") if resumed is None else resumed.env_kwargs
        self.envs: list[VecEnv] = []
        self.tracker: Any = None
        self.end = self.n_timesteps
        self.kept: Kept | None = None
        self.lock: IO[bytes] | None = None

    def build(self) -> tuple[Any, list[BaseCallback]]:
        """Make environments, write the settings, then make model and callbacks."""
        if self.checkpoint is not None:
            from polyak.zoo.full_checkpoints import cut_logs

            with usage_errors(f"Cannot resume from {self.checkpoint}"):
                cut_logs(self.checkpoint, self.folder.path, self._tensorboard_log())
        env = self._envs() if self.dataset is None else self._data(self.dataset)
        if self.resumed is None:
            if not self.options.trained_agent and (
                chosen := fit_policy(self.algorithm, self.settings, env.observation_space)
            ):
                self._say(chosen)
            self._write_settings()
            self.lock = locked(self.folder)
        with usage_errors(f"Cannot build {self.options.algo} for {self.env_id}"):
            if self.checkpoint is not None:
                model = self._resumed_model(env, self.checkpoint)
            else:
                model = self._continued_model(env) if self.options.trained_agent else self._new_model(env)
        self.end = model._total_timesteps if self.checkpoint else model.num_timesteps + self.n_timesteps
        if self.resumed is not None:
            self.resumed.begin()
        with usage_errors(f"--save-format {self.options.save_format}"):
            check_writable(model, self.options.save_format)
        callbacks = self._callbacks(model)
        if (tensorboard := self._tensorboard_log()) is not None:
            with usage_errors(f"--tensorboard-log {self.options.tensorboard_log}"):
                self._log_events(model, Path(tensorboard))
        return model, callbacks

    def _envs(self) -> VecEnv:
        """The environments to act in."""
        with usage_errors(f"Cannot make the environment {self.env_id}"):
            normalize = self._normalize_beneath()
            if self.options.n_runners:
                return self._elsewhere(normalize)
            return self._make_envs(
                self.settings.n_envs,
                self.options.seed,
                monitor_dir=self.folder.path,
                normalize=normalize,
                append=self.checkpoint is not None,
            )

    def _elsewhere(self, normalize: Callable[[VecEnv], VecEnv] | None) -> VecEnv:
        """The environments of runners, which count their monitor files on."""
        from polyak.distributed.ray_workers import MOST_RESTARTS
        from polyak.distributed.runners import TIMEOUT, RemoteEnvs

        runners, share = self.options.n_runners, self.settings.n_envs // self.options.n_runners
        kwargs: dict[str, Any] = {
            "env_kwargs": self.env_kwargs,
            "vec_env": self.options.vec_env,
            "monitor_dir": self.folder.path,
            "normalize": normalize,
            "append": self.checkpoint is not None,
        }
        make = partial(make_envs, self.environment, self.settings, share, seed=None, **kwargs)
        transport: Any = self.options.transport
        limit = self.settings.arguments.get("runner_timeout", TIMEOUT)
        envs = RemoteEnvs(
            lambda index: make(start_index=share * index),
            (self.options.min_runners or runners, runners),
            transport,
            self.options.seed,
            placement=placement_of(self._placement, "runners"),
            timeout=limit,
            restarts=self.settings.arguments.get("restarts_per_hour", MOST_RESTARTS),
            compression=self.settings.arguments.get("compression"),
        )
        self.envs.append(envs)
        return envs.normalized()

    @property
    def _placement(self) -> dict[str, Any]:
        """The ``placement`` of the settings, updated by the command line's options about runners."""
        options, given = self.options, dict(self.settings.arguments.get("placement") or {})
        amounts = {"num_cpus": options.num_cpus_per_runner, "num_gpus": options.num_gpus_per_runner}
        said = {**amounts, "strategy": options.runner_strategy, "wait": options.wait_for_room}
        said = {name: value for name, value in said.items() if value != getattr(Reservation(), name)}
        return {**given, "runners": {**given.get("runners", {}), **said}} if said else given

    @property
    def _elsewhere_options(self) -> dict[str, Any]:
        """Arguments of the model for parts in other processes."""
        options = self.options
        parts = {"n_runners": options.n_runners, "n_replay_shards": options.n_replay_shards}
        used = {name: number for name, number in parts.items() if number}
        return {**used, "transport": options.transport} if used else {}

    def _data(self, dataset: Dataset) -> Dataset:
        """The dataset to learn from, with the spaces of the environment that will be evaluated in."""
        if not self.environment.is_known:
            note("the dataset does not say its environment: nothing is evaluated. Give --env to change that.")
            return dataset
        with usage_errors(f"--dataset {self.options.dataset!r} and {self.env_id}"):
            return dataset.for_env(self._make_envs(1, self.options.seed))

    def _normalize_beneath(self) -> Callable[[VecEnv], VecEnv] | None:
        """The normaliser beneath the stack of frames, where files of Stable-Baselines3 need it there."""
        if self.options.trained_agent and self.checkpoint is None:
            path = Path(self.options.trained_agent)
            found = RunFolder(path.parent, self.env_id).normalizer_of(path)
            if found is not None and has_no_statistics(path):
                self._say(f"Loaded the normalisation statistics {found}")
                return partial(load_statistics, found, trust=self.options.trust)
        elif self.options.save_format == "sb3" and self.settings.normalize is not None:
            return partial(normalized, settings=self.settings)
        return None

    def _make_envs(self, n_envs: int, seed: int, **how: Any) -> VecEnv:
        kwargs: dict[str, Any] = {"env_kwargs": self.env_kwargs, "vec_env": self.options.vec_env, **how}
        envs = make_envs(self.environment, self.settings, n_envs, seed=seed, **kwargs)
        self.envs.append(envs)
        return envs

    def _tensorboard_log(self) -> str | None:
        if not self.options.tensorboard_log:
            return None
        return str(Path(self.options.tensorboard_log) / file_name(self.env_id))

    def _new_model(self, env: VecEnv | Dataset) -> Any:
        return new_model(
            self.algorithm,
            self.settings,
            env,
            seed=self.options.seed,
            device=self.options.device,
            verbose=self.options.verbose,
            tensorboard_log=self._tensorboard_log(),
            **self._elsewhere_options,
        )

    def _resumed_model(self, env: VecEnv | Dataset, checkpoint: Path) -> Any:
        """Load the full checkpoint, whose settings are those of the run."""
        model = self.algorithm.load(
            checkpoint,
            env=env,
            device=self.options.device,
            verbose=self.options.verbose,
            tensorboard_log=self._tensorboard_log(),
            trust=self.options.trust,
            resume=True,
            **self._elsewhere_options,
        )
        self._say(f"Resumed from {checkpoint}: {model.num_timesteps:,} steps are made")
        return model

    def _log_events(self, model: Any, tensorboard: Path) -> None:
        """Let TensorBoard continue in the folder of the run that is resumed, or begin there."""
        from polyak.logging import configure
        from polyak.zoo.full_checkpoints import events_at_start

        events = None if self.checkpoint is None else (model.clock.beside or {}).get("tensorboard")
        if events is None:
            name, again = type(model).__name__, self.resumed is not None
            events = events_at_start(self.folder, tensorboard, name, not self.options.trained_agent, again)
        sinks = ["stdout", "tensorboard"] if self.options.verbose > 0 else ["tensorboard"]
        model.set_logger(configure(str(tensorboard / events["folder"]), sinks))

    def _continued_model(self, env: VecEnv | Dataset) -> Any:
        """Load the trained agent with this run's settings; the network's shape stays that of the file."""
        fixed = ("policy_kwargs", "device", "seed", "verbose")
        arguments = {key: value for key, value in self.settings.arguments.items() if key not in fixed}
        model = self.algorithm.load(
            self.options.trained_agent,
            env=env,
            device=self.options.device,
            seed=self.options.seed,
            verbose=self.options.verbose,
            tensorboard_log=self._tensorboard_log(),
            trust=self.options.trust,
            **self._elsewhere_options,
            **arguments,
        )
        if self.dataset is not None:
            return model
        if self.settings.normalize is not None and (normalizer := model.get_vec_normalize_env()) is None:
            model.set_env(normalized(env, self.settings))  # type: ignore[arg-type]
        elif self.settings.normalize is not None:
            _say_what_stays(normalizer, self.settings.normalize)
        if hasattr(model, "load_replay_buffer"):
            self._load_replay_buffer(model)
        return model

    def _load_replay_buffer(self, model: Any) -> None:
        """Load the buffer that the model file had when it was saved, if there is one; another's is left alone."""
        path = Path(self.options.trained_agent)
        folder = RunFolder(path.parent, self.env_id)
        if (buffer := folder.replay_buffer_of(path)) is not None:
            how = {"truncate_last_traj": self.options.truncate_last_trajectory, "trust": self.options.trust}
            model.load_replay_buffer(buffer, **how)
            self._say(f"Loaded the replay buffer {buffer}")
        elif folder.replay_buffer.is_file():
            note(
                f"{folder.replay_buffer} is of the end of the run, not of {path.name}: training continues with an "
                "empty replay buffer."
            )

    def _callbacks(self, model: Any) -> list[BaseCallback]:
        from polyak.zoo.run_notes import ProgressFile, SinkCallback

        callbacks: list[BaseCallback] = [ProgressFile(self.folder.path, append=self.checkpoint is not None)]
        if self.options.track:
            self.tracker = self._start_tracking()
            callbacks.append(SinkCallback(self.tracker))
        callbacks += [spec() for spec in self.settings.callback]
        if self.options.save_freq > 0:
            callbacks.append(self._checkpoints())
        if self.options.eval_freq > 0 and self.environment.is_known:
            callbacks.append(self._evaluations(model))
        if self.options.keep_full > 0 and self.options.save_format == "polyak":
            from polyak.zoo.full_checkpoints import FullCheckpoints

            how = self.options.save_freq, self.options.keep_full, self.stops, self.save_interrupted
            callbacks.append(FullCheckpoints(self.folder.path, *how, self.options.verbose))  # runs after all others
        return callbacks

    def _checkpoints(self) -> BaseCallback:
        from polyak.callbacks.saving import CheckpointCallback

        return CheckpointCallback(
            self.options.save_freq,
            str(self.folder.path),
            save_vecnormalize=self.options.save_format == "sb3",  # whose models have no statistics
            verbose=self.options.verbose,
            unit="timesteps",
            file_format=self.options.save_format,  # type: ignore[arg-type]
        )

    @property
    def _in_force(self) -> dict[str, Any]:
        """The settings as they stand in files, with the steps that are trained for."""
        return in_force(self.settings.raw, {"n_timesteps": self.options.n_timesteps})

    def _start_tracking(self) -> Any:
        from polyak.zoo.tracking import Tracked, start_tracking

        options = self.options
        run = Tracked(
            options.wandb_project_name,
            f"{self.env_id}__{algorithm_name(options.algo)}__{options.seed}__{self.folder.path.name}",
            options.wandb_entity,
            options.wandb_group,
            options.wandb_tags,
            plain({**self._in_force, "n_envs": self.settings.n_envs, "args": asdict(options)}),
        )
        return start_tracking(options.track_with, run)

    def _evaluations(self, model: Any) -> BaseCallback:
        from polyak.callbacks.evaluating import EvalCallback
        from polyak.envs.wrappers.layers import above_normalisation
        from polyak.envs.wrappers.normalize import normalized_like

        learned_in = model.get_env()
        as_learned = partial(normalized_like, training_env=learned_in)  # also where another command began
        with usage_errors(f"Cannot make the evaluation environment {self.env_id}"):
            envs = self._make_envs(
                self.options.n_eval_envs,
                self.options.seed + EVAL_SEED_OFFSET,
                env_kwargs={**self.env_kwargs, **parse_pairs(self.options.eval_env_kwargs, "--eval-env-kwargs")},
                normalize=as_learned if above_normalisation(learned_in).observations else None,
            )
            envs = as_learned(envs)
        return EvalCallback(
            envs,
            n_eval_episodes=self.options.eval_episodes,
            eval_freq=self.options.eval_freq,
            unit="timesteps",
            log_path=str(self.folder.path),
            best_model_save_path=str(self.folder.path),
            deterministic=not is_atari_id(self.env_id),
            verbose=self.options.verbose,
            file_format=self.options.save_format,  # type: ignore[arg-type]
        )

    def _announce(self, model: Any) -> None:
        """Print the settings of the run, and the folder of its files."""
        steps = f"{self.n_timesteps:,} {'steps' if self.dataset is None else 'gradient steps'}"
        self._say(f"{algorithm_name(self.options.algo).upper()} on {self.env_id}: {steps}, seed {self.options.seed}")
        self._say(f"Settings from {self.settings.source}:")
        for key, value in self._in_force.items():
            self._say(printable(f"  {key}: {value}"))
        device = getattr(model, "device", "cpu")  # tabular models have none
        source = (
            f"Environments: {self.settings.n_envs} ({self.options.vec_env})" if self.dataset is None else self.dataset
        )
        self._say(f"{source}, device: {device}")
        self._say(f"Log path: {self.folder.path}")

    def learn(self, model: Any, callbacks: list[BaseCallback]) -> None:
        """Print the settings of the run, and train."""
        self._announce(model)
        kwargs: dict[str, Any] = {}
        if self.options.log_interval == -2:
            kwargs["log_interval"] = None
        elif self.options.log_interval > 0:
            kwargs["log_interval"] = self.options.log_interval
        if self.options.trained_agent or self.checkpoint:
            kwargs["reset_num_timesteps"] = False
        steps = max(self.end - model.num_timesteps, 0)
        model.learn(steps, callback=callbacks or None, progress_bar=self.options.progress, **kwargs)

    def save_interrupted(self, model: Any) -> Kept:
        """Save a run that was stopped by a signal, so that its final model does not look finished."""
        self.folder.write_interruption(model.num_timesteps, self.end)
        self.kept = self.save(model)
        return self.kept

    def delete_full_checkpoints(self) -> None:
        """The run has finished: nothing is to be resumed any more."""
        for path in self.folder.checkpoints(FULL).values():
            with suppress(OSError):
                path.unlink()

    def abandon(self) -> None:
        """Delete the folder of a run that cannot begin, unless it was to be resumed."""
        self.close(exit_code=1)
        if self.resumed is None:
            self.folder.remove()

    def save(self, model: Any) -> Kept:
        """Save the final model, the normalisation statistics and, if wanted, the replay buffer."""
        self._say(f"Saving to {self.folder.path}")
        save_format = self.options.save_format
        parts: dict[str, Callable[[], Any]] = {MODEL: partial(save_sound, model, self.folder.final_model, save_format)}
        if (normalizer := model.get_vec_normalize_env()) is not None:
            parts["normalisation statistics"] = partial(save, normalizer, self.folder.normalizer, save_format)
        if self.options.save_replay_buffer:
            parts["replay buffer"] = partial(model.save_replay_buffer, self.folder.replay_buffer)
        return keep(parts)

    def close(self, exit_code: int = 0) -> None:
        """Close every environment that was made, and end the tracking: other than 0, `exit_code` marks a failure.

        Errors of environments are only printed: the model has been saved by then.
        """
        closing = [envs.close for envs in reversed(self.envs)]
        if self.tracker is not None:
            closing.insert(0, partial(self.tracker.close, exit_code))
        if self.lock is not None:
            closing.append(self.lock.close)
        self.envs, self.tracker, self.lock = [], None, None
        for close in closing:
            try:
                close()
            except (Exception, KeyboardInterrupt) as error:
                note(f"closing what was used for training failed: {in_one_line(error)}")

    def _write_settings(self) -> None:
        self.folder.write_yaml("config.yml", {**self.settings.raw, "n_envs": self.settings.n_envs})
        algo = stored_text(self.options.algo)
        found_again = {"algo": algo, "env": self.environment.source, "env_kwargs": self.env_kwargs}
        self.folder.write_yaml(ARGUMENTS, {**asdict(self.options), **found_again})
        command = shlex.join(["polyak", *sys.argv[1:]])
        with replacing(self.folder.settings_folder / "command.txt") as file:
            file.write(f"{command}\n".encode())

    def _say(self, text: str) -> None:
        if self.options.verbose > 0:
            print(text)
