"""The benchmarks' command lines: wrong values are refused before anything is run, by the name of their option."""

from pathlib import Path

import pytest

from tests.warm import python

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("atari.py --rows 9999", "--rows: must be at least 10000, got 9999"),
        ("bench.py --repeats 0", "--repeats: must be at least 1, got 0"),
        ("bench.py --steps-scale=-1", "--steps-scale: must be positive, got -1"),
        ("bench.py --libs sb4", "--libs: invalid choice: 'sb4'"),
        ("parity.py --libs sbx", "--libs: invalid choice: 'sbx'"),
        ("parity.py --threads few", "--threads: invalid int value: 'few'"),
        ("replay.py --pictures 999", "--pictures: must be at least 1000, got 999"),
        ("replay.py --repeats one", "--repeats: invalid integer value: 'one'"),
        ("search.py --seconds 0", "--seconds: must be positive, got 0"),
        ("connect4.py --workers -1", "--workers: must be at least 0, got -1"),
        ("connect4.py --processor-time", "--processor-time counts this process alone: use it with --workers 0"),
        ("tabular.py --steps 999", "--steps: must be at least 1000, got 999"),
        ("tabular.py --repeats 0", "--repeats: must be at least 1, got 0"),
        ("offline.py --algos SAC", "--algos: invalid choice: 'SAC'"),
        ("offline.py --corl nowhere", "--corl: nowhere has no folder algorithms/offline"),
        ("halfcheetah.py --rows PPO", "--rows: invalid choice: 'PPO'"),
        ("halfcheetah.py --every 10", "--every: must be at least 1000, got 10"),
        ("scale.py --libs sb3", "--libs: invalid choice: 'sb3'"),
        ("scale.py --cap 0", "--cap: must be positive, got 0"),
        ("soak.py --minutes 0", "--minutes: must be positive, got 0"),
        ("kill_test.py --kills 0", "--kills: must be at least 1, got 0"),
        ("vector_envs.py --rows pong", "--rows: invalid choice: 'pong'"),
    ],
)
def test_wrong_values_are_refused(command: str, message: str) -> None:
    script, *arguments = command.split()
    ended = python([BENCHMARKS / script, *arguments])
    assert ended.returncode == 2
    assert message in ended.stderr
