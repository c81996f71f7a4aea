"""The demonstration, cut short, and whole."""

from pathlib import Path

import pytest

from polyak.zoo.demo import DemoOptions, demo


def test_a_short_demonstration_writes_its_files_and_admits_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="Not solved within 512 steps"):
        demo(DemoOptions(output=str(tmp_path), max_timesteps=512, progress=False))
    printed = capsys.readouterr().out
    for name in ("ppo_cartpole.zip", "learning_curve.png", "episode.gif"):
        assert (tmp_path / name).stat().st_size > 1000
        assert str(tmp_path / name) in printed
    assert (tmp_path / "0.monitor.csv").is_file()


@pytest.mark.slow
def test_the_demonstration_solves_cartpole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(DemoOptions(output=str(tmp_path), progress=False)) >= 475
    assert "95% interval" in capsys.readouterr().out
