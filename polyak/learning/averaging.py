"""Averages of the weights that a learner trains, which may act in their place."""

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Average(AveragedModel):
    """The average of a policy's weights over some of their updates.

    Polyak and Juditsky 1992, "Acceleration of Stochastic Approximation by Averaging", SIAM J. Control Optim. 30.
    Buffers, such as statistics of normalisation, are the present ones of the policy.

    Args:
        policy: whose weights they are, of which it makes a copy.
    """

    acts: Tensor
    """[] bool: the policy has the average, and this has the weights that are trained."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__(policy)
        self.requires_grad_(False).eval()
        for module in self.module.modules():  # optimizers hang on some
            vars(module).pop("optimizer", None)
        self.register_buffer("acts", torch.tensor(False))

    @torch.no_grad()
    def follow(self, policy: nn.Module, decay: float | None) -> None:
        """Count the policy's present weights w: average <- decay average + (1 - decay) w; with ``None`` all count the
        same."""
        self.multi_avg_fn = None if decay is None else get_ema_multi_avg_fn(decay)
        self.update_parameters(policy)

    @torch.no_grad()
    def exchange(self, policy: nn.Module) -> None:
        """Give the policy the average in return for its weights, or the other way round."""
        for ours, theirs in zip(self.module.parameters(), policy.parameters(), strict=True):
            kept = theirs.clone()
            theirs.copy_(ours)
            ours.copy_(kept)
        self.acts.logical_not_()
