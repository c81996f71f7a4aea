"""Copies to a GPU do not wait; elsewhere nothing is copied that need not be."""

from types import SimpleNamespace
from typing import Any

import torch

from polyak.arrays import to_device


def test_what_is_there_is_not_copied() -> None:
    tensor = torch.ones(3)
    assert to_device(tensor, torch.device("cpu")) is tensor
    assert to_device(tensor, torch.device("meta")).shape == (3,)


def test_copies_to_a_gpu_go_through_page_locked_memory() -> None:
    def moved(device: torch.device, **options: Any) -> tuple[str, dict[str, Any]]:
        return str(device), options

    pinned = SimpleNamespace(to=moved)
    dense = SimpleNamespace(pin_memory=lambda: pinned)
    tensor: Any = SimpleNamespace(device=torch.device("cpu"), contiguous=lambda: dense)
    assert to_device(tensor, torch.device("cuda:1")) == ("cuda:1", {"non_blocking": True})
