"""The choice between CPU and GPU.

A GPU makes large gradient steps much faster than a CPU, and small ones slower: every operation must be launched, and
every action fetched. An algorithm with ``device="auto"`` takes the device that should be faster for its own steps, by
measured speeds of the machine.
"""

import re
from typing import NamedTuple

import torch

from polyak.learning.engine.machine_speed import Speeds
from polyak.warning import warn_user

CALLS_PER_TENSOR = 15
"""Operations of a gradient step per parameter tensor: forward, backward, clipping, optimizer, target."""
CALLS_TO_ACT = 2
"""Operations of an action per parameter tensor: a product and an activation for a weight and a bias, at most."""


class Work(NamedTuple):
    """The cost of a gradient step and of the actions before the next one."""

    flops: float
    """Floating-point operations of the gradient step."""
    tensors: int
    """Parameter tensors of the learner."""
    acts: float
    """Actions of the policy per gradient step."""
    act_flops: float
    """Floating-point operations of one action, for all environments."""


class Choice(NamedTuple):
    """A device, and the estimates behind the choice."""

    device: str
    """``"cpu"`` or ``"cuda"``."""
    cpu_seconds: float
    cuda_seconds: float
    """Estimated time of a gradient step with its actions."""

    def __str__(self) -> str:
        cpu, cuda = (f"{1e3 * seconds:.3g} ms" for seconds in (self.cpu_seconds, self.cuda_seconds))
        return f"device: {self.device} (a gradient step with its actions takes about {cpu} on the cpu, {cuda} on cuda)"


def choose(work: Work, speeds: Speeds) -> Choice:
    """Returns the device that should be faster for some work.

    Compiled steps save most of their calls on both devices, at about the same ratio.
    """
    calls = work.tensors * (CALLS_PER_TENSOR + CALLS_TO_ACT * work.acts)
    arithmetic = work.flops + work.acts * work.act_flops
    cpu = calls * speeds.cpu_call + arithmetic / speeds.cpu_flops
    cuda = calls * speeds.cuda_call + arithmetic / speeds.cuda_flops + work.acts * speeds.cuda_wait
    return Choice("cpu" if cpu <= cuda else "cuda", cpu, cuda)


TYPICAL: dict[str, Work] = {
    "PPO, two layers of 64": Work(3.5e6, 12, 6.4, 1.8e4),
    "SAC, two layers of 256": Work(5.2e8, 33, 1, 6.7e5),
    "SAC, two layers of 1024": Work(8.1e9, 33, 1, 1.1e7),
    "DQN, images": Work(3.6e9, 20, 4, 3.7e7),
}
"""Typical networks, and their work."""


def get_device(device: torch.device | str | int = "auto") -> torch.device:
    """Returns the torch device of a name.

    Args:
        device: ``"auto"`` takes CUDA if torch can use it, otherwise the CPU; other values are passed to torch.

    Raises:
        ValueError: torch does not know the name, or the machine has no such device.

    If CUDA is requested without a usable GPU, the CPU is used, with a warning.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise ValueError(
            f"device={device!r} is not a torch device. Use 'auto', 'cpu', 'cuda' or 'cuda:<n>'."
        ) from error
    if resolved.type == "cuda" and not torch.cuda.is_available():
        warn_user(
            f"device={str(device)!r} was asked for, but torch sees no usable GPU: the CPU is used. Use device='auto' "
            "to take a GPU only where there is one.",
            UserWarning,
        )
        return torch.device("cpu")
    if (reason := _missing(resolved)) is not None:
        raise ValueError(
            f"device={str(device)!r} cannot be used: {reason} Use 'auto' or 'cpu', or one of: {', '.join(_usable())}."
        )
    return resolved


def _missing(device: torch.device) -> str | None:
    """Returns the reason why a device cannot hold tensors; None if it can."""
    if device.type == "meta":
        return "tensors there have no values."
    if device.type == "cuda":
        count = torch.cuda.device_count()
        return None if (device.index or 0) < count else f"torch sees {count} of its kind, numbered from 0."
    try:
        torch.zeros((), device=device)
    except Exception as error:  # each backend raises errors of its own: RuntimeError, NotImplementedError, ImportError
        first_sentence = re.split(r"\. |\n", str(error).strip())[0].rstrip(".")
        return f"torch cannot use it here ({first_sentence})."
    return None


def _usable() -> list[str]:
    """Returns the names of the usable devices."""
    found = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)]
    return found + [name for name in ("mps", "xpu") if _missing(torch.device(name)) is None]
