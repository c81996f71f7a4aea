"""RLlib's names: configs that build algorithms, modules and catalogs, and classes for training on Ray.

Names are imported from their files when first used, so that importing this module stays light.
"""

from typing import TYPE_CHECKING, Any

from polyak.compat import rllib_face as _names

if TYPE_CHECKING:
    from polyak.compat.rllib_face import *  # noqa: F403

__all__ = _names.__all__


def __getattr__(name: str) -> Any:
    return getattr(_names, name)


def __dir__() -> list[str]:
    return __all__
