"""One thread for small networks, unless the user has chosen."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from polyak import A2C
from polyak.callbacks.callback import ConvertCallback
from polyak.learning.engine import threads
from polyak.learning.engine.threads import SMALL_STEP, chosen_threads, threads_for


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if torch had started with two."""
    before = torch.get_num_threads()
    for name in threads._SET_BY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "AT_IMPORT", 2)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_steps_take_one_and_give_the_rest_back() -> None:
    with threads_for(SMALL_STEP / 2) as number:
        assert number == torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_large_steps_take_all() -> None:
    with threads_for(SMALL_STEP) as number:
        assert number == torch.get_num_threads() == 2


def test_as_many_as_torch_started_with_are_a_choice_too() -> None:
    with chosen_threads(2), threads_for(1.0):
        assert torch.get_num_threads() == 2
    with chosen_threads(-1), threads_for(1.0):  # nobody asks
        assert torch.get_num_threads() == 1
    with pytest.raises(KeyboardInterrupt), chosen_threads(3):
        assert torch.get_num_threads() == 3
        raise KeyboardInterrupt
    assert torch.get_num_threads() == 2
    assert not threads.chosen_by_user()


@pytest.mark.parametrize("by", ["environment", "torch"])
def test_what_the_user_chose_stays(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if by == "environment":
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    else:
        torch.set_num_threads(3)
    with threads_for(1.0):
        assert torch.get_num_threads() == (2 if by == "environment" else 3)


def test_they_are_given_back_after_an_error() -> None:
    def stop(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        assert torch.get_num_threads() == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        A2C("MlpPolicy", "CartPole-v1", device="cpu").learn(10, ConvertCallback(stop))
    assert torch.get_num_threads() == 2
