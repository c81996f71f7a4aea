"""Export of a table of action values as a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.nested_spaces import parts
from polyak.envs.tabular.numbering import Numbering
from polyak.nn.export.ports import Graph, Port, observation_ports


class TableGraph(Graph):
    """Maps observations [B, ...] of a finite space to their rows of the table and to the best actions [B]; the first of
    ties.

    Args:
        numbering: of the observations.
        action_space: a Discrete of A actions.
        preferences: [S, A], whose argmax is taken; -inf for actions that a state does not have.
        masks: whether masks [B, A] of allowed actions are an input.
    """

    preferences: Tensor
    starts: Tensor
    strides: Tensor

    def __init__(
        self, numbering: Numbering, action_space: spaces.Discrete, preferences: np.ndarray, masks: bool
    ) -> None:
        super().__init__()
        self.observation_space: Any = numbering.space
        self.action_space = action_space
        self.register_buffer("preferences", torch.as_tensor(preferences))
        self.register_buffer("starts", torch.as_tensor(numbering.starts))
        self.register_buffer("strides", torch.as_tensor(numbering.strides))
        self._first_action, self._masks = int(action_space.start), masks
        self.inputs = observation_ports(self.observation_space)
        places = {port.details.get("key", ""): i for i, port in enumerate(self.inputs)}
        self._order = [places[part.name] for part in parts(self.observation_space)]
        if masks:
            self.inputs.append(Port("action_masks", "action_masks", (int(action_space.n),), "bool"))
        self.outputs = [Port("action", "action", (), "int64")]

    def forward(self, *inputs: Tensor) -> tuple[Tensor]:
        """Maps observations in the order of ``inputs``, and masks, to actions [B]."""
        digits = torch.cat([inputs[i].flatten(1) if inputs[i].ndim > 1 else inputs[i][:, None] for i in self._order], 1)
        states = ((digits.long() - self.starts) * self.strides).sum(1)
        rows = self.preferences[states]
        if self._masks:
            rows = torch.where(inputs[-1], rows, -torch.inf)
        return (rows.argmax(1) + self._first_action,)
