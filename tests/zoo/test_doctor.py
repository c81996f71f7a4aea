"""What the doctor says of a machine."""

import pytest
import torch

from polyak.learning.engine.machine_speed import Speeds
from polyak.zoo import measurements
from polyak.zoo.doctor import DoctorOptions, choices, doctor

DESKTOP = Speeds(cpu_flops=5e10, cuda_flops=2e13, cpu_call=1e-6, cuda_call=5e-6, cuda_wait=3e-5)


def test_it_says_what_would_be_chosen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("POLYAK_CACHE", "/nowhere")
    doctor(DoctorOptions(quick=True))
    printed = capsys.readouterr().out
    assert f"threads: {torch.get_num_threads()}, as set by you" in printed
    assert "compiled programs: 0 in /nowhere" in printed
    assert "GFLOP/s" not in printed


def test_typical_networks_get_the_faster_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("polyak.learning.engine.machine_speed.speeds", lambda: DESKTOP)
    lines = list(choices())
    assert lines[0].startswith("PPO, two layers of 64: device: cpu (")
    assert lines[3].startswith("DQN, images: device: cuda (")
    assert next(iter(choices(measure=False))) == "device: cuda or cpu, by their measured speed"


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("polyak.learning.engine.machine_speed.speeds", None)
    assert next(iter(choices())) == "device: cpu, since torch sees no usable GPU"


def test_measured_rates_are_positive() -> None:
    found = [*measurements.matrix_speeds(), measurements.call_cost()]
    assert len(found) >= 3
    assert all(0 < measurement.value < 1e6 for measurement in found)
