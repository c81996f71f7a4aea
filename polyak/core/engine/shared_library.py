"""Flat graphs as shared libraries: built by TorchInductor for the CPU, kept on disk, loaded in milliseconds."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from polyak.core.engine.cache import cache_folder, machine
from polyak.core.engine.matrix_products import teach_compiler, undo_unbiased
from polyak.core.engine.nesting import layout
from polyak.core.seeding import random_states_kept

OPTIONS: dict[str, Any] = {"cpp.use_decompose_tanh": True}
"""Settings of TorchInductor, as far as the release at hand has them: tanh from one exponential takes half the time, and
differs by 1e-7."""
LIBRARY = "program.so"


def library(
    graph: GraphModule, arguments: Sequence[Tensor], building: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Path:
    """The shared library of a graph: from the cache folder, else built into it, inside of ``building()``."""
    folder = cache_folder() / _key(graph, arguments)
    library = folder / LIBRARY
    if library.exists():
        return library
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as aside:
        with building():
            _build(graph, arguments, Path(aside) / "made")
        with suppress(OSError):  # another process was quicker
            (Path(aside) / "made").rename(folder)
    return library


def _build(graph: GraphModule, arguments: Sequence[Tensor], folder: Path) -> None:
    import torch._inductor

    if not teach_compiler():
        undo_unbiased(graph)
    with quiet(), random_states_kept(), torch.no_grad():
        built = torch._inductor.aot_compile(
            graph, tuple(arguments), options={**options(), "aot_inductor.output_path": str(folder / LIBRARY)}
        )
    if Path(str(built)).name != LIBRARY:
        Path(str(built)).rename(folder / LIBRARY)
    for calls in folder.glob("*wrapper.json"):  # of operations that torch does not know: it looks for them here
        calls.rename((folder / LIBRARY).with_suffix(".json"))


def options() -> dict[str, Any]:
    """Those of :data:`OPTIONS` that this release of TorchInductor has."""
    import torch._inductor.config

    known = {}
    for name, value in OPTIONS.items():
        with suppress(AttributeError):
            attrgetter(name)(torch._inductor.config)
            known[name] = value
    return known


def _key(graph: GraphModule, arguments: Sequence[Tensor]) -> str:
    """Names everything that the library depends on."""
    constants = [(name, tensor.tolist()) for name, tensor in graph.named_buffers()]
    facts = (graph.code, constants, layout(arguments), machine(), torch.get_num_threads(), OPTIONS)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def load(library: Path) -> Callable[[list[Tensor]], list[Tensor]]:
    """What is called with a graph's inputs, changes them as the graph does, and returns its outputs."""
    return torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1).run


@contextmanager
def quiet() -> Iterator[None]:
    """Torch's warnings about its own insides are not for the program's user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
