"""Trials, one after the other in this process, or side by side in several that share a study."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import wait
from threading import Thread
from typing import TYPE_CHECKING, Any

from polyak.zoo.errors import ZooError
from polyak.zoo.interruption import Terminated, answered_signals
from polyak.zoo.output import outlasting_the_reader
from polyak.zoo.tuning import studies
from polyak.zoo.tuning.options import TuneOptions
from polyak.zoo.tuning.problem import Problem
from polyak.zoo.tuning.report import setting_lines
from polyak.zoo.tuning.search import make_pruner, make_sampler

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

MOST_FAILURES = 10
"""Number of failed trials, without any success, that ends a study."""


def take_part(problem: Problem, total: int, worker: int = 0) -> None:
    """Run trials until the study has `total`; `worker` numbers the processes of one command."""
    options = problem.options
    study = open_study(problem)
    if options.sampler == "cmaes":
        studies.check_optimizers(study)
    while not hopeless(study):
        studies.reclaim(study)
        seed = (problem.seed, worker, len(studies.counted(study)))
        study.sampler = make_sampler(options.sampler, seed, options.n_startup_trials, parallel=options.n_jobs > 1)
        trial = studies.next_trial(study, total)
        if trial is not None:
            _run(study, trial, problem)
        elif studies.any_unsigned(study):
            time.sleep(0.2)
        else:
            return


def open_study(problem: Problem) -> Study:
    """Open the problem's study, with its pruner."""
    study = studies.open_study(studies.open_storage(problem.storage), problem.study_name, problem.asked)
    options = problem.options
    study.pruner = make_pruner(options.pruner, options.n_startup_trials, problem.n_evaluations, options.percentile)
    return study


def hopeless(study: Study) -> bool:
    """Whether many trials have ended and all of them failed."""
    from optuna.trial import TrialState

    trials = studies.finished(study)
    return len(trials) >= MOST_FAILURES and all(trial.state == TrialState.FAIL for trial in trials)


def _run(study: Study, trial: Trial, problem: Problem) -> None:
    """Run one trial and keep how it ended; what goes wrong in it does not stop the study."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    from polyak.zoo.tuning import training

    started = time.perf_counter()
    try:
        with studies.signs_of_life(trial):
            try:
                value = training.run(study, trial, problem)
            except training.Pruned:
                how = f"pruned after evaluation {study.tell(trial, state=TrialState.PRUNED).last_step}"
            except KeyboardInterrupt:
                frozen = next(t for t in study.get_trials(deepcopy=False) if t.number == trial.number)
                studies.retry(study, frozen)
                raise
            except UpdateFinishedTrialError:
                raise
            except (Exception, SystemExit) as error:  # sys.exit() in an environment ends a trial, not the study
                how = f"failed: {studies.fail(study, trial, error)}"
            else:
                study.tell(trial, value)
                how = f"{value:.2f}"
    except UpdateFinishedTrialError:
        how = "not heard of for too long: another process tries these settings again"
    if problem.options.verbose > 0:
        seconds = time.perf_counter() - started
        print(f"Trial {trial.number}: {how} ({seconds:.1f} s)", flush=True)
        if problem.options.verbose > 1 and "settings" in trial.user_attrs:
            print("\n".join(setting_lines(trial.user_attrs["settings"])), flush=True)


# -- several processes -------------------------------------------------------------------------------------------------


def run_side_by_side(options: TuneOptions, total: int) -> None:
    """Let ``options.n_jobs`` processes run trials of a study until it has `total`.

    They are started afresh, not forked, and end when this process does, however it ends.

    Raises:
        ZooError: a process ended with an error, which it has printed to stderr; not if a signal killed it, as happens
            when memory runs out.
        KeyboardInterrupt: after all processes have ended.
    """
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work, args=(options, total, number), daemon=False) for number in range(options.n_jobs)
    ]
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    except KeyboardInterrupt as interrupt:
        # Ctrl-C reached them, too, SIGTERM did not: they put back their trials and end.
        for process in processes if isinstance(interrupt, Terminated) else ():
            if process.is_alive():
                process.terminate()
        for process in processes:
            process.join(timeout=60)
            if process.is_alive():
                process.kill()
        raise
    if failed := [process.exitcode for process in processes if (process.exitcode or 0) > 0]:
        raise ZooError(f"A process of --n-jobs {options.n_jobs} ended with status {failed[0]}; see its message above.")


def _work(options: TuneOptions, total: int, number: int) -> None:
    """The main function of a process of a study."""
    from polyak.learning.engine.threads import chosen_threads

    Thread(target=_end_with_the_parent, daemon=True).start()
    studies.need_optuna()
    with outlasting_the_reader("tuning"), answered_signals(), chosen_threads(options.num_threads):
        try:
            take_part(Problem.build(options), total, number)
        except KeyboardInterrupt:
            raise SystemExit(0) from None
        except ZooError as error:
            raise SystemExit(f"polyak: {error}") from None


def _end_with_the_parent() -> None:
    parent: Any = multiprocessing.parent_process()
    wait([parent.sentinel])
    os._exit(1)
