"""Who asks processes on Ray: a death is reported once, and replacements are not taken for those who died."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from polyak.distributed import ray_workers
from polyak.distributed.ray_workers import Failure, Workers
from tests.scale.fake_ray import FakeRay


class Echo:
    """Says what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name

    def say(self, what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return self.name, what


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setattr(ray_workers, "ray", lambda: made)
    return made


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
