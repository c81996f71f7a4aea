"""Images that runners send: every frame of a stack once, and compressed where that is asked for."""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces

import polyak
from polyak.distributed import ray_workers
from polyak.distributed.runner_process import Chunk, Ends
from polyak.distributed.shard_process import ShardProcess
from polyak.experience import ReplayBuffer, frames
from polyak.experience.record import Experience
from tests.compat.rllib_face.fake_ray import FakeRay
from tests.worlds import World

SIZE, STACKED = 36, 4
FRAME = SIZE * SIZE


class Frames(World):
    """A stack of the latest frames, of dots that nothing compresses, or of one colour each."""

    observation_space, truncates = spaces.Box(0, 255, (STACKED, SIZE, SIZE), np.uint8), True
    frames: np.ndarray

    def __init__(self, dots: bool = True, length: int = 20) -> None:
        self.dots, self.length = dots, length

    def begin(self) -> None:
        self.frames = np.zeros((STACKED, SIZE, SIZE), np.uint8)

    def look(self) -> np.ndarray:
        colours = self.np_random.integers(1, 256, (1, SIZE, SIZE) if self.dots else (1, 1, 1), np.uint8)
        self.frames = np.concatenate([self.frames[1:], np.broadcast_to(colours, (1, SIZE, SIZE))])
        return self.frames

    def act(self, action: Any) -> float:
        return float(action)


def sent(value: Any) -> tuple[Any, int]:
    """What comes out of a pickle, and its size."""
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    found = pickle.loads(content, buffers=[bytes(buffer) for buffer in buffers])
    return found, len(content) + sum(buffer.raw().nbytes for buffer in buffers)


def chunk_of(dots: bool, steps: int, compression: Any) -> Chunk:
    """Steps of two environments, one of which has ended an episode after five."""
    envs = [Frames(dots, 5), Frames(dots, 100)]
    now = [env.reset(seed=number)[0] for number, env in enumerate(envs)]
    seen, ends = [np.stack(now)], list[Ends]()
    for step in range(steps):
        then = [env.step(0) for env in envs]
        rows = np.array([truncated for *_, truncated, _ in then]).nonzero()[0]
        now = [observation for observation, *_ in then]
        if len(rows):
            ends.append(Ends(step, rows, np.stack([now[row] for row in rows]), {}, {}))
            for row in rows:
                now[row] = envs[row].reset()[0]
        seen.append(np.stack(now))
    columns = Experience({"rewards": np.arange(steps * 2.0).reshape(steps, 2)})
    infos: list[Any] = [[{}, {}]] * steps
    whole = {"image": np.stack(seen), "place": np.arange((steps + 1) * 2.0).reshape(-1, 2, 1)}
    own = [end._replace(successors={"image": end.successors, "place": np.zeros((1, 1))}) for end in ends]
    return Chunk(columns, None, own, infos, whole, None, {}, compression=compression)


@pytest.mark.parametrize(("dots", "compression", "most"), [(True, None, 1.0), (True, "lz4", 1.1), (False, "lz4", 0.1)])
def test_each_frame_of_a_chunk_travels_once(dots: bool, compression: Any, most: float) -> None:
    steps = 40
    chunk = chunk_of(dots, steps, compression)
    found, size = sent(chunk)
    for name, column in chunk.seen.items():
        np.testing.assert_array_equal(found.seen[name], column)
        assert found.seen[name].flags.writeable is (name == "image")
    assert len(chunk.ends) == len(found.ends) == 8
    for end, own in zip(found.ends, chunk.ends, strict=True):
        np.testing.assert_array_equal(end.successors["image"], own.successors["image"])
    np.testing.assert_array_equal(found.columns["rewards"], chunk.columns["rewards"])
    there_are = 2 * (steps + 1) + len(chunk.ends) + 1
    assert size < most * there_are * FRAME + 150 * steps
    assert size > 0 if most < 1 else size > there_are * FRAME


@pytest.mark.parametrize("channels", [3, 4])
def test_images_that_are_no_stacks_travel_as_they_are(channels: int) -> None:
    """It is found out once in a chunk."""
    images = np.random.default_rng(0).integers(0, 256, (40, 2, channels, SIZE, SIZE), np.uint8)
    assert frames.as_sent(images) == [pytest.approx(images)]
    assert frames.as_sent(images)[0] is images
    numbers = np.zeros((40, 2, 3), np.float32)
    assert frames.as_sent(numbers, compression="lz4")[0] is numbers
    flat = np.full((40, 2, 100), 7, np.uint8)
    found, size = sent(frames.as_sent(flat, compression="lz4"))
    np.testing.assert_array_equal(found[0], flat)
    assert size < flat.nbytes / 10


@pytest.mark.parametrize("algorithm", ["PPO", "DQN", "IMPALA"])
def test_what_is_learned_is_the_same_and_few_bytes_come(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay()
    monkeypatch.setattr(ray_workers, "ray", lambda: fake)
    own: dict[str, Any] = {
        "PPO": {"n_steps": 64, "batch_size": 64, "n_epochs": 1},
        "DQN": {"learning_starts": 32, "batch_size": 8, "buffer_size": 200, "train_freq": 4, "steps_per_request": 64},
        "IMPALA": {"n_steps": 64, "asynchronous": False},
    }[algorithm]
    own |= {"policy_kwargs": {"net_arch": [8]}, "seed": 0, "compile": False, "device": "cpu", "n_runners": 2}
    models: list[Any] = []
    for transport, compression in (("local", None), ("ray", None), ("ray", "lz4")):
        how: Any = {"transport": transport, "compression": compression}
        models.append(getattr(polyak, algorithm)("MlpPolicy", Frames, **own, **how))
        models[-1].learn(256)
    weights = [[part.detach().numpy() for part in model.policy.parameters()] for model in models]
    for ours, *others in zip(*weights, strict=True):
        for other in others:
            np.testing.assert_array_equal(ours, other)
    for model in models[1:]:
        flow = model.env.traffic.read()
        assert FRAME < flow.bytes / flow.rows.sum() < 1.25 * FRAME, "last observations of episodes are not sent again"


def test_lz4_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "import_module", lambda name: __import__("no_such_module_" + name))
    with pytest.raises(ImportError, match=r"compression='lz4' needs lz4: pip install 'polyak\[scale\]'"):
        polyak.PPO("MlpPolicy", Frames, n_runners=1, transport="local", compression="lz4", n_steps=16, batch_size=16)
    monkeypatch.undo()
    with pytest.raises(polyak.hyperparameters.declaration.HyperparameterError, match="compression='zip'"):
        wrong: Any = "zip"
        polyak.PPO("MlpPolicy", Frames, n_runners=1, transport="local", compression=wrong)


@pytest.mark.parametrize("optimized", [False, True])
def test_a_drawn_row_and_its_successor_share_frames_on_their_way(optimized: bool) -> None:
    """Rows at the ends of episodes do, too: their successors are the last observations."""
    env, rows = Frames(length=5), 32
    space, actions = env.observation_space, env.action_space
    make = partial(ReplayBuffer, 50, space, actions, "cpu", n_envs=1, optimize_memory_usage=optimized)
    shard = ShardProcess(cloudpickle.dumps(make), alone=False)
    shard.begin()
    now, _ = env.reset(seed=0)
    for number in range(50):
        then, reward, _, truncated, _ = env.step(number % 2)
        infos = [{"TimeLimit.truncated": truncated}]
        shard.buffer.add(now[None], then[None], np.array([[0]]), np.array([reward]), np.array([truncated]), infos)
        now = env.reset()[0] if truncated else then
    drawn = shard.draw(rows, 0.99, None)
    found, size = sent(drawn)
    assert type(found) is Experience
    assert rows * (STACKED + 1) * FRAME < size < rows * (STACKED + 1) * FRAME + 100 * rows
    for name, column in drawn.items():
        np.testing.assert_array_equal(found[name], column)


def test_rows_that_do_not_all_follow_travel_as_they_are() -> None:
    images = np.random.default_rng(0).integers(0, 256, (8, 6, SIZE, SIZE), np.uint8)
    for shift in (1, 2, 3, 4):
        successors = np.concatenate([images[:, shift:], images[:, :shift]], 1)
        found, size = sent(frames.pair_as_sent(images, successors))
        np.testing.assert_array_equal(found, [images, successors])
        assert size // (8 * FRAME) == (12 if shift == 4 else 6 + shift), "colours come by three, and four divide no six"
    successors[0, 0, 0, 0] += 1
    assert frames.pair_as_sent(images, successors)[1] is successors
    numbers = np.zeros((8, 6))
    assert frames.pair_as_sent(numbers, numbers)[0] is numbers
