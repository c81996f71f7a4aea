"""Ranking of policies by off-policy estimates of their returns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from polyak.algorithms import class_names, get
from polyak.checkpoint import saved as checkpoint
from polyak.evaluation.off_policy.estimate import Estimate, rank_correlation
from polyak.evaluation.off_policy.importance_sampling import Method, estimate_from_ratios
from polyak.evaluation.off_policy.policy_actions import can_act
from polyak.experience import Dataset

UPDATES = 20_000
"""Default number of gradient steps of a fitted Q evaluation."""


@dataclass(frozen=True)
class Ranking:
    """Policies with estimates of their returns, the best first."""

    rows: tuple[tuple[str, Estimate], ...]
    """Name and estimate of each."""

    def __str__(self) -> str:
        head = ("policy", "estimate", "low", "high", "episodes")
        cells = [head] + [
            (name, *(f"{number:.4g}" for number in (e.value, e.low, e.high)), f"{e.effective_size:.1f}")
            for name, e in self.rows
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join(
            "  ".join(
                cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        )

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)

    @property
    def names(self) -> list[str]:
        """The best first."""
        return [name for name, _ in self.rows]

    def __getitem__(self, name: str) -> Estimate:
        return dict(self.rows)[name]

    def correlation(self, returns: Mapping[str, float]) -> float:
        """Return Spearman's rank correlation with true returns, by name, over the agents whose returns are given."""
        known = [name for name in self.names if name in returns]
        return rank_correlation([self[name] for name in known], [returns[name] for name in known])


def rank_checkpoints(
    policies: Sequence[Any] | Mapping[str, Any],
    dataset: Dataset,
    method: str = "fqe",
    *,
    behaviour: Any = None,
    gamma: float = 0.99,
    n_updates: int = UPDATES,
    fqe: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Ranking:
    """Rank policies by off-policy estimates of their returns.

    Args:
        policies: files of models, models, or other policies; or name -> such.
        dataset: episodes of a behaviour policy, in the policies' spaces. Where a method takes ratios and a critic, the
            critic learns from one half of the episodes and the ratios are those of the other.
        method: ``"fqe"`` for any policy, or one of
            :func:`~polyak.evaluation.off_policy.importance_sampling.estimate_from_ratios` for stochastic ones.
        behaviour: the behaviour policy, see there.
        gamma: discount of one step.
        n_updates: gradient steps of the fitted Q evaluation of each policy.
        fqe: further arguments of :class:`~polyak.algorithms.fqe.FQE`, such as ``policy``, ``learning_rate`` or
            ``deterministic``.
        confidence: level of the intervals, in (0, 1).
        seed: of every FQE, so that all start alike.

    Returns:
        the policies, the best first.

    Raises:
        ValueError: fewer than one policy, names that occur twice, something that is no policy, or as the method.
    """
    methods = ("fqe", *get_args(Method))
    if method not in methods:
        raise ValueError(f"method={method!r} is unknown: use {', '.join(map(repr, methods))}.")
    named = _named(policies)
    options = {"policy": "MlpPolicy", "gamma": gamma, "seed": seed, **(fqe or {})}

    def evaluate(policy: Any) -> Estimate:
        if method == "fqe":
            return _fitted(policy, dataset, options, n_updates).estimate(confidence=confidence)
        some, others, critic = dataset, dataset, None
        if method.endswith("dr"):
            some, others = _halves(dataset)
            critic = _fitted(policy, some, options, n_updates)
        kind: Any = method
        return estimate_from_ratios(
            policy, others, kind, behaviour=behaviour, critic=critic, gamma=gamma, confidence=confidence
        )

    found = [(name, evaluate(policy)) for name, policy in named.items()]
    return Ranking(tuple(sorted(found, key=lambda row: -row[1].value)))


def _fitted(policy: Any, dataset: Dataset, options: Mapping[str, Any], n_updates: int) -> Any:
    return get("fqe")(env=dataset, target=policy, **options).learn(n_updates, log_interval=None)


def _halves(dataset: Dataset) -> tuple[Dataset, Dataset]:
    """Every second episode, and the others."""
    if dataset.n_episodes < 2:
        raise ValueError("dataset has one episode: doubly robust estimates take one for the critic, and another one.")
    return dataset.select(range(0, dataset.n_episodes, 2)), dataset.select(range(1, dataset.n_episodes, 2))


def _named(policies: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Name -> policy, files read."""
    if not isinstance(policies, Mapping):
        names = [
            os.fspath(p) if isinstance(p, str | os.PathLike) else f"{type(p).__name__} {i}"
            for i, p in enumerate(policies)
        ]
        if len(set(names)) < len(names):
            raise ValueError(f"policies={names} has a file twice.")
        policies = dict(zip(map(str, names), policies, strict=True))
    if not policies:
        raise ValueError("policies is empty: pass at least one file or model.")
    return {name: _read(policy) for name, policy in policies.items()}


def _read(policy: Any) -> Any:
    """A model from its file; anything else as it is."""
    if isinstance(policy, str | os.PathLike):
        saved = checkpoint.read(policy)
        name = saved.info["algorithm"]
        if name not in class_names():
            raise ValueError(f"{policy} holds a model of {name!r}, which is not polyak's: load it, and pass the model.")
        return checkpoint.built(get(class_names()[name]), saved, policy, checkpoint.LoadRequest(device="cpu"))
    if not can_act(policy):
        raise ValueError(
            f"policies: {policy!r:.100} cannot act. Pass a file, a model, or a function of one observation."
        )
    return policy
