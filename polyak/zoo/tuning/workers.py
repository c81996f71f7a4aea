"""Trials, one after the other in this process, or side by side in several that share a study, here or on Ray."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from threading import Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from polyak.zoo.errors import ZooError, usage_errors
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
    study = open_study(problem)
    while (said := _try_one(study, problem, total, worker)) is not None:
        if problem.options.verbose > 0:
            print("\n".join(said), flush=True)


def _try_one(study: Study, problem: Problem, total: int, worker: int, task: str = "") -> list[str] | None:
    """Run a trial, if the study has room for one; returns the lines to print."""
    options = problem.options
    if options.sampler == "cmaes":
        studies.check_optimizers(study)
    while not hopeless(study):
        studies.reclaim(study)
        seed = (problem.seed, worker, len(studies.counted(study)))
        study.sampler = make_sampler(options.sampler, seed, options.n_startup_trials, parallel=options.n_jobs > 1)
        trial = studies.next_trial(study, total)
        if trial is not None:
            return _run(study, trial, problem, task)
        if not studies.any_unsigned(study):
            return None
        time.sleep(0.2)
    return None


def open_study(problem: Problem) -> Study:
    """Open the problem's study, with its pruner."""
    study = studies.open_study(studies.open_storage(problem.storage), problem.study_name, problem.asked)
    options = problem.options
    study.pruner = make_pruner(options.pruner, options.n_startup_trials, problem.n_evaluations, options.percentile)
    return study


def hopeless(study: Study) -> bool:
    """Return whether many trials have ended and all of them failed."""
    from optuna.trial import TrialState

    trials = studies.finished(study)
    return len(trials) >= MOST_FAILURES and all(trial.state == TrialState.FAIL for trial in trials)


def _run(study: Study, trial: Trial, problem: Problem, task: str) -> list[str]:
    """Run one trial and record how it ended; its errors do not stop the study. Returns the lines to print."""
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    from polyak.zoo.tuning import training

    started = time.perf_counter()
    try:
        with studies.signs_of_life(trial, task):
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
    shows = problem.options.verbose > 1 and "settings" in trial.user_attrs
    settings = setting_lines(trial.user_attrs["settings"]) if shows else []
    return [f"Trial {trial.number}: {how} ({time.perf_counter() - started:.1f} s)", *settings]


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


# -- on Ray ------------------------------------------------------------------------------------------------------------


def run_on_ray(problem: Problem, total: int) -> None:
    """Let tasks of Ray run the trials of a study until it has `total`, one trial each.

    ``options.n_jobs`` of them run at a time, or as many as the cluster has room for now. The trial of a task that died
    is queued for a retry, like those of other processes.

    Raises:
        ZooError: the cluster has no room for one; or a task could not begin.
        KeyboardInterrupt: after all tasks have ended.
    """
    from polyak.distributed.placement import Reservation, room, wait_for_room
    from polyak.distributed.ray_workers import session

    options = problem.options
    each = Reservation(options.num_cpus_per_trial, options.num_gpus_per_trial)
    with session() as ray:
        with usage_errors("--ray"):
            wait_for_room(ray, each, 1, "trials at a time")
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        at_once = options.n_jobs if options.n_jobs > 1 else min(room(each, nodes, ray.available_resources())[1], total)
        asked = replace(options, storage=_seen_from_anywhere(problem.storage), n_jobs=max(at_once, 2))
        remote = ray.remote(max_retries=0, scheduling_strategy="SPREAD", **each.options())(_in_a_task)
        _follow(ray, partial(remote.remote, asked, total, os.getcwd()), open_study(problem), total, at_once)


def _follow(ray: Any, begin: Callable[[int, str], Any], study: Study, total: int, at_once: int) -> None:
    """Begin tasks while trials are needed, print the result of each, and retry the trials of lost ones."""
    command, begun, is_full = uuid4().hex[:8], 0, False
    tasks: dict[Any, str] = {}
    try:
        while True:
            wanted = 0 if is_full or hopeless(study) else min(at_once, total - len(studies.finished(study)))
            while len(tasks) < wanted:
                name = f"{command}-{begun}"
                tasks[begin(begun, name)], begun = name, begun + 1
            if not tasks:
                return
            for reference in ray.wait(list(tasks), num_returns=1)[0]:
                name = tasks.pop(reference)
                said = _result(ray, reference, study, name)
                is_full = said is None
                print("\n".join(said or []), end="\n" if said else "", flush=True)
    except KeyboardInterrupt:
        for reference in tasks:
            ray.cancel(reference)
        ray.wait(list(tasks), num_returns=len(tasks), timeout=60)
        for name in tasks.values():
            studies.reclaim(study, name)
        raise


def _result(ray: Any, reference: Any, study: Study, name: str) -> list[str] | None:
    """Return a task's lines about its trial; ``None`` if the study had no room for one."""
    try:
        found: list[str] | None = ray.get(reference)
        return found
    except ray.exceptions.RayTaskError as error:  # an error of the command, not of a trial
        raise ZooError(f"a trial could not begin on Ray: {error.cause}") from error
    except ray.exceptions.RayError as error:
        lost = studies.reclaim(study, name)
        return [f"{lost} trial(s) lost with a process on Ray: {str(error).strip().partition(chr(10))[0]}"]


def _in_a_task(options: TuneOptions, total: int, folder: str, number: int, name: str) -> list[str] | None:
    """Run one trial, in a process of Ray; returns the lines to print, or ``None`` if the study has no room for one."""
    from polyak.learning.engine.threads import chosen_threads

    if not options.working_dir and os.path.isdir(folder):  # paths are relative to it; Ray sets it for a working_dir
        os.chdir(folder)
    studies.need_optuna()
    with chosen_threads(options.num_threads):
        problem = Problem.build(options)
        said = _try_one(open_study(problem), problem, total, number, name)
        return said if said is None or options.verbose > 0 else []


def _seen_from_anywhere(storage: str) -> str:
    """The path of a journal, or the URL of a database, from whatever folder."""
    scheme, found, path = storage.partition(":///")
    if not found:
        return storage if "://" in storage else os.path.abspath(storage)
    return f"{scheme}:///{os.path.abspath(path)}" if scheme.startswith("sqlite") else storage
