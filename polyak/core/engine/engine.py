"""How a learner's gradient steps are run: in which precision, and when as compiled programs.

The choice depends on the run alone, never on the clock: two runs with the same seed and settings make the same
numbers, also when the first of them had to compile.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.core.engine.arithmetic import flops
from polyak.core.engine.cuda_program import CudaProgram
from polyak.core.engine.nesting import layout, tensors_of
from polyak.core.engine.optimizer_rules import UnsteppedError, UntraceableError
from polyak.core.engine.program import Program
from polyak.core.learner import Learner

WORTHWHILE_SECONDS = 5.0
"""Nominal time that a program must save in a run to be made: building it takes as long, or several times that, once."""
TENSOR_SECONDS = 4e-5
"""Nominal time that a program saves in each gradient step for each parameter that the step reads."""
NUMBER_SECONDS = 6e-9
"""The same for each number observed: pictures pass through memory less often where operations are joined."""
PROGRAMS: dict[str, type[Program]] = {"cpu": Program, "cuda": CudaProgram}
"""What a gradient step becomes, by the type of the learner's device."""
MOST_LAYOUTS = 8
"""Batch layouts that are compiled; any further ones run uncompiled."""


class Engine:
    """Decides for one learner, and keeps its programs.

    Args:
        learner: whose methods named in ``graphs`` it takes over.
        mode: True compiles; ``"auto"`` does so for long runs of networks made of torch's and polyak's modules; False
            never does.
    """

    def __init__(self, learner: Learner, mode: bool | str) -> None:
        self.learner, self.mode = learner, mode
        self.status = "uncompiled"
        """What was decided, in words."""
        self.methods = [name for name in learner.graphs if hasattr(type(learner), name)]
        """Those methods of the learner that it takes over, if there is anything to do."""
        self.learned = False
        """Whether one of them has run where gradients are taken."""
        self._compiles = mode is True
        for name in self.methods if mode or learner.precision != "float32" else ():
            setattr(learner, name, _Step(self, name))

    def expect(self, updates: int, rows: int) -> None:
        """Prepare for a run of so many gradient steps over so many rows each; a decision to compile is never taken
        back."""
        if self.mode != "auto" or self._compiles:
            return
        observed = rows * spaces.flatdim(self.learner.policy.observation_space)
        saved = updates * (TENSOR_SECONDS * len(list(self.learner.parameters())) + NUMBER_SECONDS * observed)
        if saved < WORTHWHILE_SECONDS:
            self.status = "uncompiled: the run is short"
        elif (strange := _strange_module(self.learner)) is not None:
            self.status = (
                f"uncompiled: {strange} may hold Python code that a program would freeze (compile=True if not)"
            )
        else:
            self._compiles = True

    def flops(self, batch_size: int) -> float:
        """Floating-point operations of a gradient step, roughly."""
        return flops(self.learner, batch_size)

    @property
    def compiles(self) -> bool:
        """Whether methods run as programs where they can."""
        return self._compiles and self.learner.sync_gradients is None

    def give_up(self, error: Exception) -> None:
        """Stay uncompiled, after an attempt that failed.

        Raises:
            RuntimeError: the user asked for compilation.
        """
        self._compiles = False
        self.status = f"uncompiled: {error}"
        if self.mode is True:
            raise RuntimeError(
                f"compile=True, but the gradient step could not be compiled: {error}. Use compile='auto' or False."
            ) from error


class _Step:
    """One method of a learner: the method itself, or its program for the layout of the batch at hand."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine, self._name = engine, name
        self._programs: dict[Any, Program | None] = {}

    def __call__(self, batch: Any, *static: Any) -> Mapping[str, Tensor]:
        engine = self._engine
        engine.learned |= torch.is_grad_enabled()
        if not engine.compiles:
            return engine.learner.forward(self._name, batch, *static)
        leaves = tensors_of(batch)
        key = (layout(leaves), static)
        program = self._programs.get(key)
        if program is None or not (program.current or program.rebind()):
            program = self._make(key, batch, static)
        return engine.learner.forward(self._name, batch, *static) if program is None else program(leaves)

    def _make(self, key: Any, batch: Any, static: tuple[Any, ...]) -> Program | None:
        if key in self._programs and self._programs[key] is None:
            return None
        if key not in self._programs and len(self._programs) >= MOST_LAYOUTS:
            return None
        learner = self._engine.learner
        try:
            program = _kind_of_program(learner, batch)(learner, self._name, batch, static)
            program.compile()
        except UnsteppedError:
            return None
        except Exception as error:
            self._programs[key] = None
            self._engine.give_up(error)
            return None
        self._programs[key] = program
        self._engine.status = program.status
        return program

    def __deepcopy__(self, memo: dict[int, Any]) -> _Step:
        duplicate = copy.copy(self)
        memo[id(self)] = duplicate
        duplicate._engine = copy.deepcopy(self._engine, memo)
        duplicate._programs = {}
        return duplicate

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_programs": {}}


def _kind_of_program(learner: Learner, batch: Any) -> type[Program]:
    """What runs the learner's steps where it is.

    Raises:
        UntraceableError: nothing does, or the batch is elsewhere.
    """
    devices = {tensor.device for tensor in (*tensors_of(batch), *learner.parameters())}
    if len(devices) > 1:
        raise UntraceableError(f"learner and batch are not on one device: {sorted(map(str, devices))}")
    kind = devices.pop().type
    if kind not in PROGRAMS:
        raise UntraceableError(f"programs run on {' and '.join(PROGRAMS)} devices, and the learner is on {kind}")
    return PROGRAMS[kind]


def _strange_module(learner: torch.nn.Module) -> str | None:
    """The name of a module's class that is neither torch's nor ours, or of one with hooks; None if there is none."""
    for module in learner.modules():
        cls = type(module)
        if not cls.__module__.startswith(("torch.nn.", "polyak.")):
            return cls.__qualname__
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            return f"a hook on {cls.__qualname__}"
    return None
