"""``polyak tune``, and ``polyak train --optimize-hyperparameters``."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak.zoo.data.files import environment_of, load
from polyak.zoo.environments import check_own_env
from polyak.zoo.errors import ZooError
from polyak.zoo.interruption import answered_signals, status_of
from polyak.zoo.joining import join
from polyak.zoo.options import default_of, is_given
from polyak.zoo.output import note, outlasting_the_reader, writable_file, writable_folder
from polyak.zoo.registry import algorithm_name, check_names, env_name, find_algorithm
from polyak.zoo.run_folder import file_name
from polyak.zoo.tuning import report, studies, workers
from polyak.zoo.tuning.options import StudyOptions, TrainingOptions, TuneOptions
from polyak.zoo.tuning.problem import Problem, default_storage, default_study_name

if TYPE_CHECKING:
    from optuna import Study


def tune(options: TuneOptions) -> Path:
    """Run a study as `options` say, write its report and return the file with the best settings.

    The study continues from the trials that it has: see `polyak.zoo.tuning.studies`. Ctrl-C ends it early, reports the
    trials so far, and exits with status 130; SIGTERM, with 143.

    Raises:
        ZooError: a wrong option, algorithm, environment, setting or space, before anything is written; a study that was
            begun with other options; no trial that succeeded.
        ImportError: the extra ``tune`` is missing.
    """
    check_names(options.algo, options.env, options.gym_packages)
    studies.need_optuna()
    if options.trial_id >= 0:
        return show_trial(options)
    _check(options)
    from polyak.learning.engine.threads import chosen_threads

    problem = Problem.build(options)
    total = options.max_total_trials if options.max_total_trials > 0 else options.n_trials
    with outlasting_the_reader("tuning"), chosen_threads(options.num_threads):
        if problem.environment.is_own:
            check_own_env(problem.environment, problem.base, problem.env_kwargs)
        problem.check()
        study = workers.open_study(problem)
        _announce(problem, study, total)
        status = 0
        try:
            with answered_signals():
                _run(problem, study, total)
        except KeyboardInterrupt as interrupt:
            status = status_of(interrupt)
            note("interrupted; the same command continues with the study.")
        try:
            best = _report(problem, study, total)
        except ZooError as error:
            if not status:
                raise
            note(str(error))
    if status:
        raise SystemExit(status)
    return best


def _run(problem: Problem, study: Study, total: int) -> None:
    """Run trials until there are `total`; processes that died are replaced as long as trials get finished."""
    while len(before := studies.finished(study)) < total and not workers.hopeless(study):
        if problem.options.ray:
            workers.run_on_ray(problem, total)
        elif problem.options.n_jobs == 1:
            workers.take_part(problem, total)
        else:
            workers.run_side_by_side(problem.options, total)
        if not studies.reclaim(study) and len(studies.finished(study)) == len(before):
            return  # other commands work at the rest


def _check(options: TuneOptions) -> None:
    """Refuse option values that no study could use."""
    _check_data(options)
    if 0 < options.n_timesteps < options.n_evaluations:
        raise ZooError(
            f"--n-evaluations {options.n_evaluations} are more than the --n-timesteps {options.n_timesteps} of a "
            "training. Give fewer."
        )
    if not 0 < options.percentile < 100:
        raise ZooError(f"--percentile must lie between 0 and 100, got {options.percentile}.")
    if not 0.5 <= options.prune_confidence < 1:
        raise ZooError(f"--prune-confidence must be at least 0.5 and less than 1, got {options.prune_confidence}.")
    for name in () if options.ray else TuneOptions.PANELS["Cluster"]:
        if is_given(options, name):
            raise ZooError(f"--{name.replace('_', '-')} means nothing here: no trial is on a cluster. Give --ray.")
    join(options.address, options.working_dir)
    writable_folder("--log-folder", options.log_folder)
    if options.optimization_log_path:
        writable_folder("--optimization-log-path", options.optimization_log_path)
    if options.storage and "://" not in options.storage:
        writable_file("--storage", options.storage)


def _check_data(options: TuneOptions) -> None:
    """Refuse options of acting agents if there is a dataset, and options of datasets if there is none."""
    of_data = ("folds", "metric")
    of_acting = ("seeds", "eval_episodes", "n_eval_envs", "eval_env_kwargs", "n_envs", "vec_env")
    unused, why = (of_acting, "agents do not act") if options.dataset else (of_data, "there is no --dataset")
    for item in fields(options):
        if item.name in unused and getattr(options, item.name) != default_of(item):
            raise ZooError(f"{item.metadata['flags'][0]} means nothing here: {why}. Leave it out.")


def _announce(problem: Problem, study: Study, total: int) -> None:
    options = problem.options
    done = len(studies.finished(study))
    if options.verbose > 0:
        agents = f"{options.seeds} seed(s)" if problem.dataset is None else f"{options.folds} folds by {problem.metric}"
        print(
            f"Tuning {algorithm_name(options.algo).upper()} on {problem.environment.name}: "
            f"{problem.task.n_timesteps:,} steps, {problem.n_evaluations} evaluations, {agents} from {problem.seed}"
        )
        processes = "on Ray" if options.ray else options.n_jobs
        print(f"Sampler: {options.sampler} - Pruner: {options.pruner} - Processes: {processes}")
        print(f"Study {study.study_name} in {studies.without_password(problem.storage)}: {done} of {total} trials")
    if done >= total:
        note(
            f"the study {study.study_name} has its {total} trials already; --n-trials {2 * total} would continue it, "
            "another --study-name begins a new one."
        )


def _report(problem: Problem, study: Study, total: int) -> Path:
    """Print and write the results of the study; returns the file with the best settings."""
    options = problem.options
    trials = studies.finished(study)
    states = Counter(trial.state.name.lower() for trial in trials)
    print(f"{len(trials)} trials: " + (", ".join(f"{n} {state}" for state, n in states.items()) or "none"))
    if len(trials) < total and not workers.hopeless(study):
        note(f"{total - len(trials)} more are to come: they run elsewhere, or when the same command is given again.")
    best = report.best_trial(study)
    if best is None:
        reason = studies.first_reason(study)
        raise ZooError(
            f"No trial of the study {study.study_name} succeeded. "
            + (f"The first failed with {reason}" if reason else "None was finished: give it more time.")
        )
    if first := studies.first_reason(study):
        note(f"some trials failed; the first with {first}")
    name = (
        f"report_{file_name(problem.environment.name)}_{len(trials)}-trials-{problem.task.n_timesteps}-"
        f"{options.sampler}-{options.pruner}_{int(time.time())}"
    )
    stem = Path(options.log_folder) / algorithm_name(options.algo).lower() / name
    report.write_table(stem.with_name(f"{name}.csv"), study)
    settings = stem.with_name(f"{name}.yml")
    report.write_settings(settings, study, best, problem.environment.name)
    if not options.no_optim_plots:
        for missing in report.write_plots(stem.with_name(f"{name}.html"), study):
            note(f"the plot of {missing} needs more trials, or trials that differ.")
    print(f"Best trial: {best.number}, score {best.value:.2f}")
    print("\n".join(report.setting_lines(report.settings_of(best))))
    print(f"Report: {stem}.*")
    print(f"Train with it: {_train_command(options, problem.environment.source, settings)}")
    return settings


def _train_command(options: TuneOptions, env: str, settings: Path) -> str:
    words = ["polyak", "train", "--algo", options.algo, *(["--env", env] if env else [])]
    words += [*(["--dataset", options.dataset] if options.dataset else []), "--conf-file", str(settings)]
    return shlex.join(words + (["--gym-packages", *options.gym_packages] if options.gym_packages else []))


def show_trial(options: TuneOptions) -> Path:
    """Print the settings of trial ``options.trial_id``, write them as a file for `polyak train` and return its path."""
    settings = settings_of_trial(options)
    print(settings.read_text(encoding="utf-8"), end="")
    print(f"Train with it: {_train_command(options, options.env, settings)}")
    return settings


def settings_of_trial(options: Any) -> Path:
    """Write the settings of trial ``options.trial_id`` of a study, and return the file.

    Args:
        options: those of `tune` or of `train`; ``algo``, ``env``, ``log_folder`` and those of `StudyOptions` are read.

    Raises:
        ZooError: there is no such study or trial, or it has no settings.
    """
    studies.need_optuna()
    find_algorithm(options.algo)
    dataset = load(options.dataset, trust=options.trust) if options.dataset and not options.env else None
    env = env_name(options.env) or environment_of(options, dataset).name
    name = options.study_name or default_study_name(options.algo, env)
    storage = options.storage or default_storage(options, name)
    if "://" not in storage and not Path(storage).is_file():
        raise ZooError(f"There is no study in {storage!r}. Say where it is: --storage, and --study-name.")
    study = studies.load_study(studies.open_storage(storage), name)
    trials = {trial.number: trial for trial in studies.counted(study)}
    if options.trial_id not in trials:
        last = f"0 to {max(trials)}" if trials else "none"
        raise ZooError(f"The study {name!r} has no trial --trial-id {options.trial_id}. Trials there: {last}.")
    folder = writable_folder("--log-folder", options.log_folder) / algorithm_name(options.algo).lower()
    path = folder / f"{file_name(name)}_trial_{options.trial_id}.yml"
    report.write_settings(path, study, trials[options.trial_id], env)
    return path


# -- for polyak train --------------------------------------------------------------------------------------------------


def tune_as_train(options: TrainingOptions) -> Path:
    """Run the study that the options of `polyak train` describe.

    Raises:
        ZooError: an option of training that a study has no use for.
    """
    shared = {item.name for item in fields(TuneOptions)} - {*TuneOptions.PANELS["Cluster"], "seeds"}  # a list here
    for item in fields(options):
        given = getattr(options, item.name)
        if item.name not in shared | {"optimize_hyperparameters"} and given != default_of(item):
            raise ZooError(
                f"{item.metadata['flags'][0]} cannot be combined with --optimize-hyperparameters: the trials of a "
                "study are short trainings that leave no run folders. Leave it out, and give it when you train with "
                "the best settings."
            )
    both = shared & {item.name for item in fields(options)}
    return tune(TuneOptions(**{name: getattr(options, name) for name in both}))


def check_no_study(options: TrainingOptions) -> None:
    """Refuse options of a study without ``--optimize-hyperparameters``, except those that select ``--trial-id``."""
    which = {"trial_id", "storage", "study_name"} if options.trial_id >= 0 else set()
    for item in fields(StudyOptions):
        if item.name not in which and getattr(options, item.name) != default_of(item):
            raise ZooError(
                f"{item.metadata['flags'][0]} needs --optimize-hyperparameters: without it there is no study."
            )
