"""Where tensors live."""

import torch


def get_device(device: torch.device | str = "auto") -> torch.device:
    """Resolve a device name.

    Args:
        device: ``"auto"`` takes CUDA where torch can use it and the CPU elsewhere; anything else is handed to torch.

    Raises:
        ValueError: torch does not know the name, or CUDA was asked for and is not usable.
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
        raise ValueError(
            f"device={str(device)!r} was asked for, but torch sees no usable GPU. Use device='auto' or 'cpu'."
        )
    return resolved
