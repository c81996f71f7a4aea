"""How far algorithms stand above their kind: what is inherited hook by hook is read class by class."""

import pytest

from polyak.algorithms import REGISTRY, get
from polyak.kinds.dataset import LearnsFromData
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.kinds.offline import OfflineAlgorithm

OFF_POLICY = [
    cls for cls in map(get, REGISTRY) if issubclass(cls, OffPolicyAlgorithm) and not issubclass(cls, OfflineAlgorithm)
]


@pytest.mark.parametrize("cls", OFF_POLICY)
def test_at_most_one_algorithm_stands_between_an_off_policy_one_and_its_kind(cls: type) -> None:
    between = cls.__mro__[1 : cls.__mro__.index(OffPolicyAlgorithm)]
    assert len(between) <= 1, between


def test_the_kind_derives_from_what_replays_alone() -> None:
    assert OffPolicyAlgorithm.__bases__ == OfflineAlgorithm.__bases__ == (LearnsFromData,)
    assert {cls.__name__ for cls in OFF_POLICY} >= {"SAC", "DQN", "TD3", "Rainbow", "CrossQ", "DroQ"}
