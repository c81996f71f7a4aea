"""The worker process of a SubprocVecEnv: runs a block of environments and answers the caller's commands.

Observations, rewards, dones and actions are in shared memory; the channel only wakes the other side and carries
everything that is not an array: infos with content, seeds, attributes, errors.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.connection
import os
import pickle
import random
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.gym_batch import EnvSlot, build_env
from polyak.envs.spaces import obs_space_info, own_actions
from polyak.envs.vec.info_codec import StepInfo, encode_step_infos, pickled
from polyak.envs.vec.reaching import CALLS
from polyak.envs.vec.shared_arrays import Channel, Layout, receive_shared_arrays
from polyak.envs.vec.starting import leave_to_parent

# Commands of the caller.
BUILD = b"b"  # a worker process does this without a command
STEP = b"s"  # actions in shared memory
STEP_WITH = b"S"  # pickled list of actions
RESET = b"r"  # empty, or pickled (seeds, options)
CALL = b"c"  # pickled (name, slots, argument)
CLOSE = b"x"
# Answers of the worker.
DONE = b"d"  # empty, or pickled content
FAILED = b"f"  # pickled Failure

ACTIONS, REWARDS, DONES, RUNNING = "actions", "rewards", "dones", "running"
NOWHERE = -1
"""Value of ``running[worker]`` while the worker runs none of its environments."""


def shared_layout(
    observation_space: spaces.Space, action_space: spaces.Space, num_envs: int, num_workers: int
) -> Layout:
    """The arrays that parent and workers share: one of observations per key, actions, rewards, dones, running places.

    There is no array of actions when they are not arrays (Dict, Tuple): those are pickled.
    """
    keys, shapes, dtypes = obs_space_info(observation_space)
    layout: dict[Hashable, tuple[tuple[int, ...], np.dtype]] = {}
    for key in keys:
        layout[("observation", key)] = ((num_envs, *shapes[key]), dtypes[key])
    if isinstance(action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        layout[ACTIONS] = ((num_envs, *(action_space.shape or ())), np.dtype(action_space.dtype))
    layout[REWARDS] = ((num_envs,), np.dtype(np.float32))
    layout[DONES] = ((num_envs,), np.dtype(bool))
    layout[RUNNING] = ((num_workers,), np.dtype(np.int64))
    return layout


def observation_arrays(arrays: dict[Hashable, np.ndarray]) -> dict[Any, np.ndarray]:
    """The observation arrays of a shared block, by the key they have in the space."""
    return {name[1]: array for name, array in arrays.items() if isinstance(name, tuple)}


@dataclass
class WorkerError:
    """An exception in a worker, as it travels to the parent."""

    index: int | None
    """The environment, None when it is none in particular."""
    doing: str
    summary: str
    text: str
    """The full traceback."""
    error: bytes | None
    """The exception, pickled; None when it cannot be."""

    @classmethod
    def of(cls, error: BaseException, index: int | None, doing: str) -> WorkerError:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        try:
            carried = pickled(error)
            pickle.loads(carried)  # some exceptions pickle but cannot be rebuilt
        except Exception:
            carried = None
        return cls(index, doing, summary, text, carried)


@dataclass
class Assignment:
    """The work of one worker."""

    env_fns: Sequence[Callable[[], gym.Env]] | bytes
    """The factories; pickled with cloudpickle unless the worker is a fork."""
    first: int
    """Index of its first environment."""
    number: int
    """The worker's number."""
    num_envs: int
    num_workers: int


def run_worker(
    ends: tuple[socket.socket, socket.socket], foreign_ends: Sequence[socket.socket], assignment: Assignment
) -> None:
    """Entry point of the worker process; returns at the parent's command or when the parent has exited.

    Args:
        ends: the worker's sockets, incoming and outgoing.
        foreign_ends: sockets that a fork inherited and that must not be kept open here.
        assignment: the environments to run.
    """
    # The garbage of the process that was forked is not to be finalized here: its threads, for one, are not here.
    gc.freeze()
    for foreign in foreign_ends:
        foreign.close()
    leave_to_parent()
    end_with_parent()
    seed_process(None)
    channel, block = Channel(*ends), EnvBlock(assignment, reseeds=True)
    try:
        if _get_ready(channel, block):
            _serve(channel, block)
    except (EOFError, ConnectionError):
        pass  # the parent has exited
    finally:
        block.close()
        channel.close()


def _get_ready(channel: Channel, block: EnvBlock) -> bool:
    kind, content = block.build()
    channel.send(kind, content)
    if kind == FAILED:
        return False
    block.attach(receive_shared_arrays(block.layout(), channel))
    gc.freeze()  # objects made so far live as long as the process: collecting them again is wasted
    channel.send(DONE)
    return True


def _serve(channel: Channel, block: EnvBlock) -> None:
    while True:
        kind, content = channel.receive()
        if kind == CLOSE:
            return
        channel.send(*block.answer(kind, content))


def seed_process(seed: int | None) -> None:
    """Give the global generators of Python, numpy and, if it is loaded, torch a stream of this process's own.

    A process that is forked, by the fork server too, inherits their states: all workers would draw the same numbers.

    Args:
        seed: mixed into all three; None takes entropy from the operating system.
    """
    mixed = np.random.SeedSequence(seed)
    random.seed(int(mixed.generate_state(1)[0]))
    np.random.seed(mixed.generate_state(4))
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(int(mixed.generate_state(1, np.uint64)[0] >> np.uint64(1)))


def end_with_parent() -> None:
    """End this process soon after its parent died, even while an environment hangs."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    started_by = os.getppid()

    def watch() -> None:
        # Two signs: a forked sibling may keep the sentinel open; the fork server outlives the parent.
        while os.getppid() == started_by:
            if multiprocessing.connection.wait([parent.sentinel], timeout=1.0):
                break
        os._exit(1)

    threading.Thread(target=watch, name="polyak-parent-watch", daemon=True).start()


class EnvBlock:
    """Some of the environments of a SubprocVecEnv: carries out commands and answers them.

    It lives in a worker process, or, for the block that the caller's process steps itself, in that.

    Args:
        assignment: which environments.
        encode: makes bytes of the infos of a step; None hands them over as they are, to the same process.
        reseeds: a seeded reset also seeds the process's global generators, for environments that draw from them.
    """

    def __init__(
        self,
        assignment: Assignment,
        encode: Callable[[Sequence[StepInfo]], bytes] | None = encode_step_infos,
        *,
        reseeds: bool = False,
    ):
        self.assignment = assignment
        self.encode = encode
        # In the process of the caller Ctrl-C is the caller's; in a worker an environment raises it.
        self.answered: tuple[type[BaseException], ...] = (Exception, SystemExit) if encode is None else (BaseException,)
        self.reseeds = reseeds
        self.first = assignment.first
        self.envs: list[gym.Env] = []
        self.doing = ""  # the command under way, for messages

    # --- start and end ---

    def build(self) -> tuple[bytes, bytes]:
        """Build the environments and describe them: DONE and the pickled spaces and metadata, or FAILED."""
        try:
            fns = self.assignment.env_fns
            for env_fn in cloudpickle.loads(fns) if isinstance(fns, bytes) else fns:
                self.envs.append(build_env(env_fn, self.first + len(self.envs)))
            described = [(env.observation_space, env.action_space) for env in self.envs]
            return DONE, pickled((described, self.envs[0].metadata))
        except self.answered as error:
            return _failed(error, self.first + len(self.envs), "while being built")

    def layout(self) -> Layout:
        """The arrays it shares with the caller, see :func:`shared_layout`."""
        env, job = self.envs[0], self.assignment
        return shared_layout(env.observation_space, env.action_space, job.num_envs, job.num_workers)

    def attach(self, arrays: dict[Hashable, np.ndarray]) -> None:
        """Take the arrays that results are written to and actions are read from."""
        self.actions = arrays.get(ACTIONS)
        self.rewards, self.dones, self.running = arrays[REWARDS], arrays[DONES], arrays[RUNNING]
        buffers = observation_arrays(arrays)
        self.slots = [EnvSlot(self.first + place, buffers) for place in range(len(self.envs))]

    def close(self) -> None:
        """Close the environments."""
        for env in self.envs:
            try:
                env.close()
            except Exception:
                traceback.print_exc(file=sys.stderr)
        self.envs = []

    # --- commands ---

    def answer(self, kind: bytes, content: bytes) -> tuple[bytes, Any]:
        """Executes one command; returns DONE with the result, or FAILED with a pickled :class:`WorkerError`."""
        number = self.assignment.number
        try:
            if kind == STEP:
                assert self.actions is not None
                # A copy: an environment may keep its action, and the caller writes the next one here.
                return DONE, self._step(self.actions[self.first : self.first + len(self.envs)].copy())
            if kind == STEP_WITH:
                return DONE, self._step(pickle.loads(content))
            if kind == RESET:
                return DONE, self._reset(content)
            return DONE, self._call(*pickle.loads(content))
        except self.answered as error:
            index = int(self.running[number])
            return _failed(error, None if index == NOWHERE else index, f"in {self.doing}")
        finally:
            self.running[number] = NOWHERE

    def _step(self, actions: Sequence[Any] | np.ndarray) -> bytes | list[StepInfo]:
        self.doing = "step()"
        rewards, dones, running, number = self.rewards, self.dones, self.running, self.assignment.number
        news: list[StepInfo] = []
        resets: dict[int, dict[str, Any]] = {}
        own = own_actions(actions, self.envs[0].action_space)
        for slot, env, action in zip(self.slots, self.envs, own, strict=True):
            index = running[number] = slot.index
            rewards[index], done, info = slot.step(env, action, resets)
            dones[index] = done
            if done or len(info) > 1:  # "TimeLimit.truncated" alone is not sent: the caller adds it
                news.append((index, info, resets.get(index)))
        if self.encode is None:
            return news
        return self._sendable(self.encode, news) if news else b""

    def _reset(self, content: bytes) -> bytes:
        self.doing = "reset()"
        number = self.assignment.number
        seeds, options = pickle.loads(content) if content else ([None] * len(self.envs), [None] * len(self.envs))
        infos = []
        if self.reseeds and seeds[0] is not None:
            seed_process(seeds[0])
        for slot, env, seed, option in zip(self.slots, self.envs, seeds, options, strict=True):
            self.running[number] = slot.index
            infos.append(slot.reset(env, seed, option))
        return self._sendable(pickled, infos) if any(infos) else b""

    def _call(self, what: str, places: Sequence[int], argument: Any) -> bytes:
        self.doing = f"{what}({_name_of(argument)})"
        results = []
        for place in places:
            self.running[self.assignment.number] = self.first + place
            results.append(CALLS[what](self.envs[place], argument))
        try:
            return pickled(results)
        except Exception as error:
            raise TypeError(
                f"The result of {self.doing} cannot be sent to the main process: {error}. "
                "Return plain data, or use DummyVecEnv."
            ) from error

    def _sendable(self, encode: Callable[[Any], bytes], infos: list[Any]) -> bytes:
        try:
            return encode(infos)
        except Exception as error:
            self.running[self.assignment.number] = NOWHERE  # any environment may be the cause
            raise TypeError(
                f"An info dict of environments {self.first} to {self.first + len(self.envs) - 1} cannot be sent to "
                f"the main process: {error}. Put plain data into infos, or use DummyVecEnv."
            ) from error


def _failed(error: BaseException, index: int | None, doing: str) -> tuple[bytes, bytes]:
    return FAILED, pickle.dumps(WorkerError.of(error, index, doing))


def _name_of(argument: Any) -> str:
    if isinstance(argument, dict):
        return "..."
    return repr(argument[0] if isinstance(argument, tuple) else argument)
