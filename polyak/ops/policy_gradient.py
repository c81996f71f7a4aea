"""Ingredients of policy-gradient losses. B rows."""

from torch import Tensor


def normalized(advantages: Tensor) -> Tensor:
    """Advantages with mean 0 and standard deviation 1. [B] -> [B]"""
    return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def entropy_loss(entropy: Tensor | None, log_prob: Tensor) -> Tensor:
    """-H(pi), or its one-sample estimate E[log pi(a|s)] where the entropy has no closed form.

    The bonus that A3C (arXiv:1602.01783, section 4) and PPO (arXiv:1707.06347, eq. 9) add to stay stochastic.
    entropy [B], log_prob [B] -> []
    """
    return -entropy.mean() if entropy is not None else log_prob.mean()
