"""The problem of a study: an algorithm, an environment, initial settings, and the search space."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from polyak.algorithm_info import Card, Search, Task
from polyak.zoo.data.files import check_without_envs, dataset_for, environment_of
from polyak.zoo.environments import make_envs
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.literals import parse_pairs, split_pairs
from polyak.zoo.models import fit_policy, new_model
from polyak.zoo.own_code import errors_of_own_code, find_in_file, load_file
from polyak.zoo.plain_yaml import plain
from polyak.zoo.registry import Environment, algorithm_name, find_algorithm
from polyak.zoo.run_folder import file_name
from polyak.zoo.settings import Settings, interpret, load_settings
from polyak.zoo.tuning.metrics import FQE, default_metric, score_of
from polyak.zoo.tuning.options import TuneOptions

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import BaseTrial

    from polyak.experience import Dataset

STEPS_PER_EVALUATION = 100_000
FEWEST_EVALUATIONS = 5
DRAWS_TO_CHECK = 3
#: Settings that hold others: those that a space does not name stay.
_MERGED = ("policy_kwargs", "replay_buffer_kwargs")


@dataclass(frozen=True)
class Problem:
    """A study's question, from `TuneOptions`; every process of a study builds its own, all alike."""

    options: TuneOptions
    algorithm: type[Any]
    environment: Environment
    base: Settings
    space: Callable[[BaseTrial, Task], Mapping[str, Any]]
    task: Task
    n_evaluations: int
    metric: str = ""
    dataset: Dataset | None = None
    """The data that trials learn from and are scored on, instead of acting; ``metric`` is the score."""

    @classmethod
    def build(cls, options: TuneOptions) -> Problem:
        """Find algorithm, environment, settings and space.

        Raises:
            ZooError: one of them does not exist, or the environment cannot be made.
        """
        algorithm = find_algorithm(options.algo)
        dataset = dataset_for(options.dataset, algorithm, options.algo, options.trust) if options.dataset else None
        environment = environment_of(options, dataset)
        how: dict[str, Any] = {"trust": options.trust, "packages": options.gym_packages}
        typed = fixed(options)
        base = load_settings(algorithm, options.algo, environment.name, options.conf_file or None, typed, **how)
        if dataset is not None:
            check_without_envs(base)
        if options.n_envs > 0:
            base.n_envs = options.n_envs
        n_timesteps = options.n_timesteps if options.n_timesteps > 0 else base.n_timesteps
        metric = "" if dataset is None else options.metric or default_metric(algorithm)
        # a fitted Q evaluation takes as long as a training
        automatic = 1 if metric == FQE else max(FEWEST_EVALUATIONS, n_timesteps // STEPS_PER_EVALUATION)
        n_evaluations = options.n_evaluations if options.n_evaluations > 0 else min(automatic, n_timesteps)
        space = find_space(options.space) if options.space else _space_of(algorithm)
        task, dataset = _look_at(algorithm, environment, base, options, n_timesteps, dataset)
        return cls(options, algorithm, environment, base, space, task, n_evaluations, metric, dataset)

    @property
    def study_name(self) -> str:
        """The name of the study."""
        return self.options.study_name or default_study_name(self.options.algo, self.environment.name)

    @property
    def storage(self) -> str:
        """The storage of the study: the path of a journal, or the URL of a database."""
        return self.options.storage or default_storage(self.options, self.study_name)

    @property
    def seed(self) -> int:
        """The study's seed; unless one is given it follows from the study's name, in every process alike."""
        return self.options.seed if self.options.seed >= 0 else crc32(self.study_name.encode()) % 2**31

    @property
    def objective(self) -> str:
        """The statistic over the scores of a trial's agents."""
        return self.options.objective or ("median" if self.dataset is None else "mean")

    @cached_property
    def asked(self) -> dict[str, Any]:
        """The common part of all trials: a study continues only with an equal one."""
        options = self.options
        return {
            "algo": options.algo.lower(),
            "env": self.environment.source,
            "n_timesteps": self.task.n_timesteps,
            "n_envs": self.base.n_envs,
            "n_evaluations": self.n_evaluations,
            "eval_episodes": options.eval_episodes,
            "seed": self.seed,
            "seeds": options.seeds,
            "objective": self.objective,
            "space": options.space,
            "settings": plain(self.base.raw),
            "env_kwargs": plain(self.env_kwargs),
            "eval_env_kwargs": plain(parse_pairs(options.eval_env_kwargs, "--eval-env-kwargs")),
            **({} if self.dataset is None else self._asked_of_data),
        }

    @property
    def _asked_of_data(self) -> dict[str, Any]:
        """The properties of a dataset that all trials share: its content, not its path."""
        import numpy as np

        assert self.dataset is not None
        rewards = crc32(np.ascontiguousarray(self.dataset.rewards, np.float64).tobytes())
        return {"dataset": rewards, "folds": self.options.folds, "metric": self.metric}

    def propose(self, trial: BaseTrial) -> Settings:
        """Draw settings for a trial.

        Raises:
            ZooError: the space gave something that is not plain data, or settings that the algorithm does not have.
        """
        drawn = dict(self.space(trial, self.task))
        if not is_plain(drawn):
            raise ZooError(
                f"The space {self.options.space or self.options.algo} must give settings as they stand in YAML files: "
                f"numbers, strings, lists and dicts. It gave {drawn!r}."
            )
        return self.read({**merged(self.base.raw, drawn), **fixed(self.options)}, f"trial {trial.number}", drawn)

    def read(self, raw: dict[str, Any], source: str, drawn: Iterable[str] = ()) -> Settings:
        """Check settings against the algorithm, and set the values that all trials share.

        The settings in `drawn` come from a space, which is code of the user's or polyak's.
        """
        raw = {**raw, "n_timesteps": self.task.n_timesteps, "n_envs": self.base.n_envs}
        typed = self.base.typed | frozenset(drawn)
        settings = interpret(self.algorithm, self.options.algo, raw, source, self.base.author, typed).find_classes()
        if self.env_kwargs:
            settings.raw["env_kwargs"] = plain({**settings.env_kwargs, **self.env_kwargs})
        return settings

    def check(self) -> None:
        """Draw settings and build a model with them, so that mistakes are found before the study begins.

        Settings may happen to be impossible; if the first `DRAWS_TO_CHECK` are, so are probably all.

        Raises:
            ZooError: why no model could be built.
        """
        import optuna

        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(self.seed))
        mistakes: list[ZooError] = []
        while len(mistakes) < DRAWS_TO_CHECK:
            try:
                return self._build(study)
            except ZooError as error:
                mistakes.append(error)
        raise mistakes[0]

    def _build(self, study: Study) -> None:
        file = Path(self.options.space.rpartition(":")[0]).expanduser().resolve()
        with errors_of_own_code(f"The space {self.options.space or self.options.algo} cannot be used", str(file)):
            settings = self.propose(study.ask())
        if self.dataset is not None:
            return self._build_on(self.dataset, settings)
        env = make_envs(self.environment, settings, settings.n_envs, seed=0, env_kwargs=self.env_kwargs)
        try:
            with usage_errors(f"Cannot build {self.options.algo} for {self.environment.name}"):
                new_model(self.algorithm, settings, env, seed=0, device=self.options.device)
        finally:
            env.close()

    def _build_on(self, dataset: Dataset, settings: Settings) -> None:
        """Build a model on some episodes, and see whether the metric applies to it."""
        with usage_errors(f"Cannot build {self.options.algo} for {self.environment.name}"):
            learned, held_out = next(dataset.folds(self.options.folds, self.seed))
            model = new_model(self.algorithm, settings, learned, seed=0, device=self.options.device)
        with usage_errors(f"--metric {self.metric}"):
            self.score(model, held_out.select([0]), 0)

    def score(self, model: Any, held_out: Dataset, n_updates: int) -> float:
        """The score of an agent on episodes that it has not learned from; `n_updates` are those of `FQE`."""
        policy = self.base.policy if isinstance(self.base.policy, str) else "MlpPolicy"
        return score_of(model, held_out, self.metric, self.base.gamma, n_updates, policy)

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment's constructor that the command line gives."""
        return parse_pairs(self.options.env_kwargs, "--env-kwargs")


def default_study_name(algo: str, env: str) -> str:
    """Return the name of the study of `algo` on `env` that has no given name."""
    return f"{algorithm_name(algo).lower()}_{file_name(env)}"


def default_storage(options: TuneOptions, study_name: str) -> str:
    """Return the journal of a study for which no storage was named."""
    folder = Path(options.log_folder) / algorithm_name(options.algo).lower()
    return str(folder / f"study_{file_name(study_name)}.journal")


def fixed(options: TuneOptions) -> dict[str, Any]:
    """Return the settings that the command line fixes, as they would stand in a file."""
    values = parse_pairs(options.hyperparams, "--hyperparams")
    texts = split_pairs(options.hyperparams, "--hyperparams")
    return {key: value if is_plain(value) else texts[key] for key, value in values.items()}


def merged(base: Mapping[str, Any], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Replace settings of `base` by those that were drawn; in `policy_kwargs` and the like, only the entries that were
    drawn."""
    both = {key: {**base[key], **drawn[key]} for key in _MERGED if _are_mappings(base.get(key), drawn.get(key))}
    return {**base, **drawn, **both}


def _are_mappings(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def is_plain(value: Any) -> bool:
    """Return whether YAML can hold a value: finite numbers, strings, None, lists and dicts of these."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (bool, int, str)


def find_space(text: str) -> Callable[[BaseTrial, Task], Mapping[str, Any]]:
    """Read ``file.py:function``: a function of a trial, or of a trial and a `Task`, that returns settings.

    Raises:
        ZooError: the file, the function or the code is wrong.
    """
    if not text.rpartition(":")[0].endswith(".py"):
        raise ZooError(f"--space {text!r} is not of the form file.py:FUNCTION.")
    path, name = find_in_file(text, "--space")
    function = getattr(load_file(path), name)
    if len(inspect.signature(function).parameters) == 1:
        return lambda trial, task: function(trial)
    return function


def _space_of(algorithm: type[Any]) -> Search:
    """The search space of an algorithm's card, or of the one that it derives from."""
    card: Card | None = getattr(algorithm, "card", None)
    if card is None or not card.search:
        raise ZooError(f"There is no space for {algorithm.__name__} to search. Give one: --space file.py:FUNCTION.")
    return card.search


def _look_at(
    algorithm: type[Any],
    environment: Environment,
    base: Settings,
    options: TuneOptions,
    n_timesteps: int,
    dataset: Dataset | None,
) -> tuple[Task, Dataset | None]:
    """Make one environment to read its spaces, and choose the policy by them if the settings leave it open.

    A dataset gets its spaces; without an environment, those of the dataset are used.
    """
    from gymnasium import spaces

    env: Any = dataset
    if environment.is_known:
        kwargs = parse_pairs(options.env_kwargs, "--env-kwargs")
        with usage_errors(f"Cannot make the environment {environment.name}"):
            env = make_envs(environment, base, 1, seed=0, env_kwargs=kwargs, vec_env="dummy")
        env.close()
    if dataset is not None and env is not dataset:
        with usage_errors(f"--dataset {options.dataset!r} and {environment.name}"):
            dataset = dataset.for_env(env)
    fit_policy(algorithm, base, env.observation_space)
    policy = base.policy if isinstance(base.policy, str) else base.policy.__name__
    task = Task(
        n_timesteps,
        base.n_envs,
        continuous=isinstance(env.action_space, spaces.Box),
        images="Cnn" in policy,
        goals="Her" in str(base.raw.get("replay_buffer_class", "")),
    )
    return task, dataset
