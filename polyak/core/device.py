"""Where tensors live."""

import warnings

import torch


def get_device(device: torch.device | str = "auto") -> torch.device:
    """Resolve a device name.

    Args:
        device: ``"auto"`` takes CUDA where torch can use it and the CPU elsewhere; anything else is handed to torch.

    Raises:
        ValueError: torch does not know the name.

    CUDA that was asked for and cannot be used is replaced by the CPU, with a warning.
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
        warnings.warn(
            f"device={str(device)!r} was asked for, but torch sees no usable GPU: the CPU is used. Use device='auto' "
            "to take a GPU only where there is one.",
            UserWarning,
            stacklevel=2,
        )
        return torch.device("cpu")
    return resolved
