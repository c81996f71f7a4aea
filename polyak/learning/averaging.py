"""Averages of a learner's weights, which may act in place of the latest ones."""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Average(AveragedModel):
    """The average of a policy's weights over some of their updates.

    Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging", SIAM J. Control Optim. 30.
    Buffers, such as statistics of normalisation, are copied from the policy, not averaged.

    Args:
        policy: the policy whose weights are averaged; it is copied.
    """

    acts: Tensor
    """[] bool: whether the average and the trained weights are exchanged: the policy holds the average, this module the
    trained weights."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__(policy)
        self.requires_grad_(False).eval()
        for module in self.module.modules():  # some modules refer to their optimizers
            vars(module).pop("optimizer", None)
        self.register_buffer("acts", torch.tensor(False))

    @torch.no_grad()
    def follow(self, policy: nn.Module, decay: float | None) -> None:
        """Add the policy's present weights w to the average: average <- decay average + (1 - decay) w; ``None`` weighs
        all equally."""
        self.multi_avg_fn = None if decay is None else get_ema_multi_avg_fn(decay)
        self.update_parameters(policy)

    @torch.no_grad()
    def exchange(self, policy: nn.Module) -> None:
        """Swap the policy's weights and the average; a second call swaps them back."""
        for ours, theirs in zip(self.module.parameters(), policy.parameters(), strict=True):
            kept = theirs.clone()
            theirs.copy_(ours)
            ours.copy_(kept)
        self.acts.logical_not_()
