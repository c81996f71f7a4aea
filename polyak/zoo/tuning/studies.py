"""Storage of trials, how they are counted, and how those of a killed process are resumed.

A trial counts when it ended (as complete, pruned or failed), runs or waits. It does not count when its process died:
it is failed, marked *lost*, and its settings wait to be tried again. So a study that is killed and started again ends
with as many counted trials as one that was left alone.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from polyak.writing import is_running
from polyak.zoo.errors import ZooError

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

SIGN_OF_LIFE = 20.0
"""Seconds between two signs of life of a running trial."""
GIVEN_UP = 240.0
"""Seconds without one after which its process is taken for dead, wherever it ran."""
MOST_RETRIES = 2
"""Retries of a trial whose process died: one that exhausts the memory would die each time."""

_WORKER, _LOST, _SURPLUS, _RETRIES, _REASON = "worker", "lost", "surplus", "retries", "reason"
_DATABASES = ("sqlite", "mysql", "postgresql", "mssql", "oracle")


def need_optuna() -> None:
    """Raise ImportError naming the extra if Optuna or its samplers' packages are missing."""
    try:
        import cmaes  # noqa: F401
        import optuna
        import scipy  # noqa: F401
    except ImportError as error:
        raise ImportError(f"Tuning needs optuna, cmaes and scipy: pip install 'polyak[tune]' ({error}).") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # which parameters a sampler draws by themselves is no news


# -- storage -----------------------------------------------------------------------------------------------------------


def open_storage(text: str) -> BaseStorage:
    """Open a database by its URL, or a journal by its path (made if missing).

    Raises:
        ZooError: a kind of database that is not supported, or one that does not answer; a journal that is broken.
    """
    from optuna.storages import JournalStorage, RDBStorage
    from optuna.storages.journal import JournalFileBackend

    if "://" in text:
        if text.partition("://")[0].partition("+")[0] not in _DATABASES:
            raise ZooError(
                f"--storage {without_password(text)!r} is not the URL of a database that can hold a study. Give "
                f"the path of a journal file, or a URL that begins with {', '.join(_DATABASES)} and ://."
            )
        try:
            return RDBStorage(text, engine_kwargs={"connect_args": {"timeout": 60}} if "sqlite" in text else None)
        except Exception as error:
            first_line = str(error).strip().split("\n")[0]
            raise ZooError(f"--storage {without_password(text)!r} cannot be opened: {first_line}") from error
    path = Path(text)
    if path.exists() and not path.is_file():
        raise ZooError(f"--storage {text!r} is a folder, a pipe or a device. Give the path of a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _journal_lock(text)
        _mend(path, lock)
        return JournalStorage(JournalFileBackend(text, lock_obj=lock))
    except OSError as error:
        raise ZooError(f"--storage {text!r} cannot be opened: {error.strerror or error}.") from error
    except Exception as error:  # whatever Optuna's replay makes of entries that it did not write
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ZooError(
            f"--storage {text!r} is not a journal of Optuna: {reason}. Give the path of another file."
        ) from error


def without_password(url: str) -> str:
    """Leave the password out of a URL."""
    scheme, _, rest = url.partition("://")
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}:***@{place}" if at and ":" in login else url


def _journal_lock(text: str) -> Any:
    from optuna.storages import journal

    return journal.JournalFileOpenLock(text) if sys.platform == "win32" else journal.JournalFileSymlinkLock(text)


def _mend(path: Path, lock: Any) -> None:
    """Cut off the half line that a machine which went down in the middle of writing has left at a journal's end."""
    if not path.exists():
        return
    lock.acquire()
    try:
        with path.open("rb+") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            if content and "op_code" not in json.loads(content[:whole].partition(b"\n")[0] or b"{}"):
                raise ValueError("its first line is no entry")
            if whole < len(content):
                file.truncate(whole)
    finally:
        lock.release()


def open_study(storage: BaseStorage, name: str, asked: dict[str, Any]) -> Study:
    """Make the study `name`, or continue it if its options are the same.

    Args:
        storage: the storage of the study.
        name: name of the study.
        asked: the options that all its trials share, as plain data; stored with the study.

    Raises:
        ZooError: the existing study has other options.
    """
    import optuna

    study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
    before = study.user_attrs
    for key, value in asked.items():
        if key in before and before[key] != value:
            raise ZooError(
                f"The study {name!r} was begun with {key} {before[key]!r}, not {value!r}. Ask for the same to continue "
                "with it, or give another --study-name."
            )
    for key, value in asked.items():
        if key not in before:
            study.set_user_attr(key, value)
    return study


def load_study(storage: BaseStorage, name: str) -> Study:
    """Load a study that exists; a ZooError lists the existing ones."""
    import optuna

    try:
        return optuna.load_study(study_name=name, storage=storage)
    except KeyError:
        names = sorted(optuna.get_all_study_names(storage))
        raise ZooError(
            f"There is no study {name!r} (--study-name) in that storage. Studies there: {', '.join(names) or 'none'}."
        ) from None


# -- counting ----------------------------------------------------------------------------------------------------------


def counted(study: Study) -> list[FrozenTrial]:
    """Return the trials that count, in order."""
    return [t for t in study.get_trials(deepcopy=False) if not (t.user_attrs.get(_LOST) or t.user_attrs.get(_SURPLUS))]


def finished(study: Study) -> list[FrozenTrial]:
    """Return the trials that count and have ended."""
    return [trial for trial in counted(study) if trial.state.is_finished()]


def next_trial(study: Study, total: int) -> Trial | None:
    """Begin a trial, a waiting one if there is one; None if `total` trials count already.

    Several processes may read the same state, with one place left, and each begin a trial. Trials are numbered
    consecutively, so all agree which of them has the place; the others mark theirs as surplus and end it.
    """
    from optuna.trial import TrialState

    trials = counted(study)
    if len(trials) >= total and not any(trial.state == TrialState.WAITING for trial in trials):
        return None
    trial = study.ask()
    if sum(other.number < trial.number for other in counted(study)) < total:
        return trial
    trial.set_user_attr(_SURPLUS, True)
    study.tell(trial, state=TrialState.FAIL)
    return None


def fail(study: Study, trial: Trial, error: BaseException) -> str:
    """Mark a trial as failed and keep the reason, which is returned: one line."""
    from optuna.trial import TrialState

    lines = str(error).strip().split("\n")
    reason = f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__
    trial.set_user_attr(_REASON, reason)
    study.tell(trial, state=TrialState.FAIL)
    return reason


def first_reason(study: Study) -> str:
    """Return why the first failed trial failed; empty if none did."""
    return next((str(trial.user_attrs[_REASON]) for trial in finished(study) if _REASON in trial.user_attrs), "")


# -- trials of processes that died -------------------------------------------------------------------------------------


@contextmanager
def signs_of_life(trial: Trial, task: str = "") -> Iterator[None]:
    """While the block runs, repeatedly record in the trial the process that works at it, and its `task` of Ray."""

    def sign() -> None:
        process = {"host": socket.gethostname(), "pid": os.getpid(), "seen": time.time()}
        trial.set_user_attr(_WORKER, process | ({"task": task} if task else {}))

    def keep_signing() -> None:
        while not over.wait(SIGN_OF_LIFE):
            with suppress(Exception):  # the storage may be unavailable; the trial detects a long outage itself
                sign()

    over = Event()
    sign()
    thread = Thread(target=keep_signing, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def any_unsigned(study: Study) -> bool:
    """Whether a running trial has not recorded its process yet."""
    from optuna.trial import TrialState

    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return any(_WORKER not in trial.user_attrs for trial in running)


def reclaim(study: Study, task: str = "") -> int:
    """Queue the trials of processes that died for a retry; returns their number.

    Args:
        study: the study of the trials.
        task: a task of Ray that has died.
    """
    from optuna.trial import TrialState

    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    lost = [trial for trial in running if _is_dead(trial) or (task and _task_of(trial) == task)]
    return sum(retry(study, trial, "its process died") for trial in lost)


def retry(study: Study, trial: FrozenTrial, why: str = "") -> bool:
    """Fail a running trial, and let its settings wait to be tried again; False if another process did so before.

    If there is a reason `why` to blame its settings, it is tried again `MOST_RETRIES` times, and then counts as failed.
    """
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    storage = study._storage
    retries = trial.user_attrs.get(_RETRIES, 0)
    again = not why or retries < MOST_RETRIES
    try:
        if again:
            storage.set_trial_user_attr(trial._trial_id, _LOST, True)
        else:
            storage.set_trial_user_attr(trial._trial_id, _REASON, f"{why}, {retries + 1} times")
        if not storage.set_trial_state_values(trial._trial_id, state=TrialState.FAIL):
            return False
    except UpdateFinishedTrialError:
        return False
    if again:
        study.enqueue_trial(trial.params, user_attrs={_RETRIES: retries + bool(why)})
    return True


def _task_of(trial: FrozenTrial) -> str:
    return str(trial.user_attrs.get(_WORKER, {}).get("task", ""))


def _is_dead(trial: FrozenTrial) -> bool:
    """Whether the process of a running trial has ended, or has not been active for long."""
    worker = trial.user_attrs.get(_WORKER)
    if worker is None:  # died, or is about to sign, between its beginning and its first sign
        began = trial.datetime_start
        return began is not None and time.time() - began.timestamp() > SIGN_OF_LIFE
    if time.time() - worker["seen"] > GIVEN_UP:
        return True
    return worker["host"] == socket.gethostname() and not is_running(worker["pid"])


# -- the optimizers of CMA-ES ------------------------------------------------------------------------------------------


_ARRAYS = {
    (module, name)
    for module in ("numpy", "numpy._core.multiarray", "numpy.core.multiarray")
    for name in ("scalar", "dtype", "ndarray", "_reconstruct")
}
_OPTIMIZERS = {("cmaes._cma", "CMA"), ("cmaes._sepcma", "SepCMA"), ("cmaes._cmawm", "CMAwM")}


class _OptimizersOnly(pickle.Unpickler):
    """Finds the classes in a pickled optimizer of the package cmaes, and no others."""

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) in _OPTIMIZERS | _ARRAYS:
            return super().find_class(module, name)
        raise ZooError(
            f"The study holds a pickle that names {module}.{name}, which no optimizer of CMA-ES needs and which could "
            "run code. Do not use this study; --sampler tpe does not read the pickle."
        )


def check_optimizers(study: Study) -> None:
    """Look into the pickled optimizers that Optuna keeps with the trials of CMA-ES, before it reads them.

    Raises:
        ZooError: there is more in one than an optimizer.
    """
    for trial in study.get_trials(deepcopy=False):
        parts = {key: value for key, value in trial.system_attrs.items() if "optimizer:" in key}
        prefixes = {key.rpartition(":")[0] for key in parts}
        for prefix in prefixes:
            count = sum(key.rpartition(":")[0] == prefix for key in parts)
            text = "".join(str(parts.get(f"{prefix}:{i}", "")) for i in range(count))
            try:
                _OptimizersOnly(io.BytesIO(bytes.fromhex(text))).load()
            except ZooError:
                raise
            except Exception as error:
                raise ZooError(f"Trial {trial.number} holds a broken optimizer of CMA-ES: {error}.") from error
