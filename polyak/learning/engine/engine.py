"""The engine, which runs a learner's gradient steps: in which precision, and when as replayed or compiled programs.

The choice depends on the run alone, never on the clock: two runs with the same seed and settings make the same
numbers, also when the first of them had to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import torch
from gymnasium import spaces

from polyak.learning.engine.cuda_program import CudaProgram
from polyak.learning.engine.flops import flops
from polyak.learning.engine.optimizer_rules import UnsteppedError
from polyak.learning.engine.program import Program
from polyak.learning.engine.pytree import Layouts, tensors_of
from polyak.learning.engine.replay import ReplayedProgram
from polyak.learning.engine.shield import unseen_by_others
from polyak.learning.learner import Learner
from polyak.nn.backends.tracing import UntraceableError
from polyak.warning import advise

WORTHWHILE_SECONDS = 20.0
"""Nominal time that compiling must save in a run, compared to replaying: it takes about as long,
once for each machine."""
TENSOR_SECONDS = 5e-6
"""Nominal time that a compiled program saves in each gradient step for each parameter that the step reads."""
FLOP_SECONDS = 1e-12
"""The same for each floating-point operation: products take as long either way, but results stay in the processor's
cache from one to the next."""
NUMBER_SECONDS = 6e-9
"""The same for each number observed: images pass through memory less often where operations are joined."""
REPLAYED_FROM = 100
"""Updates of a learner's life that are made as they are written, where its others are replayed: to trace a step takes
as long as a replay saves in about so many of them. It is a number of updates of the learner, and not of the run, so
that a training in pieces makes the numbers of one that is whole."""
Kinds = dict[str, type[Program]]
"""What a gradient step becomes, by the type of the learner's device."""
COMPILED: Kinds = {"cpu": Program, "cuda": CudaProgram}
REPLAYED: Kinds = {"cpu": ReplayedProgram}
MOST_LAYOUTS = 8
"""Batch layouts that are compiled for each method; any further ones run uncompiled."""
MOST_VARIANTS = 8
"""Programs for one layout, with different options of the learner; one that needs more is changing all the time."""
PATIENCE = 100
"""Attempts to compile a method whose optimizers have yet to step; after them, one attempt for so many calls."""
_ONE_AT_A_TIME = Lock()
"""torch traces and compiles in one thread at a time."""


class Engine:
    """Decides for one learner, and keeps its programs.

    Args:
        learner: whose methods it calls from now on, see :meth:`~polyak.learning.learner.Learner.run`.
        mode: True compiles; ``"replay"`` replays; ``"auto"`` does one or the other, by the length of a run, for
            networks made of torch's and polyak's modules; False runs methods as they are written.
        report: called with what takes long, such as ``print``.
    """

    def __init__(self, learner: Learner, mode: bool | str, report: Callable[[str], None] | None = None) -> None:
        self.learner, self.mode, self.report = learner, mode, report
        self.status = "uncompiled"
        """The decision, in words."""
        self.learned = False
        """Whether a method has run where gradients are taken."""
        self.programs: dict[str, dict[Any, list[Program] | None]] = {}
        """By method, layout of the batch and static arguments: the programs for different options of the learner, the
        latest first; None: there can be none."""
        self._layouts = Layouts()
        self._bound: set[Program] = set()
        """Programs that are up to date with the learner since it was last changed."""
        self._waited: dict[str, int] = {}
        """By method: how often it could not be compiled yet."""
        self._kinds: Kinds | None = None
        """Which programs methods run as; None: as they are written."""
        self._from = 0
        """Updates of the learner before the first of them."""
        self.compiles = False
        """Whether methods run as programs where they can, by now."""
        learner.engine = self
        self._use({True: COMPILED, "replay": REPLAYED}.get(mode))

    def expect(self, updates: int, rows: int) -> None:
        """Prepare for a run of so many gradient steps over so many rows each; a decision to compile is never
        revoked."""
        if self.mode != "auto" or self._kinds is COMPILED:
            return
        parameters = list(self.learner.parameters())
        observed = rows * spaces.flatdim(self.learner.policy.observation_space)
        each = TENSOR_SECONDS * len(parameters) + FLOP_SECONDS * self.flops(rows) + NUMBER_SECONDS * observed
        if (strange := _strange_module(self.learner)) is not None:
            self.status = (
                f"uncompiled: {strange} may hold Python code that a program would freeze (compile=True if not)"
            )
            if self.report is not None:
                self.report(self.status)
        elif updates * each >= WORTHWHILE_SECONDS:
            self._use(COMPILED)
        elif any(parameter.device.type not in REPLAYED for parameter in parameters):
            self.status = "uncompiled: the run is short"
        elif self._kinds is None:
            self.status = f"replayed from update {REPLAYED_FROM} on"
            self._use(REPLAYED, REPLAYED_FROM)

    def _use(self, kinds: Kinds | None, updates: int = 0) -> None:
        """Run methods as such programs from now on, or from that update of the learner on; None: as they are
        written."""
        self._kinds, self._from = kinds, updates
        self.compiles = kinds is not None and self.learner.steps >= updates
        self.programs.clear()
        self._bound.clear()
        line_by_line = None if self.learner.precision == "float32" else self.plainly  # see LearnerHost.check
        self.learner.run_by(line_by_line if kinds is None else self._at_first if updates else self.run)

    def _at_first(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """As :meth:`plainly`, until there have been enough updates."""
        if self.learner.steps <= self._from:
            self.compiles = self.learner.steps == self._from
            return self.plainly(method, batch, *static)
        self.compiles = True
        self.learner.run_by(self.run)
        return self.run(method, batch, *static)

    def flops(self, batch_size: int) -> float:
        """Floating-point operations of a gradient step, roughly."""
        return flops(self.learner, batch_size)

    def plainly(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Call one of the learner's methods as it stands."""
        self.learned |= torch.is_grad_enabled()
        return self.learner.eagerly(method, batch, *static)

    def run(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Call the program of one of the learner's methods for the layout of the batch, or, if there can be none, the
        method itself."""
        self.learned |= torch.is_grad_enabled()
        given = tensors_of(batch)
        programs = self.programs.setdefault(method.__name__, {})
        key = (self._layouts(given), static)
        known = programs.get(key)
        program = known[0] if known else None
        if program is None or program not in self._bound or not program.current:
            program = self._bind(programs, key, method.__name__, batch)
        return self.learner.eagerly(method, batch, *static) if program is None else program(given)

    def _bind(self, programs: dict[Any, list[Program] | None], key: Any, name: str, batch: Any) -> Program | None:
        """A program for the learner's present state: an existing or a new one; None if it cannot be compiled."""
        known = programs.get(key, [])
        if known is None or (not known and (len(programs) >= MOST_LAYOUTS or self._waits(name))):
            return None
        if known and known[0] in self._bound:  # and so it has noticed that the learner was changed
            self._bound.clear()
        program = next((program for program in known if program.rebind()), None)
        if program is None:
            try:
                if len(known) >= MOST_VARIANTS:
                    raise UntraceableError(
                        f"the learner keeps changing: {MOST_VARIANTS} programs of {name} fit no more"
                    )
                program = self._make(name, batch, key[1])
            except UnsteppedError as error:
                self._wait(name, error)
                return None
            except Exception as error:
                programs[key] = None
                self._give_up(name, error)
                return None
            if self.report is not None and self.status != program.status:
                self.report(f"gradient steps are {program.status} from update {self.learner.steps} on")
            self.status = program.status
        programs[key] = [program, *(other for other in known if other is not program)]
        self._bound.add(program)
        return program

    def _make(self, name: str, batch: Any, static: tuple[Any, ...]) -> Program:
        assert self._kinds is not None
        with _ONE_AT_A_TIME, unseen_by_others():
            program = _kind_of_program(self.learner, batch, self._kinds)(self.learner, name, batch, static)
            program.report = self.report
            program.compile()
        return program

    def _waits(self, name: str) -> bool:
        """Whether to leave out an attempt: once a method has waited for long, most of them."""
        waited = self._waited.get(name, 0)
        if waited >= PATIENCE and waited % PATIENCE:
            self._waited[name] = waited + 1
            return True
        return False

    def _wait(self, name: str, error: Exception) -> None:
        """Stay uncompiled for now, until an optimizer has made its state."""
        self._waited[name] = self._waited.get(name, 0) + 1
        if self._waited[name] == PATIENCE:
            self.status = f"uncompiled so far: {error}"
            self._say(
                f"{name} is still uncompiled after {PATIENCE} calls: {error}. It is compiled as soon as it can be"
            )

    def _give_up(self, name: str, error: Exception) -> None:
        """Stay uncompiled, after an attempt that failed.

        Raises:
            RuntimeError: the user asked for compilation.
        """
        done = "replayed" if self._kinds is REPLAYED else "compiled"
        self._use(None)
        self.status = f"uncompiled: {error}"
        if self.mode in (True, "replay"):
            raise RuntimeError(
                f"compile={self.mode!r}, but the gradient step could not be {done}: {error}. Use compile='auto' or "
                "False."
            ) from error
        reason = str(error).strip().partition("\n")[0] or type(error).__name__  # compilers write pages
        self._say(f"training continues uncompiled, since {name} could not be {done}: {reason}")

    def _say(self, what: str) -> None:
        """Warn, once for each reason."""
        advise(what, f"{what}. The results are the same, more slowly. Pass compile=False to leave out the attempt.")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "programs": {}, "_bound": set()}  # a copy of the learner needs programs of its own


def _kind_of_program(learner: Learner, batch: Any, kinds: Kinds) -> type[Program]:
    """The class of programs for the learner's device.

    Raises:
        UntraceableError: there is none, or the batch is on another device.
    """
    devices = {tensor.device for tensor in (*tensors_of(batch), *learner.parameters())}
    if len(devices) > 1:
        raise UntraceableError(f"learner and batch are not on one device: {sorted(map(str, devices))}")
    kind = devices.pop().type
    if kind not in kinds:
        raise UntraceableError(f"programs run on {' and '.join(kinds)} devices, and the learner is on {kind}")
    if learner.group is not None and kind != "cpu":
        raise UntraceableError(f"learners that exchange gradients are compiled on the CPU only, this one is on {kind}")
    return kinds[kind]


def _strange_module(learner: torch.nn.Module) -> str | None:
    """The name of a module's class that is neither torch's nor ours, or of one with hooks; None if there is none."""
    for module in learner.modules():
        cls = type(module)
        if not cls.__module__.startswith(("torch.nn.", "polyak.")):
            return cls.__qualname__
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            return f"a hook on {cls.__qualname__}"
    return None
