"""Softmax values and policies of action values.

Shapes: B rows, A actions, K sampled actions.
"""

from torch import Tensor


def soft_value(q: Tensor, temperature: Tensor | float) -> Tensor:
    """Value of the optimal policy with an entropy bonus: temperature * logsumexp(q / temperature).

    It approaches the maximum as the temperature falls to 0. Haarnoja et al. 2017 (arXiv:1702.08165) eq. 6. q [B, A] ->
    [B]
    """
    return temperature * (q / temperature).logsumexp(1)


def soft_log_policy(q: Tensor, temperature: Tensor | float) -> Tensor:
    """temperature * log pi(a|s) of the policy pi = softmax(q / temperature). q [B, A] -> [B, A]

    As the temperature falls to 0, it approaches 0 for the greedy action, and the gap to it for the others.
    """
    return temperature * (q / temperature).log_softmax(1)


def munchausen_bonus(
    q: Tensor, actions: Tensor, alpha: Tensor | float, temperature: Tensor | float, least: Tensor | float
) -> Tensor:
    """The bonus of Munchausen learning: alpha * clip(temperature * log pi(a|s), least, 0).

    Vieillard et al. 2020 (arXiv:2007.14430) eq. 1 and section 3.1.

    Args:
        q: [B, A] values of the states in which the actions were taken, by the target network.
        actions: [B] int64.
        alpha: weight of the bonus, in [0, 1].
        temperature: of the policy.
        least: negative lower bound of the scaled logarithm.
    Returns:
        bonus [B], at most 0.
    """
    taken = soft_log_policy(q, temperature).gather(1, actions.view(-1, 1)).squeeze(1)
    return alpha * taken.clamp(min=least).clamp(max=0)


def softmax_mean(q: Tensor, beta: Tensor | float, log_weights: Tensor | None = None) -> Tensor:
    """Mean of values weighted by their softmax: sum_a softmax(beta q)_a q_a.

    It is the plain mean for beta = 0, and approaches the maximum as beta grows: Pan et al. 2020 (arXiv:2010.09177) eq.
    1.

    Args:
        q: [B, K]
        beta: inverse temperature, at least 0. It multiplies only differences of values, so that nothing overflows.
        log_weights: [B, K] logarithms of further factors of the weights, such as the inverse density of a sampled
            action.
    Returns:
        means [B].
    """
    logits = beta * (q - q.amax(1, keepdim=True))
    if log_weights is not None:
        logits = logits + log_weights
    return (logits.softmax(1) * q).sum(1)
