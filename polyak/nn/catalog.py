"""Which network for which space: default features extractors, and the named policies with their ``policy_kwargs``."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gymnasium import spaces
from torch import nn

from polyak.envs.spaces import is_image_space
from polyak.nn.encoders import CombinedExtractor, FlattenExtractor, NatureCNN
from polyak.nn.errors import PolicyError

if TYPE_CHECKING:
    from polyak.nn.policies import Policy

ExtractorClass = Callable[..., nn.Module]
"""A class of modules with an attribute ``features_dim``, called with the observation space and its own kwargs."""

POLICY_EXTRACTORS: Mapping[str, ExtractorClass] = {
    "MlpPolicy": FlattenExtractor,
    "CnnPolicy": NatureCNN,
    "MultiInputPolicy": CombinedExtractor,
}
"""The features extractor that a policy's name stands for."""


def default_extractor(observation_space: spaces.Space, normalize_images: bool = True) -> ExtractorClass:
    """The features extractor for a space: one for each key of a Dict, a CNN for pictures, else a flat vector."""
    return POLICY_EXTRACTORS[policy_for(observation_space, normalize_images)]


def policy_for(observation_space: spaces.Space, normalize_images: bool = True) -> str:
    """Name of the policy that suits a space.

    Args:
        observation_space: what the policy shall read.
        normalize_images: whether pictures are uint8; without it, any Box of three dimensions is a picture.
    """
    if isinstance(observation_space, spaces.Dict):
        return "MultiInputPolicy"
    picture = is_image_space(observation_space, normalized_image=not normalize_images)
    return "CnnPolicy" if picture else "MlpPolicy"


def make_extractor(
    observation_space: spaces.Space,
    extractor_class: ExtractorClass,
    extractor_kwargs: Mapping[str, Any] | None,
    normalize_images: bool,
) -> nn.Module:
    """Build a features extractor; the picture networks are told when the pictures are not uint8.

    Raises:
        PolicyError: it has no ``features_dim``.
    """
    kwargs = dict(extractor_kwargs or {})
    if not normalize_images and _is_subclass(extractor_class, (NatureCNN, CombinedExtractor)):
        kwargs.setdefault("normalized_image", True)
    extractor = extractor_class(observation_space, **kwargs)
    if not isinstance(extractor, nn.Module) or not isinstance(getattr(extractor, "features_dim", None), int):
        raise PolicyError(
            f"features_extractor_class={extractor_class!r} must make a torch module with an integer features_dim: "
            "subclass BaseFeaturesExtractor."
        )
    return extractor


def _is_subclass(candidate: Any, classes: tuple[type, ...]) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, classes)


# --- named policies -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PolicyRecipe:
    """A policy class with some of its arguments filled in, under the name that users give to an algorithm.

    It is called like the class: ``recipe(observation_space, action_space, **policy_kwargs)``.
    """

    name: str
    policy_class: type[Policy]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, observation_space: spaces.Space, action_space: spaces.Space, **policy_kwargs: Any) -> Policy:
        """Build the policy.

        Raises:
            TypeError: a keyword that the policy does not have; the message lists those it has.
            PolicyError: a policy name that does not suit the observation space, or an argument out of range.
        """
        check_keywords(self.name, policy_kwargs, self.policy_class.keywords(**self.defaults))
        if policy_kwargs.get("features_extractor_class") is None:
            check_policy_fits(self.name, observation_space, policy_kwargs.get("normalize_images", True))
            policy_kwargs = {**policy_kwargs, "features_extractor_class": POLICY_EXTRACTORS[self.name]}
        return self.policy_class(observation_space, action_space, **{**self.defaults, **policy_kwargs})


def policy_aliases(policy_class: type[Policy], **defaults: Any) -> dict[str, PolicyRecipe]:
    """``"MlpPolicy"``, ``"CnnPolicy"`` and ``"MultiInputPolicy"`` for one policy class.

    Args:
        policy_class: what to build.
        defaults: arguments of the class that differ for this algorithm; ``policy_kwargs`` may override them, except for
            those that make the algorithm what it is (such as ``actor``).
    """
    return {name: PolicyRecipe(name, policy_class, dict(defaults)) for name in POLICY_EXTRACTORS}


def check_policy_fits(name: str, observation_space: spaces.Space, normalize_images: bool = True) -> None:
    """Check that a policy's name suits the observation space.

    Raises:
        PolicyError: naming the policy, the space and the policy to use.
    """
    if isinstance(observation_space, spaces.Dict):
        if name != "MultiInputPolicy":
            raise PolicyError(
                f"{name!r} cannot read the Dict observation space {observation_space}. Use 'MultiInputPolicy', or give "
                "policy_kwargs a features_extractor_class that reads it."
            )
        return
    better = policy_for(observation_space, normalize_images)
    if name == "MultiInputPolicy":
        raise PolicyError(
            f"'MultiInputPolicy' reads Dict observation spaces, but the space is {observation_space}. Use {better!r}."
        )
    if name == "CnnPolicy" and not (isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 3):
        raise PolicyError(
            f"'CnnPolicy' reads pictures (a Box of three dimensions), but the space is {observation_space}. "
            f"Use {better!r}."
        )


def keywords_of(module_class: type) -> set[str]:
    """Names of the arguments of a class that ``policy_kwargs`` may hold.

    Where an ``__init__`` takes ``**kwargs``, those of the next class up count too.
    """
    names: set[str] = set()
    for owner in module_class.__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names - {"self", "observation_space", "action_space"}


def check_keywords(owner: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Check ``policy_kwargs`` against the names that a policy knows.

    Raises:
        TypeError: naming the unknown one, its likeliest correction and all known names.
    """
    for name in given:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(
            f"{owner} got an unexpected keyword argument {name!r} in policy_kwargs.{hint} It knows: "
            f"{', '.join(sorted(known))}; and optimizer_class, optimizer_kwargs."
        )


def warn_without_sde(**options: tuple[Any, Any]) -> None:
    """Warn of options that only state-dependent exploration reads, given as name=(value, default) without it."""
    changed = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
    if changed:
        warnings.warn(f"{', '.join(changed)} has no effect without use_sde=True.")
