"""A program on a GPU: the kernels of the flat graph, recorded once as a CUDA graph and launched together.

A recording repeats the same work on the same memory. So all inputs of a step are first written to fixed memory: batches
are copied there, random numbers are drawn there. Factors that depend on learning rates and step counts are computed on
the device, at the start of the recording. The host never waits.

TorchInductor first fuses the graph's operations into a few kernels, if it can.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule

from polyak.learning.engine.optimizer_rules import device_factors
from polyak.learning.engine.partition import Run
from polyak.learning.engine.program import Cohort, Program, interpret
from polyak.learning.engine.quiet import quiet
from polyak.learning.engine.shared_library import bare, options
from polyak.learning.learner import Learner
from polyak.seeding import random_states_kept

_WARM_UPS = 3
"""Runs before recording, in which libraries allocate workspaces and build kernels."""


class Recorder(Protocol):
    """Records a run on given tensors and replays it on the same memory."""

    def record(self, run: Run, arguments: list[Tensor]) -> Sequence[Tensor]:
        """Record ``run(arguments)`` without changing the arguments; every :meth:`replay` overwrites the returned
        tensors."""
        ...

    def replay(self) -> None:
        """Replay the recording on the current contents of the arguments."""
        ...


class CudaGraph:
    """A :class:`Recorder` of CUDA kernels.

    Args:
        device: a CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graph = torch.cuda.CUDAGraph()

    def record(self, run: Run, arguments: list[Tensor]) -> Sequence[Tensor]:
        with torch.cuda.device(self._device), torch.no_grad():
            self._warm_up(run, [argument.detach().clone() for argument in arguments])
            # Other threads, such as those that step environments, may use the GPU at the same time.
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                return run(arguments)

    def _warm_up(self, run: Run, copies: list[Tensor]) -> None:
        here, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                run(copies)
        here.wait_stream(aside)

    def replay(self) -> None:
        self._graph.replay()


class CudaProgram(Program):
    """A :class:`~polyak.learning.engine.program.Program` whose learner and batches are on a GPU."""

    recorder: Callable[[torch.device], Recorder] = CudaGraph

    def __init__(self, learner: Learner, method: str, batch: Any, *options: Any, **more: Any) -> None:
        super().__init__(learner, method, batch, *options, **more)
        # Inputs that change from step to step have fixed memory of their own. It starts as a copy of the example: row
        # indices in a batch must be valid when the step is tried out.
        self._own = [tensor.clone() for tensor in self._arguments[len(self._inputs.tensors) :]]
        self._arguments[len(self._inputs.tensors) :] = self._own
        self._loaded: list[tuple[Callable[[], Tensor | None], int]] = [(lambda: None, 0)] * len(self._batch)
        self._pointers: list[int] = []  # addresses of the learner's tensors in the recording

    @property
    def _batch(self) -> Sequence[Tensor]:
        return self._own[len(self._draws) :]

    def compile(self) -> None:
        """Fuse the graph if possible, and record it.

        Raises:
            Exception: the step contains an operation that cannot be recorded.
        """
        try:
            with self._building():
                self._run = fused(self.graph, self._arguments, self._inputs.device)
                self._record()
            self.status = "compiled: one CUDA graph of fused kernels"
        except Exception as error:
            self._run = partial(interpret, self.graph)
            self._record()
            reason = str(error).strip().partition("\n")[0]
            self.status = f"compiled: one CUDA graph of torch's own kernels ({type(error).__name__}: {reason})"

    def __call__(self, given: Sequence[Tensor]) -> Any:
        if self._pointers != self._addresses():
            self._record()
        self._inputs.count()
        for rate in self._learning_rates:
            rate.follow()
        for draw, place in zip(self._draws, self._own, strict=False):
            draw(out=place)
        self._load(given)
        self._recorder.replay()
        return self._results()

    def _addresses(self) -> list[int]:
        """Returns the addresses of the learner's tensors, which ``parameter.data = ...`` changes unnoticed."""
        return list(map(Tensor.data_ptr, self._inputs.tensors))

    def _record(self) -> None:
        """Record again, with the learner's present tensors."""
        self._learning_rates = [_LearningRate(cohort, self._inputs.device) for cohort in self._inputs.cohorts]
        self._recorder = self.recorder(self._inputs.device)
        self._scalars: list[int] = []
        self._outputs = self._recorder.record(self._step, self._arguments)
        self._pointers = self._addresses()

    def _step(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Run the recorded part: the factors of the step, the graph, and all scalar results in one tensor."""
        for rate in self._learning_rates:
            arguments[rate.place].copy_(rate.factors(arguments))
        results = self._run(list(arguments))
        self._returned = len(results)
        self._scalars = [i for i, result in enumerate(results) if result.dim() == 0 and result.dtype is torch.float32]
        others = [result for i, result in enumerate(results) if i not in self._scalars]
        return [torch.stack([results[i] for i in self._scalars]), *others] if self._scalars else others

    def _load(self, given: Sequence[Tensor]) -> None:
        """Copy a batch to its fixed memory, except for tensors that are there already, such as columns of a rollout."""
        for i, (tensor, place) in enumerate(zip(given, self._batch, strict=True)):
            last, version = self._loaded[i]
            if last() is not tensor or version != tensor._version:
                place.copy_(tensor, non_blocking=True)
                self._loaded[i] = weakref.ref(tensor), tensor._version

    def _results(self) -> Any:
        """Returns copies of the results, since the next step overwrites them."""
        copies = iter([output.clone() for output in self._outputs])
        scalars = dict(zip(self._scalars, next(copies).unbind(), strict=True)) if self._scalars else {}
        return self._results_of(scalars[i] if i in scalars else next(copies) for i in range(self._returned))


class _LearningRate:
    """The learning rate of a cohort of parameters, on the device.

    Args:
        cohort: the parameters, and the positions of their factors and step count among the arguments.
        device: of the learning rate.
    """

    def __init__(self, cohort: Cohort, device: torch.device) -> None:
        self.place = cohort.place
        self._cohort = cohort
        self._value = float(cohort.group["lr"])
        self._tensor = torch.full((), self._value, dtype=torch.float64, device=device)

    def follow(self) -> None:
        """Copy the group's learning rate if it has changed."""
        lr = self._cohort.group["lr"]
        if isinstance(lr, Tensor) and lr.device.type == "cuda":  # reading it would wait for the device
            self._tensor.copy_(lr)
        elif (value := float(lr)) != self._value:
            self._value = value
            self._tensor.fill_(value)

    def factors(self, arguments: Sequence[Tensor]) -> Tensor:
        """Returns the factors of the next step."""
        step = self._cohort.step
        t = None if step is None else arguments[step]
        return device_factors(self._cohort.optimizer, self._cohort.group, self._tensor, t)


def fused(graph: GraphModule, arguments: Sequence[Tensor], device: torch.device) -> Run:
    """Returns the graph compiled by TorchInductor.

    Raises:
        Exception: TorchInductor fails: Triton or a compiler is missing, for example, or the GPU is too old.
    """
    import torch._inductor

    gpus = [device] if device.type == "cuda" else []
    with quiet(), random_states_kept(*gpus), torch.no_grad():
        copies: list[Any] = [argument.detach().clone() for argument in arguments]
        kernels = torch._inductor.compile(bare(copy.deepcopy(graph)), copies, options=options())

        def run(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
            with torch.no_grad():
                return kernels(*tensors)

        run(copies)  # kernels are built at their first use: do it now
    return run
