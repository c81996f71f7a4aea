"""Shell completion of option values: see ``polyak --install-completion``."""

from __future__ import annotations

from collections.abc import Callable


def algorithms(incomplete: str) -> list[str]:
    """Names of algorithms that begin like this."""
    from polyak.algorithms import names

    return [name for name in names() if name.startswith(incomplete.lower())]


def environments(incomplete: str) -> list[str]:
    """Registered ids of environments that begin like this."""
    import gymnasium

    from polyak.envs.registration import provide

    provide(incomplete)
    return sorted(name for name in gymnasium.registry if name.startswith(incomplete))


COMPLETIONS: dict[str, Callable[[str], list[str]]] = {
    "algo": algorithms,
    "algos": algorithms,
    "env": environments,
    "envs": environments,
}
"""The completion functions, by the names of the options' fields."""
