"""Graphs as files of ONNX and of ``torch.export``."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from polyak.nn.errors import PolicyError
from polyak.nn.export.ports import Graph

METADATA = "polyak"
"""Key of the description, as JSON: in the metadata of an ONNX file, and as an extra file of a ``.pt2``."""
_ROWS = 2
"""Rows of the example inputs of a trace: a single row would be traced as a constant."""


def check_path(path: str | os.PathLike[str]) -> Path:
    """The path of a file to export to.

    Raises:
        ValueError: its suffix names neither of the formats.
    """
    found = Path(path).expanduser()
    if found.suffix not in _WRITERS:
        raise ValueError(
            f"path={str(path)!r} must end with .onnx (onnxruntime and others) or .pt2 (torch.export), which says what "
            "to write."
        )
    return found


def contents(graph: Graph, suffix: str, description: Mapping[str, Any]) -> bytes:
    """The file that holds a graph and its description.

    Args:
        graph: in evaluation mode, on the CPU.
        suffix: ``".onnx"`` or ``".pt2"``.
        description: JSON values.

    Raises:
        ImportError: a package for ``.onnx`` is missing.
        PolicyError: the graph branches on values, or has an operation that the format does not have.
    """
    return _WRITERS[suffix](graph, json.dumps(description))


def traced(graph: Graph) -> torch.export.ExportedProgram:
    """The graph as a program for any number of rows.

    Raises:
        PolicyError: it branches on values.
    """
    return _traced(graph, graph, starred=True)


def _traced(module: nn.Module, graph: Graph, starred: bool) -> torch.export.ExportedProgram:
    """A module that takes the inputs of the graph, ``starred``: as ``*inputs``."""
    examples = tuple(port.example(_ROWS) for port in graph.inputs)
    shapes = ({0: torch.export.Dim("batch", min=1)},) * len(examples)
    fix = "Let it compute with tensors, without branches on values"
    with torch.no_grad(), _quiet(), _refused("torch.export", fix):
        program = torch.export.export(module, examples, dynamic_shapes=(shapes,) if starred else shapes, strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # which names folders of this machine
    return program


def _onnx(graph: Graph, description: str) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError("writing .onnx needs onnx and onnxscript: pip install 'polyak[onnx]'.") from error
    inputs, outputs = ([port.name for port in ports] for ports in (graph.inputs, graph.outputs))
    program = traced(graph)
    with _quiet(), _refused("torch.onnx", "Leave out the operation that ONNX does not have, or write a .pt2"):
        found: Any = torch.onnx.export(program, dynamo=True, verbose=False, input_names=inputs, output_names=outputs)
    model = found.model
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape[0] = "batch"
    for node in model.graph.all_nodes():
        node.metadata_props.clear()  # torch's notes on the origin of the node
    model.metadata_props[METADATA] = description
    return found.model_proto.SerializeToString()


def _pt2(graph: Graph, description: str) -> bytes:
    program = _traced(_without_unused(traced(graph).module()), graph, starred=False)
    buffer = io.BytesIO()
    torch.export.save(program, buffer, extra_files={f"{METADATA}.json": description})
    return buffer.getvalue()


def _without_unused(module: Any) -> nn.Module:
    """A program's module without the parameters and buffers that it does not read, such as critics."""
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    module.recompile()
    read = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in (*module.named_parameters(), *module.named_buffers()) if name not in read]:
        owner, _, own = name.rpartition(".")
        delattr(module.get_submodule(owner), own)
    return module


_WRITERS = {".onnx": _onnx, ".pt2": _pt2}


@contextlib.contextmanager
def _refused(by: str, fix: str) -> Iterator[None]:
    """Convert any error that an exporter raises about a policy to a PolicyError."""
    try:
        yield
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise PolicyError(f"the policy cannot be exported: {by} says {lines[0]!r}. {fix}.") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the logs of torch's exporters."""
    loud = logging.getLogger("torch.onnx")
    before = loud.level
    loud.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        loud.setLevel(before)
