"""``grad_clip_by``: ways to limit gradients other than by the norm of all together."""

from __future__ import annotations

import torch
from torch import Tensor

from polyak.learning.learner import clip_gradients


class ClipsEachParameter:
    """Before a learner: the norm of each parameter's gradient is limited by itself."""

    def limit(self, grads: list[Tensor], most: Tensor | float) -> None:
        """Clips each gradient in place, to a norm of ``most``."""
        for grad in grads:
            clip_gradients([grad], most)


class ClipsEachNumber:
    """Before a learner: each number of a gradient is limited by itself."""

    def limit(self, grads: list[Tensor], most: Tensor | float) -> None:
        """Clips each gradient's entries in place, to within plus and minus ``most``."""
        bound = torch.as_tensor(most)
        with torch.no_grad():
            for grad in grads:
                grad.clamp_(-bound, bound)


CLIPS: dict[str, type] = {"norm": ClipsEachParameter, "value": ClipsEachNumber}
