"""device="auto": a choice by measured speeds, which are measured once."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak import DQN, PPO, SAC
from polyak.learning import host as deep
from polyak.learning.engine.device import TYPICAL, Work, choose, get_device
from polyak.learning.engine.flops import flops
from polyak.learning.engine.machine_speed import Speeds, stored_speeds
from polyak.learning.learner import Learner
from polyak.nn.networks.encoders import BaseFeaturesExtractor

DESKTOP = Speeds(cpu_flops=5e10, cuda_flops=2e13, cpu_call=1e-6, cuda_call=5e-6, cuda_wait=3e-5)
STRONG_CPU = Speeds(cpu_flops=3e12, cuda_flops=5e12, cpu_call=1e-6, cuda_call=8e-6, cuda_wait=5e-5)


@pytest.mark.parametrize(
    ("work", "speeds", "expected"),
    [
        (TYPICAL["PPO, two layers of 64"], DESKTOP, "cpu"),
        (TYPICAL["SAC, two layers of 1024"], DESKTOP, "cuda"),
        (TYPICAL["DQN, images"], DESKTOP, "cuda"),
        (TYPICAL["SAC, two layers of 256"], STRONG_CPU, "cpu"),
        (Work(flops=5e7, tensors=12, acts=0, act_flops=0), DESKTOP, "cuda"),
        (Work(flops=5e7, tensors=12, acts=100, act_flops=1e4), DESKTOP, "cpu"),  # actions must be fetched
        (Work(flops=0, tensors=0, acts=0, act_flops=0), DESKTOP, "cpu"),
    ],
)
def test_the_faster_device_is_chosen(work: Work, speeds: Speeds, expected: str) -> None:
    choice = choose(work, speeds)
    assert choice.device == expected
    assert (choice.cuda_seconds < choice.cpu_seconds) == (expected == "cuda")
    assert str(choice).startswith(f"device: {expected} (")


def test_estimates_are_in_seconds() -> None:
    choice = choose(Work(flops=5e10, tensors=0, acts=2, act_flops=5e10), DESKTOP)
    assert choice.cpu_seconds == pytest.approx(3.0)
    assert choice.cuda_seconds == pytest.approx(1.5e11 / 2e13 + 6e-5)


# -- arithmetic --------------------------------------------------------------------------------------------------------


class Pictures(gym.Env):
    observation_space = spaces.Box(0, 255, (3, 84, 84), np.uint8)
    action_space = spaces.Discrete(4)


class Curious(BaseFeaturesExtractor):
    """Looks at numbers, which a forward pass of shapes does not have."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space, 2)
        self.convolution = nn.Conv2d(3, 2, 84)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.convolution(x).flatten(1) * float(x.sum())


def test_a_perceptron_multiplies_each_row_with_each_parameter() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    assert flops(model.learner, 10) == 60 * sum(p.numel() for p in model.learner.parameters())


def test_a_convolution_does_so_at_every_position() -> None:
    model = DQN("CnnPolicy", Pictures(), buffer_size=10, device="cpu")
    network = 20 * 20 * (8 * 8 * 3 + 1) * 32 + 9 * 9 * (4 * 4 * 32 + 1) * 64 + 7 * 7 * (3 * 3 * 64 + 1) * 64
    network += (3136 + 1) * 512 + (512 + 1) * 4
    assert flops(model.learner, 1) == 6 * 2 * network  # and the target


def test_code_that_cannot_be_looked_through_counts_each_parameter_once() -> None:
    extractor = Curious(Pictures.observation_space)
    assert flops(extractor, 1) == 6 * (3 * 84 * 84 * 2 + 2)


# -- the cache ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    return tmp_path


def test_speeds_are_measured_once_for_each_machine(folder: Path) -> None:
    measured = []

    def measure() -> Speeds:
        measured.append(1)
        return DESKTOP

    assert [stored_speeds(machine, measure) for machine in ("a", "a", "b", "a")] == [DESKTOP] * 4
    assert len(measured) == 2
    assert set(json.loads((folder / "speeds.json").read_text())) == {"a", "b"}
    assert list(folder.iterdir()) == [folder / "speeds.json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "7", '{"a": 3}', '{"a": {"cpu_flops": 1.0}}', '{"a": {"cpu_flops": "x"}}', "\xff"]
)
def test_a_file_that_cannot_be_understood_is_written_again(folder: Path, content: str) -> None:
    (folder / "speeds.json").write_bytes(content.encode("latin-1"))
    assert stored_speeds("a", lambda: DESKTOP) == DESKTOP
    assert stored_speeds("a", lambda: STRONG_CPU) == DESKTOP


def test_a_folder_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", "/proc/nowhere")
    assert stored_speeds("a", lambda: DESKTOP) == DESKTOP


# -- models ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine that claims to have a GPU; where learners were sent."""
    sent: list[str] = []

    def to(self: Learner, device: Any) -> Learner:
        sent.append(str(device))
        return self

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(Learner, "to", to)
    monkeypatch.setattr(deep, "speeds", lambda: DESKTOP)
    return sent


def test_a_model_goes_where_it_is_faster(with_gpu: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert get_device("auto").type == "cuda"
    small = PPO("MlpPolicy", "CartPole-v1", verbose=1)
    assert with_gpu.pop() == small.device.type == small.rollout_buffer.device.type == "cpu"
    assert "device: cpu (a gradient step with its actions takes about" in capsys.readouterr().out
    SAC("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [1024, 1024]})
    assert with_gpu.pop() == "cuda"
    assert capsys.readouterr().out == ""
    PPO("MlpPolicy", "CartPole-v1", device="cuda")
    assert with_gpu.pop() == "cuda"


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(deep, "speeds", None)
    assert PPO("MlpPolicy", "CartPole-v1").device.type == "cpu"


@pytest.mark.parametrize("name", ["mps", "xpu", "hpu", "xla", "meta"])
def test_a_device_that_the_machine_lacks_is_refused_by_name(name: str) -> None:
    if name in ("mps", "xpu") and getattr(torch, name).is_available():
        pytest.skip(f"this machine has {name}")
    with pytest.raises(ValueError, match=f"device='{name}' cannot be used: .* Use 'auto' or 'cpu', or one of: cpu"):
        PPO("MlpPolicy", "CartPole-v1", device=name)


def test_a_gpu_number_above_those_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert get_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(ValueError, match="device='cuda:7' cannot be used: torch sees 2 of its kind.*cuda:0, cuda:1"):
        get_device("cuda:7")
