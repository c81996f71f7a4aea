"""The storage that a replay buffer asks for, and whether there is memory for it."""

from __future__ import annotations

from gymnasium import spaces

from polyak.data.storage.storage import PairStorage, RowLayout, SingleStorage, Storage
from polyak.experience.memory import GIGABYTE, check_memory


def make_storage(layout: RowLayout, steps: int, envs: int, saving: bool, on_disk: bool = False) -> Storage:
    """An empty ring [steps, envs]; ``saving``: one that keeps each observation once; ``on_disk``: in a file."""
    return (SingleStorage if saving else PairStorage)(layout, steps, envs, on_disk)


def check_size(layout: RowLayout, cells: int, saving: bool, observation_space: spaces.Space) -> None:
    """Refuse a ring of so many rows that would not fit into the memory that is free, and name the ways out.

    Raises:
        InsufficientMemoryError: it would not.
    """
    pairs, singles = (kind.size_of(layout, cells) for kind in (PairStorage, SingleStorage))
    needed = singles if saving else pairs
    ways = [
        f"a smaller buffer_size ({GIGABYTE / needed * cells:,.0f} transitions take 1 GB)",
        f"optimize_memory_usage=True ({singles / GIGABYTE:.2f} GB)",
        "smaller observations (uint8 pictures, fewer pixels, float32)",
        "storage_device='disk' (a temporary file)",
    ]
    if saving:
        del ways[1]
    what = f"The replay buffer (buffer_size={cells:,} transitions of {observation_space})"
    check_memory(needed, what, f"Ways out: {'; '.join(ways)}.")
