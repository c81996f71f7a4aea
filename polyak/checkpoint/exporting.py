"""Export of a model's policy to a file that runs without polyak."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from polyak.nn.export.files import check_path, contents
from polyak.nn.export.ports import Graph
from polyak.writing import replacing


class Exportable(Protocol):
    """A model with an acting graph."""

    def acting_graph(self, masks: bool | None, channels_last: bool | None, stochastic: bool) -> Graph:
        """Returns the graph from raw observations to actions in the environment's units."""
        ...


def not_exported(why: str) -> Callable[..., Graph]:
    """Returns an ``acting_graph`` method for a model without one: it raises a ValueError with the reason."""

    def acting_graph(model: Any, *_: Any, **__: Any) -> Graph:
        raise ValueError(f"{type(model).__name__} cannot be exported: {why}.")

    return acting_graph


def export(
    model: Exportable, path: str | os.PathLike[str], masks: bool | None, channels_last: bool | None, stochastic: bool
) -> dict[str, Any]:
    """Write the graph of a model and return its description: see :meth:`polyak.algorithm.Algorithm.export`."""
    target = check_path(path)
    graph = model.acting_graph(masks, channels_last, stochastic).eval()
    description = graph.describe() | {"algorithm": type(model).__name__}
    written = contents(graph, target.suffix, description)
    with replacing(target) as file:
        file.write(written)
    return description
