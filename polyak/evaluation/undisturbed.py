"""Evaluations that do not affect training: random generators and network modes are restored afterwards.

Training draws from the global generators of python, numpy and torch, from those of its spaces and nested spaces, and
from generators that a model holds itself. :func:`undisturbed` saves all of them, and the modes of networks. All
evaluations during a training use it. Exploration (noise, the matrices of gSDE, the recurrent state) belongs to the
collecting actor, which ``predict`` does not change.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from polyak.seeding import derived_seed, random_states_kept, set_random_seed

_learner: ContextVar[Any] = ContextVar("learner", default=None)
_is_watched: ContextVar[bool] = ContextVar("is_watched", default=False)

Undo = Callable[[], object]


@contextmanager
def learning(model: Any) -> Iterator[None]:
    """Mark ``model`` as in training in this thread during the block, so that evaluations do not affect it."""
    token = _learner.set(model)
    try:
        yield
    finally:
        _learner.reset(token)


def learner() -> Any:
    """Returns the model in training in this thread, or None."""
    return _learner.get()


def is_exposed() -> bool:
    """Whether a model is in training in this thread and its state is not saved yet."""
    return _learner.get() is not None and not _is_watched.get()


@contextmanager
def undisturbed(model: Any = None, seed: int | None = None, owners: tuple[Any, ...] = ()) -> Iterator[None]:
    """Run the block with random numbers of its own, then restore everything that training reads.

    Args:
        model: the evaluated model or policy, or another object with ``predict``; the model whose ``learn`` is running
            is always protected.
        seed: of all generators within the block; ``None`` derives one from numpy's global generator and the number of
            environment steps, so that equal trainings have equal evaluations.
        owners: further objects with generators that training draws from, such as a vector of environments.
    """
    watched = _parts([model, _learner.get(), *owners])
    if seed is None:
        seed = derived_seed(_peeked(), int(getattr(model or _learner.get(), "num_timesteps", 0)))
    token = _is_watched.set(True)
    undo: list[Undo] = []
    try:
        with random_states_kept(*_gpus()):
            set_random_seed(seed)
            try:
                for part in watched:
                    undo += [*_kept_modes(part), *_kept_generators(part, seed), *_kept_spaces(part, seed)]
                yield
            finally:
                for step in reversed(undo):
                    step()
    finally:
        _is_watched.reset(token)


def _parts(objects: list[Any]) -> list[Any]:
    """Returns objects, and the policies, learners, searches and inner models that they hold."""
    found: dict[int, Any] = {}
    for one in objects:
        held = list(getattr(one, "__dict__", {}).values())
        for part in [one, *held]:
            if part is one or isinstance(part, nn.Module) or hasattr(type(part), "predict"):
                found.setdefault(id(part), part)
    found.pop(id(None), None)
    return list(found.values())


def _peeked() -> int:
    """Returns a number derived from the state of numpy's global generator, without changing it."""
    state: Any = np.random.get_state(legacy=True)
    peek = np.random.RandomState()
    peek.set_state(state)
    return int(peek.randint(2**31))


def _gpus() -> list[torch.device]:
    count = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    return [torch.device("cuda", i) for i in range(count)]


def _kept_modes(part: Any) -> list[Undo]:
    """Returns functions that restore the training or evaluation mode of each module of a network."""
    if not isinstance(part, nn.Module):
        return []
    modes = [(vars(module), module.training) for module in part.modules()]

    def put_back() -> None:
        for attributes, mode in modes:
            attributes["training"] = mode

    return [put_back]


def _kept_generators(part: Any, seed: int) -> Iterator[Undo]:
    """Seeds the generators of an object; yields functions that restore the state of each."""
    for value in list(getattr(part, "__dict__", {}).values()):
        if isinstance(value, np.random.Generator):
            yield _kept_stream(value)
            value.bit_generator.state = type(value.bit_generator)(seed).state
        elif isinstance(value, np.random.RandomState):
            yield partial(value.set_state, value.get_state())
            value.seed(seed)
        elif isinstance(value, random.Random):
            yield partial(value.setstate, value.getstate())
            value.seed(seed)
        elif isinstance(value, torch.Generator):
            yield partial(value.set_state, value.get_state())
            value.manual_seed(seed)


def _kept_stream(generator: np.random.Generator) -> Undo:
    state = generator.bit_generator.state

    def put_back() -> None:
        generator.bit_generator.state = state

    return put_back


def _kept_spaces(part: Any, seed: int) -> Iterator[Undo]:
    """Seeds the spaces of an object, nested ones included; yields functions that restore their generators."""
    for name in ("action_space", "observation_space"):
        space = getattr(part, "__dict__", {}).get(name)
        if isinstance(space, gym.Space):
            yield from [_kept_space(one) for one in _within(space)]
            space.seed(seed)


def _kept_space(space: gym.Space) -> Undo:
    generator = space._np_random  # None before the first draw
    rewind = None if generator is None else _kept_stream(generator)

    def put_back() -> None:
        space._np_random = generator  # seeding replaces it
        if rewind is not None:
            rewind()

    return put_back


def _within(space: gym.Space) -> Iterator[gym.Space]:
    """Yields a space and all its nested spaces."""
    yield space
    for value in vars(space).values():
        parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else (value,)
        for part in parts:
            if isinstance(part, gym.Space):
                yield from _within(part)
