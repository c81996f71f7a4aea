"""Learning from a dataset: instead of an environment, beside it, or before it.

A model that is given a :class:`~polyak.experience.Dataset` as its ``env`` learns from that only, and counts gradient
steps. An off-policy algorithm can also act: given an environment later (``set_env``), the same model continues online.
From then on minibatches come from both sources, and it counts environment steps.
"""

from collections.abc import Callable
from typing import Any, ClassVar, cast

from polyak.experience import Dataset, ReplayBuffer
from polyak.experience.replay_memory import ReplayMemory
from polyak.hyperparameters.held import Held
from polyak.loops.offline import OfflineLoop
from polyak.loops.training import Loop
from polyak.network_algorithm import NetworkAlgorithm
from polyak.parts.part import MadeOf, Through
from polyak.parts.replay import DatasetReplay


class LearnsFromData(NetworkAlgorithm):
    """Base class of algorithms that replay a dataset, and their own experience if they act."""

    made_of: ClassVar[MadeOf] = {"replay": DatasetReplay}
    loop: ClassVar[Callable[..., Loop]] = OfflineLoop.of
    log_every = 4
    replay = cast(DatasetReplay, None)  # a part, no hyper-parameter
    # Without annotations, since only subclasses may declare them as hyper-parameters.
    batch_size, gamma, optimize_memory_usage = 256, 1.0, False
    n_steps = cast("int | tuple[int, int]", 1)
    prioritized = cast("bool | dict[str, Any]", False)
    replay_buffer_kwargs = cast("dict[str, Any] | None", None)
    dataset_share = cast("float | None", None)
    memory = Held[ReplayMemory]("replay.memory")
    """The replay that minibatches are drawn from."""
    replay_buffer = Held[ReplayBuffer | None]("memory.own")
    """The model's own experience."""
    dataset = Held[Dataset | None]("memory.dataset")
    """The dataset, beside the model's own experience."""
    data_buffer = Held[ReplayBuffer | None]("memory.recorded")
    """The replay buffer of the dataset."""
    learns_offline = Held[bool]("replay.offline")
    set_dataset = Through("replay", DatasetReplay.use)
    train = Through("replay", DatasetReplay.train)
