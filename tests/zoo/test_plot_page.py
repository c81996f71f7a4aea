"""The commands of the page on plots, one after the other in one folder."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from polyak.zoo.cli import main
from tests.zoo.written_runs import write_run

PAGE = Path(__file__).parents[2] / "docs" / "plotting.md"
COMMANDS = [
    line
    for block in re.findall(r"```bash\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for line in block.splitlines()
]


def write_logs(logs: Path) -> None:
    """Write the runs that the commands are about."""
    rng = np.random.default_rng(0)
    runs = [(algo, env) for algo in ("ppo", "sac", "tqc") for env in ("Hopper-v5", "Walker2d-v5")]
    for algo, env in (*runs, ("ppo", "CartPole-v1"), ("tqc", "parking-v0")):
        for number in (1, 2):
            run = write_run(logs / algo / f"{env}_{number}", [1.0, 2.0, 3.0], rng.normal(100, 20, (4, 2)).tolist())
            (run / env).mkdir()
            buffer = {"replay_buffer_class": "HerReplayBuffer"} if env == "parking-v0" else {}
            (run / env / "config.yml").write_text(yaml.safe_dump({"policy": "MlpPolicy"} | buffer))
            if env == "parking-v0":
                monitor = run / "0.monitor.csv"
                header, names, *rows = monitor.read_text().splitlines()
                monitor.write_text("\n".join([header, f"{names},is_success", *(f"{row},1.0" for row in rows)]) + "\n")


@pytest.mark.slow
def test_the_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("polyak.zoo.plots.statistics.N_RESAMPLES", 20)
    for logs in ("logs", "logs/old", "logs/new"):
        write_logs(tmp_path / logs)
    main_ends_well("polyak plot --kind table -a ppo -e Hopper-v5 -f logs/old -o others", capsys)
    for command in COMMANDS:
        assert "Wrote" in main_ends_well(command, capsys), command
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.p*")}
    assert {"results.pkl", "results.png", "all_plots.png", "training.png", "plot_train.png"} <= written
    assert {f"figures/mujoco{part}.pdf" for part in ("", "_boxplot", "_profiles", "_improvement")} <= written


def main_ends_well(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a line of a shell and return what it printed."""
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(line, comments=True)[1:])
    captured = capsys.readouterr()
    assert not stopped.value.code, f"{line}: {captured.err}"
    return captured.out
