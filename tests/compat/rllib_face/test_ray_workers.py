"""Who asks processes on Ray: a death is reported once, and replacements are not taken for those who died."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from polyak.distributed import ray_workers
from polyak.distributed.ray_workers import Failure, Tolerance, Workers
from tests.compat.rllib_face.fake_ray import FakeRay


class Echo:
    """Says what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name

    def name_of(self) -> str:
        return self.name

    def say(self, what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return self.name, what


@pytest.fixture
def workers(fake: FakeRay) -> Iterator[Workers]:
    made = Workers(Echo, [("a",), ("b",)], 60.0)
    yield made
    made.stop()
    assert not fake.running


def all_answers(workers: Workers) -> list[tuple[int, str, Any]]:
    found = []
    while answers := workers.answers():
        found += answers
    return found


def ask(workers: Workers, worker: int, *words: Any) -> None:
    for word in words:
        workers.ask(worker, "say", word)


def test_a_death_is_reported_once_whatever_was_asked(fake: FakeRay, workers: Workers) -> None:
    ask(workers, 0, 1, 2, 3)
    ask(workers, 1, 4)
    fake.actors[0].die()
    found = all_answers(workers)
    assert [(worker, method) for worker, method, _ in found] == [(0, "say"), (1, "say")]
    assert isinstance(found[0][2], Failure)
    assert found[0][2].gone
    assert found[1][2] == ("b", 4)
    assert workers.waiting_for(0) == 0


def test_what_was_done_before_is_answered_before(fake: FakeRay, workers: Workers) -> None:
    ask(workers, 0, 1, 2, 3)
    fake.actors[0].work(1)
    fake.actors[0].die()
    (_, _, first), (_, _, second) = all_answers(workers)
    assert first == ("a", 1)
    assert isinstance(second, Failure)


def test_each_death_takes_one_replacement_which_answers_what_it_is_asked(fake: FakeRay, workers: Workers) -> None:
    for deaths in (1, 2):
        ask(workers, 0, *range(5))
        fake.actors[-1 if deaths > 1 else 0].die()
        said = []
        while answers := workers.answers():
            for worker, _, answer in answers:
                if isinstance(answer, Failure):
                    workers.renew(worker)
                    ask(workers, worker, "anew")
                else:
                    said.append(answer)
        assert said == [("a", "anew")]
        assert workers.restarts == deaths


def test_what_is_raised_is_reported_for_each_request(workers: Workers) -> None:
    ask(workers, 0, ValueError("one"), "two", ValueError("three"))
    one, two, three = (answer for _, _, answer in all_answers(workers))
    assert (str(one.error), two, str(three.error)) == ("one", ("a", "two"), "three")
    assert not one.gone


def test_one_that_does_not_answer_in_time_is_reported_once(fake: FakeRay, workers: Workers) -> None:
    fake.speed = 0
    for word in (1, 2):
        workers.ask(0, "say", word, within=0.0)
    ((worker, _, answer),) = all_answers(workers)
    assert worker == 0
    assert answer.gone
    assert "process 1 has not answered for 0 seconds" in str(answer.error)
    assert not fake.actors[0].alive


def test_whether_there_is_an_answer_takes_none(workers: Workers) -> None:
    assert not workers.has_answer(0.0)
    ask(workers, 0, 1)
    assert workers.has_answer(1.0)
    assert all_answers(workers) == [(0, "say", ("a", 1))]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of these workers alone: other threads of this process have the true one."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds + 1e-3

    monkeypatch.setattr(ray_workers, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


def tolerant(**limits: Any) -> Workers:
    return Workers(Echo, [("a",), ("b",)], 60.0, Tolerance(said=", as set there", **limits))


LOST = Failure(OSError("it died\nsee the log"), gone=True)
RAISED = Failure(ValueError("bad\nlines"), gone=False)


def test_what_was_asked_first_is_asked_of_each_replacement(workers: Workers) -> None:
    assert workers.begin("name_of", 60.0) == {0: "a", 1: "b"}
    with pytest.warns(RuntimeWarning, match=r"^echo 2 of 2 is gone: it died Another\.$"):
        workers.replace(1, LOST, "echo", "Another.")
    assert all_answers(workers) == [(1, "name_of", "b")]


@pytest.mark.filterwarnings("ignore:echo:RuntimeWarning")
def test_so_many_are_replaced_within_a_time_in_all_and_in_a_row(fake: FakeRay, now: list[float]) -> None:
    for within, span in ((3600.0, "within 3600 seconds"), (math.inf, "in all")):
        most = tolerant(restarts=2, within=within)
        for _ in range(2):
            most.replace(0, LOST, "echo", "")
        with pytest.raises(RuntimeError, match=f"not replaced: at most 2 are {span}, and inf in a row, as set there"):
            most.replace(0, LOST, "echo", "")
        now[0] += 3601.0
    most = tolerant(restarts=1)
    for _ in range(3):
        most.replace(0, LOST, "echo", "")
        now[0] += 3601.0
    assert most.restarts == 3
    row = tolerant(in_a_row=1)
    row.replace(0, LOST, "echo", "")
    row.failures = 0
    row.replace(1, LOST, "echo", "")
    with pytest.raises(RuntimeError, match="not replaced"):
        row.replace(1, LOST, "echo", "")


def test_what_one_raises_is_raised_unless_it_is_to_be_replaced(fake: FakeRay) -> None:
    with pytest.raises(ValueError, match="bad"):
        tolerant().replace(0, RAISED, "echo", "")
    with pytest.warns(RuntimeWarning, match="bad\nlines"):
        tolerant(errors=True).replace(0, RAISED, "echo", "")
    unmade = OSError("while making\nno licence")
    unmade.actor_init_failed = True  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="echo 1 of 2 could not be made: no licence"):
        tolerant().replace(0, Failure(unmade, gone=True), "echo", "")
    with pytest.warns(RuntimeWarning, match="while making"):
        tolerant(unmade=True).replace(0, Failure(unmade, gone=True), "echo", "")


def test_others_continue_until_there_are_none(fake: FakeRay) -> None:
    made = tolerant(shrinks=True)
    with pytest.warns(RuntimeWarning, match="The others continue"):
        made.replace(0, LOST, "echo", "")
    assert made.restarts == 0
    with pytest.raises(RuntimeError, match="the last one"):
        made.replace(1, LOST, "echo", "")


@pytest.mark.filterwarnings("ignore:echo:RuntimeWarning")
def test_the_second_replacement_of_one_waits(fake: FakeRay, now: list[float]) -> None:
    made = tolerant(delay=5.0)
    for _ in range(2):
        made.replace(0, LOST, "echo", "")
    made.renew_due()
    assert made.restarts == 1, "there is another, for which nothing has to wait"
    now[0] = 105.0
    made.renew_due()
    assert made.restarts == 2
    for worker in (1, 0, 1):
        made.replace(worker, LOST, "echo", "")
    made.renew_due()
    assert now[0] >= 110.0, "both are gone"
    assert made.restarts == 5
