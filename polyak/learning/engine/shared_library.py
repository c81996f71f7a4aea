"""Flat graphs as shared libraries: built by TorchInductor for the CPU, kept on disk, loaded in milliseconds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from polyak.learning.engine.cache import cache_folder, machine, writable
from polyak.learning.engine.entries import add, is_sound, unseal
from polyak.learning.engine.matrix_products import teach_compiler, undo_unbiased
from polyak.learning.engine.partition import Run
from polyak.learning.engine.pytree import layout
from polyak.learning.engine.quiet import quiet

OPTIONS: dict[str, Any] = {"cpp.use_decompose_tanh": True}
"""Settings of TorchInductor, if its release supports them: tanh from one exponential takes half the time, and differs
by 1e-7."""
LIBRARY = "program.so"


Building = Callable[[], AbstractContextManager[None]]


def loaded(graph: GraphModule, arguments: Sequence[Tensor], building: Building = nullcontext) -> Run:
    """Returns the loaded library of a graph. One that cannot be loaded, for example since it was built on a similar but
    different machine, is built again once.

    Raises:
        Exception: whatever the compiler raises, or loading a newly built library.
    """
    found = library(graph, arguments, building)
    try:
        return load(found)
    except Exception:
        unseal(found.parent)
    return load(library(graph, arguments, building))


def library(graph: GraphModule, arguments: Sequence[Tensor], building: Building = nullcontext) -> Path:
    """Returns the library of a graph, from the cache folder, or built inside ``building()``. If the cache folder is not
    writable, a private one is used."""
    key, usual = _key(graph, arguments), cache_folder()

    def build(folder: Path) -> None:
        with building():
            _build(graph, arguments, folder)

    if not is_sound(usual / key):
        usual = writable(usual)
    if not is_sound(usual / key):
        add(usual / key, build)
    return usual / key / LIBRARY


def _build(graph: GraphModule, arguments: Sequence[Tensor], folder: Path) -> None:
    import torch._inductor

    if not teach_compiler():
        undo_unbiased(graph)
    bare(graph)
    with quiet(), torch.no_grad():  # the compiler draws no random numbers
        built = torch._inductor.aot_compile(
            graph, tuple(arguments), options={**options(), "aot_inductor.output_path": str(folder / LIBRARY)}
        )
    if Path(str(built)).name != LIBRARY:
        Path(str(built)).rename(folder / LIBRARY)
    for calls in folder.glob("*wrapper.json"):  # unknown operations: expected beside the library
        calls.rename((folder / LIBRARY).with_suffix(".json"))


def bare(graph: GraphModule) -> GraphModule:
    """Removes the example values from a graph's nodes, which the compiler would assume to be on the right device."""
    for node in graph.graph.nodes:
        node.meta.pop("val", None)
    return graph


def options() -> dict[str, Any]:
    """Returns those of :data:`OPTIONS` that this release of TorchInductor has."""
    import torch._inductor.config

    known = {}
    for name, value in OPTIONS.items():
        with suppress(AttributeError):
            attrgetter(name)(torch._inductor.config)
            known[name] = value
    return known


def _key(graph: GraphModule, arguments: Sequence[Tensor]) -> str:
    """Returns a key of everything that the library depends on."""
    constants = [(name, tensor.tolist()) for name, tensor in graph.named_buffers()]
    facts = (graph.code, constants, layout(arguments), machine(), torch.get_num_threads(), OPTIONS)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def load(library: Path) -> Run:
    """Returns a function that takes a graph's inputs, changes them as the graph does, and returns its outputs."""
    run: Run = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1).run
    return run
