"""Several learners on parts of a batch learn what one learns on the whole."""

import copy
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing import spawn
from torch.utils._python_dispatch import TorchDispatchMode

from polyak import A2C, DQN, PPO, SAC, TD3
from polyak.experience import RolloutBufferSamples, Transition
from polyak.learning.data_parallel import Group, ProcessGroup, ThreadGroup
from polyak.learning.engine.engine import Engine
from polyak.learning.engine.program import Program
from polyak.learning.learner import Learner

aten = torch.ops.aten
ROWS, UPDATES, LEARNERS = 32, 6, 2
TOLERANCE = 2e-6
"""Gradients agree to rounding, some 1e-7 of their size, and Adam's steps are of the size of the learning rate."""


pytestmark = pytest.mark.usefixtures("interpreted_if_quick")


class Drawing(TorchDispatchMode):
    """Gives a learner the rows of a draw that one learner on the whole batch makes for the same rows.

    Args:
        rank: which of the learners.
        size: how many there are.
    """

    normal = (aten.randn.default, aten.randn_like.default, aten.normal_.default)
    uniform = (aten.rand.default, aten.rand_like.default, aten.rand.out)

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self._rank, self._size = rank, size
        self._generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in (*self.normal, *self.uniform):
            return func(*args, **(kwargs or {}))
        rows, *rest = args[0].shape if isinstance(args[0], Tensor) else args[0]
        draw = torch.randn if func in self.normal else torch.rand
        drawn = draw(rows * self._size, *rest, generator=self._generator).chunk(self._size)[self._rank]
        into = args[0] if func is aten.normal_.default else (kwargs or {}).get("out")
        return drawn if into is None else into.copy_(drawn)


def model(name: str) -> Any:
    options: dict[str, Any] = {"device": "cpu", "seed": 0, "policy_kwargs": {"net_arch": [16, 16]}}
    small = {"buffer_size": 10, "learning_starts": 0}
    rollouts = {"n_steps": ROWS, "normalize_advantage": True}
    if name == "sac":
        return SAC("MlpPolicy", "Pendulum-v1", **small, **options)
    if name == "td3":
        return TD3("MlpPolicy", "Pendulum-v1", **small, **options)
    if name == "dqn":
        return DQN("MlpPolicy", "CartPole-v1", **small, **options)
    if name == "a2c":
        return A2C("MlpPolicy", "Pendulum-v1", **rollouts, **options)
    limit = {"ppo": None, "ppo that continues": 1e3, "ppo that stops": 0.6}[name]
    return PPO("MlpPolicy", "Pendulum-v1", batch_size=ROWS, target_kl=limit, **rollouts, **options)


NAMES = ["sac", "td3", "dqn", "a2c", "ppo", "ppo that continues", "ppo that stops"]
QUICK = {("sac", True), ("ppo that stops", False)}


def batches(name: str) -> list[Any]:
    """Whole batches, the same in every process."""
    generator = torch.Generator().manual_seed(1)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    made: list[Any] = []
    for _ in range(UPDATES):
        if name == "dqn":
            actions = torch.randint(2, (ROWS, 1), generator=generator)
            made.append(Transition(randn(ROWS, 4), actions, randn(ROWS), randn(ROWS, 4), randn(ROWS).abs(),
                                   torch.rand(ROWS, generator=generator)))  # fmt: skip
        elif name in ("sac", "td3"):
            made.append(Transition(randn(ROWS, 3), randn(ROWS, 1).tanh(), randn(ROWS), randn(ROWS, 3),
                                   randn(ROWS).abs(), torch.rand(ROWS, generator=generator)))  # fmt: skip
        else:
            made.append(RolloutBufferSamples(randn(ROWS, 3), randn(ROWS, 1), randn(ROWS), randn(ROWS) - 1,
                                             5 + 3 * randn(ROWS), randn(ROWS)))  # fmt: skip
    return made


def part(batch: Any, rank: int, size: int) -> Any:
    columns = {name: column for name, column in batch._asdict().items() if isinstance(column, Tensor)}
    return batch._replace(**{name: column.chunk(size)[rank].contiguous() for name, column in columns.items()})


def learn(learner: Learner, name: str, rank: int, size: int, compile: bool) -> tuple[Learner, list[bool]]:
    """Some updates on one learner's parts of the batches; where they were skipped."""
    engine = Engine(learner, compile)
    with Drawing(rank, size):
        updates = [learner.update(part(batch, rank, size)) for batch in batches(name)]
    assert engine.status == ("compiled" if compile else "uncompiled")
    return learner, [bool(update.skipped) for update in updates if update.skipped is not None]


def in_threads(learner: Learner, name: str, compile: bool) -> list[tuple[Learner, list[bool]]]:
    group = ThreadGroup(LEARNERS, timeout=60 if not compile else 600)
    twins = [copy.deepcopy(learner) for _ in range(LEARNERS)]

    def start(rank: int) -> tuple[Learner, list[bool]]:
        twins[rank].join(group.place(rank))
        return learn(twins[rank], name, rank, LEARNERS, compile)

    with ThreadPoolExecutor(LEARNERS) as pool:
        return list(pool.map(start, range(LEARNERS)))


def assert_equal_to_one(name: str, results: list[tuple[dict[str, Tensor], list[bool]]]) -> None:
    """Each learner's networks and skipped updates against those of one learner on whole batches."""
    one, skipped = learn(model(name).learner, name, 0, 1, compile=False)
    start = model(name).learner.networks()
    assert any(not torch.equal(tensor, start[key]) for key, tensor in one.networks().items())
    if name.startswith("ppo that"):
        assert any(skipped) == (name == "ppo that stops")
    for networks, theirs in results:
        assert theirs == skipped
        for key, tensor in one.networks().items():
            torch.testing.assert_close(
                networks[key], tensor, rtol=0, atol=TOLERANCE, msg=lambda text, k=key: f"{k}: {text}"
            )
    first = results[0][0]
    assert all(torch.equal(first[key], other[key]) for other, _ in results[1:] for key in first)


@pytest.mark.parametrize(
    ("name", "compile"),
    [
        pytest.param(name, traced, marks=[] if (name, traced) in QUICK else pytest.mark.slow)
        for name in NAMES
        for traced in (False, True)
    ],
)
def test_learners_in_threads_learn_as_one(name: str, compile: bool) -> None:
    results = in_threads(model(name).learner, name, compile)
    assert_equal_to_one(name, [(learner.networks(), skipped) for learner, skipped in results])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "td3", "dqn", "a2c", "ppo that continues"])
def test_compiled_learners_in_threads_learn_as_one(name: str) -> None:
    results = in_threads(model(name).learner, name, compile=True)
    assert_equal_to_one(name, [(learner.networks(), skipped) for learner, skipped in results])


# -- processes ---------------------------------------------------------------------------------------------------------


def in_a_process(rank: int, port: int, folder: str, names: list[str], compilers: bool) -> None:
    """What one of the processes does: every algorithm, line by line and as a program."""
    if not compilers:
        Program.compile = lambda self: None  # type: ignore[method-assign]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=LEARNERS)
    group = ProcessGroup()
    for name in names:
        for compile in (False, True):
            learner = model(name).learner
            learner.join(group)
            learner, skipped = learn(learner, name, rank, LEARNERS, compile)
            torch.save((learner.networks(), skipped), f"{folder}/{name} {compile} {rank}")
    torch.distributed.destroy_process_group()


def assert_processes_learn_as_one(folder: Path, names: list[str], compilers: bool) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(in_a_process, (port, str(folder), names, compilers), nprocs=LEARNERS)
    for name in names:
        for compile in (False, True):
            assert_equal_to_one(name, [torch.load(folder / f"{name} {compile} {rank}") for rank in range(LEARNERS)])


@pytest.mark.slow
def test_learners_in_processes_learn_as_one(tmp_path: Path) -> None:
    assert_processes_learn_as_one(tmp_path, NAMES, compilers=False)


@pytest.mark.slow
def test_compiled_learners_in_processes_learn_as_one(tmp_path: Path) -> None:
    assert_processes_learn_as_one(tmp_path, ["sac", "ppo that continues"], compilers=True)


# -- joining -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(LEARNERS) as threads:
        yield threads


def test_learners_with_other_networks_may_not_join(pool: ThreadPoolExecutor) -> None:
    group = ThreadGroup(2, timeout=60)
    learners = [model("dqn").learner for _ in range(2)]
    with torch.no_grad():
        next(learners[1].parameters()).add_(0.1)

    def join(rank: int) -> str:
        with pytest.raises(ValueError, match="the networks of the learners that join a group differ") as caught:
            learners[rank].join(group.place(rank))
        return str(caught.value)

    assert len(list(pool.map(join, range(2)))) == 2
    assert all(learner.group is None for learner in learners)


def test_a_copy_of_a_learner_is_in_no_group(pool: ThreadPoolExecutor) -> None:
    group = ThreadGroup(2, timeout=60)
    learners = [model("dqn").learner for _ in range(2)]
    list(pool.map(lambda rank: learners[rank].join(group.place(rank)), range(2)))
    assert learners[0].group is not None
    assert copy.deepcopy(learners[0]).group is None


def test_gradients_are_exchanged_at_once() -> None:
    class Counting:
        size = 1
        shapes: list[Any] = []

        def sum(self, tensor: Tensor) -> Tensor:
            self.shapes.append(tuple(tensor.shape))
            return tensor

    learner = model("dqn").learner
    learner.join(Counting())
    Counting.shapes.clear()
    learner.update(batches("dqn")[0])
    assert Counting.shapes == [(sum(p.numel() for p in learner.policy.q_net.parameters()),)]


def test_a_group_of_one_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alone:
        size = 1

        def sum(self, tensor: Tensor) -> Tensor:
            return tensor

    def learned(group: Group | None, compile: bool) -> dict[str, Tensor]:
        learner = model("dqn").learner
        if group is not None:
            learner.join(group)
        return learn(learner, "dqn", 0, 1, compile)[0].networks()

    for compile in (False, True):
        plain, grouped = learned(None, compile), learned(Alone(), compile)
        assert all(torch.equal(plain[key], grouped[key]) for key in plain)


def test_joining_a_group_makes_another_program() -> None:
    learner = model("dqn").learner
    engine = Engine(learner, True)
    run: Callable[[], Any] = lambda: [learner.update(batch) for batch in batches("dqn")]  # noqa: E731
    run()
    group = ThreadGroup(1)
    learner.join(group.place(0))
    run()
    ((new, old),) = engine.programs["gradient_step"].values()
    assert "sum_over_learners" in new.graph.code
    assert "sum_over_learners" not in old.graph.code
