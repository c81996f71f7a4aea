"""The error of networks and policies."""


class PolicyError(ValueError, AssertionError):
    """A policy, network or head cannot be built or used with these arguments.

    It is also an ``AssertionError`` because that is what Stable-Baselines3 raises in these places, and code that was
    written for it may catch it.
    """
