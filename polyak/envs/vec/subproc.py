"""A VecEnv whose environments run in worker processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.gym_batch import check_env_fns
from polyak.envs.sizes import MOST_PROCESSES, check_size
from polyak.envs.spaces import dict_to_obs
from polyak.envs.state import EnvStateError
from polyak.envs.validation import check_same_spaces
from polyak.envs.vec import env_worker
from polyak.envs.vec.env_worker import Assignment, EnvBlock, WorkerError, run_worker
from polyak.envs.vec.info_codec import decode_step_infos, pickled
from polyak.envs.vec.reaching import GymEnvs
from polyak.envs.vec.sending import main_imported_if_possible, packed
from polyak.envs.vec.shared_arrays import Channel, channel_ends, create_shared_arrays
from polyak.envs.vec.starting import away_from_signals, use_own_sockets
from polyak.envs.vec.vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

_UNGUARDED_MAIN = 77  # exit code of a process that found itself building a SubprocVecEnv while importing the script
_LISTEN = 1.0  # seconds between two looks at whether a silent worker is still alive
_GRACE = 5.0  # seconds that workers get to close their environments
_VIEWS_OF_SHARED_MEMORY = ("_observation_arrays", "_actions", "_rewards", "_dones", "_running", "_last_actions")


class EnvWorkerError(RuntimeError):
    """An environment in a worker process raised, died or gave no answer.

    The message holds the traceback of the worker; the original exception, where it can be sent, is ``__cause__``.
    """

    def __init__(
        self,
        message: str,
        env_index: int | None = None,
        seed: int | None = None,
        action: Any = None,
        remote_traceback: str = "",
    ):
        super().__init__(message)
        self.env_index = env_index
        """Place of the environment in the VecEnv; None if it is unknown."""
        self.seed = seed
        """Seed of its last seeded reset."""
        self.action = action
        """The environment's last action."""
        self.remote_traceback = remote_traceback
        """Traceback of the worker process, empty when it left none."""


class EnvTimeoutError(EnvWorkerError, TimeoutError):
    """A worker process gave no answer in time."""


@dataclass
class _Worker:
    """The caller's side of one worker process."""

    process: BaseProcess
    channel: Channel
    number: int
    first: int
    stop: int
    pending: int = 0
    """Answers not read yet; more than the current one after an interrupt (Ctrl-C)."""

    @property
    def indices(self) -> range:
        return range(self.first, self.stop)

    @property
    def name(self) -> str:
        envs = (
            f"environment {self.first}" if self.stop == self.first + 1 else f"environments {self.first}-{self.stop - 1}"
        )
        return f"the worker process of {envs}"

    def send(self, kind: bytes, content: bytes, deadline: float | None) -> None:
        self.channel.send(kind, content, deadline)
        self.pending += 1

    def receive(self) -> tuple[bytes, bytes]:
        message = self.channel.receive()
        self.pending -= 1
        return message


class _OwnWork:
    """The block of environments that the caller's process steps itself, commanded like a worker.

    A command is executed when its answer is read: by then the worker processes have theirs.
    """

    name = "the calling process"

    def __init__(self, block: EnvBlock, count: int):
        self.block = block
        self.first, self.stop = block.first, block.first + count
        self._command: tuple[bytes, bytes] | None = (env_worker.BUILD, b"")

    @property
    def indices(self) -> range:
        return range(self.first, self.stop)

    @property
    def pending(self) -> int:
        return 0 if self._command is None else 1

    def send(self, kind: bytes, content: bytes, deadline: float | None) -> None:
        self._command = kind, content

    def receive(self) -> tuple[bytes, Any]:
        assert self._command is not None
        # Taken before it is carried out, so that an interrupted command is not begun again.
        command, self._command = self._command, None
        return self.block.build() if command[0] == env_worker.BUILD else self.block.answer(*command)


class SubprocVecEnv(GymEnvs):
    """Runs environments in worker processes, several to a process, with arrays in shared memory.

    Useful when the environments of one process take longer to step than the message that starts them (some 30
    microseconds); for lighter ones DummyVecEnv is faster.

    With the start methods "forkserver" (the default where there is one) and "spawn" each worker imports the script
    again, so the code that makes the VecEnv must be under ``if __name__ == "__main__":``.

    Each worker process has its own streams of Python's, numpy's and torch's global random numbers, with every start
    method; a seeded reset seeds them, too.

    After an error in ``step`` or ``reset`` the workers are closed. An error in ``env_method`` and its like leaves
    them running.

    Args:
        env_fns: functions that each make one environment; sent to the workers with cloudpickle.
        start_method: "fork", "forkserver" or "spawn"; None for "forkserver", else "spawn". "fork" starts fastest but
            is not safe with threads (torch's, a renderer's) in the parent.
        n_workers: how many processes share the environments, at most one per environment, and 1,024; None for the
            number of CPUs. Give ``len(env_fns)`` when two environments cannot live in one process.
        step_in_caller: the calling process is one of the ``n_workers``, and steps the first block of environments while
            the others step theirs. Fastest where the CPUs are few (with two, by a tenth to a half), but those
            environments are not apart from the training: a crash of one ends it, ``timeout`` does not apply to them,
            and they share its working directory, threads, GPU context and global random generators.
        timeout: seconds that a step, reset or call may take before it is an error; None waits for ever. A worker
            that died is found at once.
        start_timeout: the same for importing and building the environments.

    Raises:
        ValueError: for an unknown start method, ``n_workers`` below 1 or above 1,024, no ``env_fns``, or environments
            with different spaces.
        EnvWorkerError: when an environment raises or its process dies, also from every other method. It names the
            environment, its last seed and action, and carries the traceback.
        EnvTimeoutError: when there is no answer in time.
    """

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gym.Env]],
        start_method: str | None = None,
        *,
        n_workers: int | None = None,
        step_in_caller: bool = False,
        timeout: float | None = 60.0,
        start_timeout: float | None = 300.0,
    ):
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # The parent reads the exit code and explains; continuing would print a long traceback from each worker.
            os._exit(_UNGUARDED_MAIN)
        check_env_fns(env_fns)
        fns = list(env_fns)
        if not fns:
            raise ValueError("env_fns must hold at least one function that returns an environment, got none.")
        for name, value in (("timeout", timeout), ("start_timeout", start_timeout)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be positive seconds or None (wait for ever), got {value}.")
        if start_method is None:
            start_method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(start_method)
        if start_method != "fork":
            resource_tracker.ensure_running()  # starting it later would unblock signals
            use_own_sockets()

        self.waiting = False
        self.closed = False
        self.timeout = timeout
        self._start_timeout = start_timeout
        self._last_seeds: list[int | None] = [None] * len(fns)
        self._last_actions: Sequence[Any] | np.ndarray | None = None
        self._workers: list[_Worker | _OwnWork] = []
        # Also runs when the VecEnv is collected without close() and at interpreter exit.
        self._stop = weakref.finalize(self, _stop_workers, self._workers, os.getpid())
        try:
            self._start(fns, start_method, context, _worker_count(n_workers, len(fns)), step_in_caller)
            super().__init__(len(fns), *self._share_memory(len(fns)))
        except BaseException:
            self.close()
            raise

    # --- start ---

    def _start(
        self, fns: list[Callable[[], gym.Env]], start_method: str, context: Any, count: int, step_in_caller: bool
    ) -> None:
        self._start_method = start_method
        self.processes: list[BaseProcess] = []
        self.remotes: list[Channel] = []
        bounds = np.linspace(0, len(fns), count + 1).astype(int).tolist()
        jobs = [
            Assignment(fns[first:stop], first, number, len(fns), count)
            for number, (first, stop) in enumerate(itertools.pairwise(bounds))
        ]
        for job in jobs[1:] if step_in_caller else jobs:
            self._start_worker(job, start_method, context)
        if step_in_caller:
            # After the others, so that all build at the same time; before them in the order of the environments.
            self._workers.insert(0, _OwnWork(EnvBlock(jobs[0], encode=None), len(jobs[0].env_fns)))

    def _start_worker(self, job: Assignment, start_method: str, context: Any) -> None:
        first, stop, forked = job.first, job.first + len(job.env_fns), start_method == "fork"
        if not forked:
            job.env_fns = packed(job.env_fns, "env_fns", first)
        ours, theirs = channel_ends()
        # A fork inherits our ends of all channels; kept open there, a worker would not notice our end.
        taken = [end for channel in self.remotes for end in (channel.incoming, channel.outgoing)]
        process = context.Process(
            target=run_worker,
            args=(theirs, [*taken, *ours] if forked else [], job),
            name=f"polyak-env-worker-{job.number}",
            daemon=True,
        )
        try:
            with main_imported_if_possible(), away_from_signals():
                process.start()
        except (EOFError, ConnectionError) as error:
            # The fork server imports the script too, and ended there.
            for end in ours:
                end.close()
            cause = "If the fork server printed an error above, that is the cause."
            raise RuntimeError(f"{_unguarded_message(start_method)} {cause}") from error
        finally:
            for end in theirs:
                end.close()
        waits = [seconds for seconds in (self.timeout, self._start_timeout) if seconds is not None]
        channel = Channel(*ours, patience=min([_LISTEN, *waits]))
        # It answers when the environments are built, and again when it has mapped the shared memory.
        self._workers.append(_Worker(process, channel, job.number, first, stop, pending=2))
        self.processes.append(process)
        self.remotes.append(channel)

    def _share_memory(self, num_envs: int) -> tuple[spaces.Space, spaces.Space]:
        answers = self._collect("building the environments", self._start_timeout)
        described = [pair for answer in answers for pair in pickle.loads(answer)[0]]
        self.metadata = pickle.loads(answers[0])[1]
        observation_space, action_space = described[0]
        check_same_spaces(described)
        layout = env_worker.shared_layout(observation_space, action_space, num_envs, len(self._workers))
        arrays = create_shared_arrays(layout, self.remotes)
        own = self._workers[0]
        if isinstance(own, _OwnWork):
            own.block.attach(arrays)
        self._collect("mapping shared memory", self._start_timeout, self._processes())
        self._observation_arrays = env_worker.observation_arrays(arrays)
        self._actions = arrays.get(env_worker.ACTIONS)
        self._rewards, self._dones = arrays[env_worker.REWARDS], arrays[env_worker.DONES]
        self._running = arrays[env_worker.RUNNING]
        self._running[:] = env_worker.NOWHERE
        return observation_space, action_space

    def _processes(self) -> list[_Worker | _OwnWork]:
        return [worker for worker in self._workers if isinstance(worker, _Worker)]

    # --- stepping ---

    def reset(self) -> VecEnvObs:
        self._make_ready("reset()")
        self.resets += 1
        for index, seed in enumerate(self._seeds):
            if seed is not None:
                self._last_seeds[index] = seed
        self._last_actions = None
        plain = not any(self._options) and all(seed is None for seed in self._seeds)
        for worker in self._workers:
            block = slice(worker.first, worker.stop)
            content = b"" if plain else pickled((self._seeds[block], self._options[block]))
            self._send(worker, env_worker.RESET, content)
        answers = self._collect_or_close("reset()")
        for worker, answer in zip(self._workers, answers, strict=True):
            infos = pickle.loads(answer) if answer else [{} for _ in worker.indices]
            self.reset_infos[worker.first : worker.stop] = infos
        self._reset_seeds()
        self._reset_options()
        return self._observations()

    def step_async(self, actions: np.ndarray) -> None:
        self._make_ready("step_async()")
        actions = self._batch_of_actions(actions)
        shared = self._actions
        if shared is not None and _fits(actions, shared):
            shared[:] = actions
            self._last_actions = shared
            for worker in self._workers:
                self._send(worker, env_worker.STEP)
        else:
            # Other types reach the environments as they are, as with DummyVecEnv.
            self._last_actions = actions
            for worker in self._workers:
                block = [actions[index] for index in worker.indices]
                self._send(worker, env_worker.STEP_WITH, pickled(block))
        self.waiting = True

    def step_wait(self) -> VecEnvStepReturn:
        if not self.waiting:
            self._check_open("step_wait()")
            raise RuntimeError("step_wait() was called without step_async() before it.")
        self.waiting = False
        answers = self._collect_or_close("step()")
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        for answer in answers:
            if answer:
                for index, info, reset_info in decode_step_infos(answer) if isinstance(answer, bytes) else answer:
                    infos[index] = info
                    if reset_info is not None:
                        self.reset_infos[index] = reset_info
        return self._observations(), self._rewards.copy(), self._dones.copy(), infos

    def _observations(self) -> VecEnvObs:
        # A copy: the workers write the next observations to the same memory.
        copies = {key: array.copy() for key, array in self._observation_arrays.items()}
        return dict_to_obs(self.observation_space, copies)

    def _call(self, what: str, argument: Any, indices: VecEnvIndices) -> list[Any]:
        self._make_ready(what + "()")
        chosen = _as_list(indices, len(self._last_seeds))
        content_of: dict[int, list[int]] = {}
        for index in chosen:
            content_of.setdefault(self._owner(index), []).append(index)
        asked = [self._workers[number] for number in content_of]
        for worker, mine in zip(asked, content_of.values(), strict=True):
            places = [index - worker.first for index in mine]
            self._send(worker, env_worker.CALL, pickled((what, places, argument)))
        try:
            answers = self._collect(what + "()", self.timeout, asked)
        except EnvWorkerError as error:
            if not error.remote_traceback:
                self.close()  # dead or hanging
            elif isinstance(error.__cause__, AttributeError):
                raise AttributeError(str(error)) from error.__cause__
            elif isinstance(error.__cause__, EnvStateError):
                raise EnvStateError(str(error.__cause__)) from error
            raise
        results: dict[int, list[Any]] = {}
        for mine, answer in zip(content_of.values(), answers, strict=True):
            for index, result in zip(mine, pickle.loads(answer), strict=True):
                results.setdefault(index, []).append(result)
        # An index may occur more than once.
        return [results[index].pop(0) for index in chosen]

    def _owner(self, index: int) -> int:
        return next(number for number, worker in enumerate(self._workers) if index < worker.stop)

    # --- talking to the workers ---

    def _check_open(self, doing: str) -> None:
        if self.closed:
            raise RuntimeError(f"{doing} was called after the SubprocVecEnv was closed. Make a new one.")

    def _make_ready(self, doing: str) -> None:
        self._check_open(doing)
        if self.waiting:
            raise RuntimeError(f"{doing} was called while a step is under way. Call step_wait() first.")
        for worker in self._workers:
            # An interrupted call left answers behind, which belong to no call.
            while worker.pending:
                self._collect_or_close("an interrupted call", [worker])

    def _send(self, worker: _Worker | _OwnWork, kind: bytes, content: bytes = b"") -> None:
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        try:
            worker.send(kind, content, deadline)
        except (ConnectionError, TimeoutError) as error:
            assert isinstance(worker, _Worker)
            failure = self._died(worker, "between two calls")
            self.close()
            raise failure from error

    def _collect_or_close(self, doing: str, workers: Sequence[_Worker | _OwnWork] | None = None) -> list[bytes]:
        try:
            return self._collect(doing, self.timeout, workers)
        except Exception:
            self.close()
            raise

    def _collect(
        self, doing: str, timeout: float | None, workers: Sequence[_Worker | _OwnWork] | None = None
    ) -> list[bytes]:
        """Returns one answer of each worker; raises the first failure after all that can answer have done so."""
        deadline = None if timeout is None else time.monotonic() + timeout
        answers, failures = [], []
        for worker in self._workers if workers is None else workers:
            kind, content = self._receive(worker, doing, deadline) if isinstance(worker, _Worker) else worker.receive()
            answers.append(content)
            if kind == env_worker.FAILED:
                failures.append(pickle.loads(content))
        if failures:
            raise self._remote_error(failures[0])
        return answers

    def _receive(self, worker: _Worker, doing: str, deadline: float | None) -> tuple[bytes, bytes]:
        while True:
            try:
                return worker.receive()
            except TimeoutError:
                if not worker.process.is_alive():
                    raise self._died(worker, doing) from None
                if deadline is not None and time.monotonic() > deadline:
                    raise self._hung(worker, doing) from None
            except EOFError:
                raise self._died(worker, doing) from None

    # --- errors ---

    def _remote_error(self, failure: WorkerError) -> EnvWorkerError:
        index = failure.index
        source = "A worker process" if index is None else f"Environment {index}"
        error = EnvWorkerError(
            f"{source} raised {failure.doing}: {failure.summary.splitlines()[0]}\n{self._circumstances(index)}"
            f"\n\n--- traceback of the worker process ---\n{failure.text}",
            index,
            *self._last_of(index),
            remote_traceback=failure.text,
        )
        if failure.error is not None:
            error.__cause__ = pickle.loads(failure.error)
        return error

    def _died(self, worker: _Worker, doing: str) -> Exception:
        worker.process.join(1.0)
        code = worker.process.exitcode
        if code == _UNGUARDED_MAIN:
            return RuntimeError(_unguarded_message(self._start_method))
        index = self._running_in(worker)
        name = worker.name if index is None else f"{worker.name}, which was running environment {index},"
        hint = ""
        if code == -getattr(signal, "SIGKILL", 9):
            hint = " The system kills processes like this when memory runs out."
        elif code == -getattr(signal, "SIGBUS", 7):
            hint = " The system ends processes like this when shared memory runs out."
        return EnvWorkerError(
            f"{name[0].upper()}{name[1:]} died during {doing}: {_exit_text(code)}.{hint}\n{self._circumstances(index)}",
            index,
            *self._last_of(index),
        )

    def _hung(self, worker: _Worker, doing: str) -> EnvTimeoutError:
        worker.process.kill()  # it would not answer a command to close
        index = self._running_in(worker)
        name = worker.name if index is None else f"environment {index}"
        limit = "timeout" if hasattr(self, "_running") else "start_timeout"
        seconds = self.timeout if hasattr(self, "_running") else self._start_timeout
        return EnvTimeoutError(
            f"{name[0].upper()}{name[1:]} gave no answer to {doing} within {limit}={seconds} seconds and was ended. "
            f"Raise {limit} (None waits for ever) if it is only slow.\n{self._circumstances(index)}",
            index,
            *self._last_of(index),
        )

    def _running_in(self, worker: _Worker) -> int | None:
        if worker.stop == worker.first + 1:
            return worker.first
        if not hasattr(self, "_running"):
            return None
        index = int(self._running[worker.number])
        return None if index == env_worker.NOWHERE else index

    def _last_of(self, index: int | None) -> tuple[int | None, Any]:
        if index is None:
            return None, None
        action = None if self._last_actions is None else self._last_actions[index]
        return self._last_seeds[index], action.copy() if isinstance(action, np.ndarray) else action

    def _circumstances(self, index: int | None) -> str:
        if index is None:
            return "It is not known which of its environments is at fault; n_workers=len(env_fns) would show it."
        seed, action = self._last_of(index)
        return f"Environment {index}: last seed {seed}, last action {action!r}."

    # --- end ---

    def close(self) -> None:
        """Close the environments and end the workers; those that do not end in 5 seconds are killed."""
        self.closed = True
        self.waiting = False
        self._stop()
        for name in _VIEWS_OF_SHARED_MEMORY:  # deleting the last of them frees the block
            self.__dict__.pop(name, None)


def _stop_workers(workers: list[_Worker | _OwnWork], owner: int) -> None:
    """End all workers: send CLOSE, wait, kill. It must not refer to the VecEnv, whose finalizer it is."""
    if os.getpid() != owner:
        return  # a fork of the owner: the workers are not its own
    processes = [worker for worker in workers if isinstance(worker, _Worker)]
    for worker in processes:
        try:
            worker.channel.send(env_worker.CLOSE)
            # Answers are not read any more: a worker in the middle of a long one is freed by this.
            worker.channel.incoming.shutdown(socket.SHUT_RD)
        except OSError:
            pass  # it has exited already
    for own in workers:
        if isinstance(own, _OwnWork):
            own.block.close()
    deadline = time.monotonic() + _GRACE
    for worker in processes:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        for end in (worker.process.terminate, worker.process.kill):
            if worker.process.is_alive():
                end()
                worker.process.join(1.0)
        worker.channel.close()
    workers.clear()  # frees the environments of the calling process and their part of the shared memory


# --- small parts ----------------------------------------------------------------------------------------------------


def _worker_count(n_workers: int | None, num_envs: int) -> int:
    if n_workers is None:
        n_workers = _available_cpus()
    elif n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, got {n_workers}. None takes the number of CPUs.")
    count = min(n_workers, num_envs)
    check_size("n_workers", count, MOST_PROCESSES)
    return count


def _available_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _fits(actions: Any, shared: np.ndarray) -> bool:
    """Whether the shared array can hold these actions as they are; whole numbers may get more bits."""
    if not isinstance(actions, np.ndarray) or actions.shape != shared.shape:
        return False
    if actions.dtype == shared.dtype:
        return True
    return actions.dtype.kind in "iu" and shared.dtype.kind in "iu" and np.can_cast(actions.dtype, shared.dtype)


def _as_list(indices: VecEnvIndices, num_envs: int) -> list[int]:
    if indices is None:
        return list(range(num_envs))
    wanted = [int(indices)] if isinstance(indices, (int, np.integer)) else [int(index) for index in indices]
    for index in wanted:
        if not -num_envs <= index < num_envs:
            raise IndexError(f"indices must lie between 0 and {num_envs - 1} (num_envs - 1), got {index}.")
    return [index % num_envs for index in wanted]


def _exit_text(code: int | None) -> str:
    if code is None:
        return "its channel closed"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _unguarded_message(start_method: str) -> str:
    script = getattr(sys.modules.get("__main__"), "__file__", None) or "the main script"
    return (
        f"SubprocVecEnv(start_method={start_method!r}) imports {script} again in each worker process, and the script "
        'makes the SubprocVecEnv at its top level. Fix: move that code under `if __name__ == "__main__":`.'
    )
