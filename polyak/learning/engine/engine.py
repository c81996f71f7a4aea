"""The engine runs a learner's gradient steps: eagerly, replayed or compiled, and in a chosen precision.

The choice depends on the run alone, never on the clock: two runs with equal seeds and settings give equal results, even
if only the first of them had to compile.
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
from polyak.nn.backends.own_code import OwnCodeError
from polyak.nn.backends.tracing import UntraceableError
from polyak.nn.backends.watch import Watch, is_own
from polyak.warning import advise

WORTHWHILE_SECONDS = 20.0
"""Nominal time that compilation must save in a run, compared to replay: compiling takes about as long, once for each
machine."""
TENSOR_SECONDS = 5e-6
"""Nominal time that a compiled program saves in each gradient step per parameter tensor."""
FLOP_SECONDS = 1e-12
"""Nominal time that it saves per floating-point operation: products take equally long, but results stay in the
processor's cache between operations."""
NUMBER_SECONDS = 6e-9
"""Nominal time that it saves per observed number: fused operations read images from memory less often."""
REPLAYED_FROM = 100
"""Updates of a learner that run eagerly before the others are replayed: tracing a step takes about as long as replay
saves in this many updates. They are counted over the learner's life, not per run, so that a training in pieces gives
the same results as one whole."""
Kinds = dict[str, type[Program]]
"""Program classes by the type of the learner's device."""
COMPILED: Kinds = {"cpu": Program, "cuda": CudaProgram}
REPLAYED: Kinds = {"cpu": ReplayedProgram}
MOST_LAYOUTS = 8
"""Batch layouts that are compiled for each method; others run uncompiled."""
MOST_VARIANTS = 8
"""Programs for one layout, with different options of the learner; a learner that needs more changes constantly."""
PATIENCE = 100
"""Attempts to compile a method whose optimizers have no state yet; afterwards one attempt per this many calls."""
_ONE_AT_A_TIME = Lock()
"""Tracing and compiling are restricted to one thread at a time."""


class Engine:
    """Decides how one learner's methods run, and holds its programs.

    Args:
        learner: its methods run through this engine from now on, see :meth:`~polyak.learning.learner.Learner.run`.
        mode: True compiles; ``"replay"`` replays; ``"auto"`` chooses by the length of the run, and leaves alone what
            :mod:`~polyak.nn.backends.own_code` refuses; False runs methods eagerly.
        report: called with messages about slow tasks, such as ``print``.
    """

    def __init__(self, learner: Learner, mode: bool | str, report: Callable[[str], None] | None = None) -> None:
        self.learner, self.mode, self.report = learner, mode, report
        self.status = "uncompiled"
        """Description of the decision."""
        self.learned = False
        """Whether a method has run with gradients enabled."""
        self.programs: dict[str, dict[Any, list[Program] | None]] = {}
        """Method -> (layout of the batch, static arguments) -> programs for different options of the learner, the
        latest first; None if there can be none."""
        self._layouts = Layouts()
        self._bound: set[Program] = set()
        """Programs that are up to date with the learner since its last change."""
        self._waited: dict[str, int] = {}
        """Method -> number of postponed attempts to compile it."""
        self._kinds: Kinds | None = None
        """The program classes in use; None runs methods eagerly."""
        self._from = 0
        """Number of the learner's updates that run eagerly first."""
        self.compiles = False
        """Whether methods run as programs by now, if possible."""
        learner.engine = self
        self._use({True: COMPILED, "replay": REPLAYED}.get(mode))

    def expect(self, updates: int, rows: int) -> None:
        """Prepare for a run of ``updates`` gradient steps of ``rows`` rows each; a decision to compile is never
        revoked."""
        if self.mode != "auto" or self._kinds is COMPILED:
            return
        parameters = list(self.learner.parameters())
        observed = rows * spaces.flatdim(self.learner.policy.observation_space)
        each = TENSOR_SECONDS * len(parameters) + FLOP_SECONDS * self.flops(rows) + NUMBER_SECONDS * observed
        if updates * each >= WORTHWHILE_SECONDS:
            self._use(COMPILED)
        elif any(parameter.device.type not in REPLAYED for parameter in parameters):
            self.status = "uncompiled: the run is short"
        elif self._kinds is None:
            self.status = f"replayed from update {REPLAYED_FROM} on"
            self._use(REPLAYED, REPLAYED_FROM)

    def _use(self, kinds: Kinds | None, updates: int = 0) -> None:
        """Run methods as programs of these classes after ``updates`` updates of the learner; None: eagerly."""
        self._kinds, self._from = kinds, updates
        self.compiles = kinds is not None and self.learner.steps >= updates
        self.programs.clear()
        self._bound.clear()
        line_by_line = None if self.learner.precision == "float32" else self.plainly  # see LearnerHost.check
        self.learner.run_by(line_by_line if kinds is None else self._at_first if updates else self.run)

    def _at_first(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Run a method eagerly until the learner has made enough updates, then as a program."""
        if self.learner.steps <= self._from:
            self.compiles = self.learner.steps == self._from
            return self.plainly(method, batch, *static)
        self.compiles = True
        self.learner.run_by(self.run)
        return self.run(method, batch, *static)

    def flops(self, batch_size: int) -> float:
        """Returns the approximate floating-point operations of a gradient step."""
        return flops(self.learner, batch_size)

    def plainly(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Run a method of the learner eagerly."""
        self.learned |= torch.is_grad_enabled()
        return self.learner.eagerly(method, batch, *static)

    def run(self, method: Callable[..., Any], batch: Any, *static: Any) -> Any:
        """Run the program of a method for the layout of the batch, or the method itself if it has no program."""
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
        """Returns a program for the learner's present state, existing or new; None if it cannot be compiled."""
        known = programs.get(key, [])
        if known is None or (not known and (len(programs) >= MOST_LAYOUTS or self._waits(name))):
            return None
        if known and known[0] in self._bound:  # so it has detected a change of the learner
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
            kind = _kind_of_program(self.learner, batch, self._kinds)
            checks = self.mode == "auto" and _has_own_code(self.learner)
            program = kind(self.learner, name, batch, static, checks)
            program.report = self.report
            program.compile()
        return program

    def _waits(self, name: str) -> bool:
        """Whether to skip an attempt to compile: after many failed ones, most are skipped."""
        waited = self._waited.get(name, 0)
        if waited >= PATIENCE and waited % PATIENCE:
            self._waited[name] = waited + 1
            return True
        return False

    def _wait(self, name: str, error: Exception) -> None:
        """Stay uncompiled for now, until an optimizer has created its state."""
        self._waited[name] = self._waited.get(name, 0) + 1
        if self._waited[name] == PATIENCE:
            self.status = f"uncompiled so far: {error}"
            self._say(
                f"{name} is still uncompiled after {PATIENCE} calls: {error}. It is compiled as soon as it can be"
            )

    def _give_up(self, name: str, error: Exception) -> None:
        """Stay uncompiled after a failed attempt.

        Raises:
            RuntimeError: the user requested compilation.
        """
        done = "replayed" if self._kinds is REPLAYED else "compiled"
        self._use(None)
        self.status = f"uncompiled: {error}"
        if self.mode in (True, "replay"):
            raise RuntimeError(
                f"compile={self.mode!r}, but the gradient step could not be {done}: {error}. Use compile='auto' or "
                "False."
            ) from error
        if isinstance(error, OwnCodeError):
            if self.report is not None:
                self.report(f"{self.status} (compile=True if it may)")
            return
        reason = str(error).strip().partition("\n")[0] or type(error).__name__  # compilers write long messages
        self._say(f"training continues uncompiled, since {name} could not be {done}: {reason}")

    def _say(self, what: str) -> None:
        """Warn, once for each reason."""
        advise(what, f"{what}. The results are the same, more slowly. Pass compile=False to leave out the attempt.")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "programs": {}, "_bound": set()}  # a copied learner needs programs of its own


def _kind_of_program(learner: Learner, batch: Any, kinds: Kinds) -> type[Program]:
    """Returns the class of programs for the learner's device.

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


def _has_own_code(learner: torch.nn.Module) -> bool:
    """Whether a class of its modules is a program's own, or one of them has hooks or another ``forward``."""
    own = any(is_own(type(module)) or "forward" in vars(module) for module in learner.modules())
    return own or any(Watch(learner.modules()).hooks)
