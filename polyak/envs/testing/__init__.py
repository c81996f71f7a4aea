"""Small environments with known answers, for tests and examples."""

from polyak.envs.testing.bit_flipping import BitFlippingEnv
from polyak.envs.testing.identity import (
    FakeImageEnv,
    IdentityEnv,
    IdentityEnvBox,
    IdentityEnvMultiBinary,
    IdentityEnvMultiDiscrete,
)
from polyak.envs.testing.invalid_actions import (
    InvalidActionEnvDiscrete,
    InvalidActionEnvMultiBinary,
    InvalidActionEnvMultiDiscrete,
)
from polyak.envs.testing.multi_input import SimpleMultiObsEnv

__all__ = [
    "BitFlippingEnv",
    "FakeImageEnv",
    "IdentityEnv",
    "IdentityEnvBox",
    "IdentityEnvMultiBinary",
    "IdentityEnvMultiDiscrete",
    "InvalidActionEnvDiscrete",
    "InvalidActionEnvMultiBinary",
    "InvalidActionEnvMultiDiscrete",
    "SimpleMultiObsEnv",
]
