"""What a run writes down about itself, and that the report finds it."""

import warnings
from pathlib import Path

import pytest

from polyak.zoo.run_folder import RunFolder
from polyak.zoo.run_notes import taking_notes
from tests.zoo.runs_on_disk import only_run


def test_warnings_and_machine_are_written_down(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "ppo", "X-v0")
    with pytest.MonkeyPatch.context() as patch:
        shown: list[str] = []
        patch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
        before = warnings.showwarning
        with warnings.catch_warnings(), taking_notes(folder):
            warnings.simplefilter("always")
            warnings.showwarning("one\n  and  more", UserWarning, "file.py", 1)
            warnings.showwarning("two", RuntimeWarning, "file.py", 2)
        assert warnings.showwarning is before
    assert shown == ["one\n  and  more", "two"]
    folder.write_yaml("args.yml", {"algo": "ppo", "env": "X-v0"})
    page = only_run(tmp_path)
    assert page.warnings == ["UserWarning: one and more", "RuntimeWarning: two"]
    assert page.system["Processor"]
    assert page.system["PyTorch"].startswith("2")


def test_a_training_is_reported_whole(trained: Path) -> None:
    run = only_run(trained)
    assert run.problems == []
    assert run.state.name == "finished"
    assert float(run.facts["Learning, % of time"]) > 0
    assert {"train/value_loss", "time/fps"} <= run.curves.keys()
    assert len(run.curves["evaluated return"].x) == 2
    assert run.system["Python"]
