"""How far algorithms stand above the face: what is inherited hook by hook is read class by class."""

import pytest

from polyak.algorithm import Algorithm
from polyak.algorithms import REGISTRY, get
from polyak.kinds.dataset import LearnsFromData
from polyak.kinds.network_algorithm import NetworkAlgorithm
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.kinds.offline import OfflineAlgorithm
from polyak.kinds.on_policy import OnPolicyAlgorithm

OFF_POLICY = [
    cls for cls in map(get, REGISTRY) if issubclass(cls, OffPolicyAlgorithm) and not issubclass(cls, OfflineAlgorithm)
]
ON_POLICY = [cls for cls in map(get, REGISTRY) if issubclass(cls, OnPolicyAlgorithm)]


def classes(cls: type) -> list[type]:
    """A class and those that it extends, without ``object`` and :class:`Imagining`, which is no algorithm."""
    return [base for base in cls.__mro__ if issubclass(base, Algorithm)]


@pytest.mark.parametrize("cls", OFF_POLICY)
def test_at_most_one_algorithm_stands_between_an_off_policy_one_and_its_kind(cls: type) -> None:
    between = classes(cls)[1 : classes(cls).index(OffPolicyAlgorithm)]
    assert len(between) <= 1, between


@pytest.mark.parametrize("cls", ON_POLICY)
def test_at_most_two_classes_stand_between_an_on_policy_one_and_its_kind(cls: type) -> None:
    """A kind with threads, or an algorithm that it extends."""
    between = cls.__mro__[1 : cls.__mro__.index(OnPolicyAlgorithm)]
    assert len(between) <= 2, between


def test_the_kinds_stand_in_one_line() -> None:
    face = [NetworkAlgorithm, Algorithm]
    assert classes(OnPolicyAlgorithm) == [OnPolicyAlgorithm, *face]
    assert classes(OffPolicyAlgorithm) == [OffPolicyAlgorithm, LearnsFromData, *face]
    assert classes(OfflineAlgorithm) == [OfflineAlgorithm, LearnsFromData, *face]
    assert {cls.__name__ for cls in OFF_POLICY} >= {"SAC", "DQN", "TD3", "Rainbow", "CrossQ", "DroQ"}


@pytest.mark.parametrize("name", REGISTRY)
def test_no_algorithm_is_deeper_than_the_deepest_of_today(name: str) -> None:
    """Offline algorithms that act as well have two kinds; two of them extend DQN besides."""
    most = 7 if name in ("bcq", "discrete_cql") else 6
    assert len(classes(get(name))) <= most, classes(get(name))
