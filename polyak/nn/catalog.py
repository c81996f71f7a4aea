"""Policies by name: the class, features extractor and arguments that a name such as ``"MlpPolicy"`` stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import (
    CombinedExtractor,
    ExtractorClass,
    FlattenExtractor,
    NatureCNN,
    default_extractor,
    stacked_hint,
)
from polyak.nn.options import check_counts, check_keywords
from polyak.nn.policies.base import Policy

POLICY_EXTRACTORS: Mapping[str, ExtractorClass] = {
    "MlpPolicy": FlattenExtractor,
    "LinearPolicy": FlattenExtractor,
    "CnnPolicy": NatureCNN,
    "MultiInputPolicy": CombinedExtractor,
}
"""The features extractor for each name of a policy."""
USUAL_POLICIES = ("MlpPolicy", "CnnPolicy", "MultiInputPolicy")
"""The names that nearly every algorithm accepts."""


@dataclass(frozen=True)
class PolicyRecipe:
    """A policy class with some of its arguments filled in, under the name that users give to an algorithm.

    It is called like the class: ``recipe(observation_space, action_space, **policy_kwargs)``.
    """

    name: str
    policy_class: type[Policy]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    recurrent: type[Policy] | None = None
    """The recurrent class, for ``policy_kwargs`` with ``memory``."""

    def __call__(self, observation_space: spaces.Space, action_space: spaces.Space, **policy_kwargs: Any) -> Policy:
        """Build the policy.

        Raises:
            TypeError: a keyword that the policy does not have; the message lists those it has.
            PolicyError: a policy name that does not suit the observation space, or an argument out of range.
        """
        cls = self.policy_class
        if {**self.defaults, **policy_kwargs}.get("memory") is None:
            policy_kwargs.pop("memory", None)
        elif self.recurrent is None:
            raise PolicyError(
                f"memory={policy_kwargs['memory']!r}, but this algorithm has no recurrent policy. Use PPO, A2C, "
                "TRPO, DQN, SAC or TD3; or stack observations: polyak.envs.VecFrameStack."
            )
        else:
            cls = self.recurrent
        check_keywords(self.name, policy_kwargs, cls.keywords(**self.defaults))
        parts = (value for value in self.defaults.values() if isinstance(value, type))
        check_counts((cls, *parts), policy_kwargs)
        if policy_kwargs.get("features_extractor_class") is None:
            check_policy_fits(self.name, observation_space, policy_kwargs.get("normalize_images", True))
            policy_kwargs = {**policy_kwargs, "features_extractor_class": POLICY_EXTRACTORS[self.name]}
        return cls(observation_space, action_space, **{**self.defaults, **policy_kwargs})


def policy_aliases(
    policy_class: type[Policy], recurrent: type[Policy] | None = None, **defaults: Any
) -> dict[str, PolicyRecipe]:
    """Returns recipes of one policy class by the names ``"MlpPolicy"``, ``"CnnPolicy"`` and ``"MultiInputPolicy"``.

    Args:
        policy_class: the class to build.
        recurrent: the recurrent class, for ``policy_kwargs={"memory": ...}``.
        defaults: arguments of the class that differ for this algorithm; ``policy_kwargs`` may override them, except for
            those that make the algorithm what it is (such as ``actor``).
    """
    return {name: PolicyRecipe(name, policy_class, dict(defaults), recurrent) for name in USUAL_POLICIES}


def check_policy_fits(name: str, observation_space: spaces.Space, normalize_images: bool = True) -> None:
    """Check that a policy's name suits the observation space.

    Raises:
        PolicyError: naming the policy, the space and the policy to use.
    """
    lstm = "Lstm" if "Lstm" in name else ""  # of RecurrentPPO
    if isinstance(observation_space, spaces.Dict):
        if name != f"MultiInput{lstm}Policy":
            raise PolicyError(
                f"{name!r} cannot read the Dict observation space {observation_space}. Use "
                f"'MultiInput{lstm}Policy', or give "
                "policy_kwargs a features_extractor_class that reads it."
            )
        return
    suitable = default_extractor(observation_space, normalize_images)
    better = next(key for key, extractor in POLICY_EXTRACTORS.items() if extractor is suitable)
    better = better.replace("Policy", f"{lstm}Policy")
    if name == f"MultiInput{lstm}Policy":
        raise PolicyError(
            f"{name!r} reads Dict observation spaces, but the space is {observation_space}. Use {better!r}."
        )
    images = isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 3
    if name == f"Cnn{lstm}Policy" and not images:
        raise PolicyError(
            f"{name!r} reads images (a Box of three dimensions), but the space is {observation_space}. "
            + (stacked_hint(observation_space) or f"Use {better!r}.")
        )
