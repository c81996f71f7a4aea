"""Studies in storage: counted, shared, taken up again, and refused when broken."""

import os
import pickle
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from polyak.zoo.errors import ZooError
from polyak.zoo.tuning import studies


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Set Optuna's logging as the command does."""
    studies.need_optuna()


@pytest.fixture
def journal(tmp_path: Path) -> str:
    return str(tmp_path / "folder" / "study.journal")


def open_study(place: str, **asked: Any) -> optuna.Study:
    return studies.open_study(studies.open_storage(place), "s", asked)


def run_trial(study: optuna.Study, total: int, value: float = 1.0) -> bool:
    trial = studies.next_trial(study, total)
    if trial is None:
        return False
    trial.suggest_float("x", 0, 1)
    study.tell(trial, value)
    return True


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


def test_failed_and_pruned_trials_count(journal: str) -> None:
    study = open_study(journal)
    assert run_trial(study, 3)
    failed = studies.next_trial(study, 3)
    assert failed is not None
    assert studies.fail(study, failed, ValueError("first line\nsecond")) == "ValueError: first line"
    pruned = studies.next_trial(study, 3)
    assert pruned is not None
    study.tell(pruned, state=TrialState.PRUNED)
    assert not run_trial(study, 3)
    assert len(studies.finished(open_study(journal))) == 3
    assert studies.first_reason(study) == "ValueError: first line"


def test_a_trial_of_a_dead_process_waits_to_be_tried_again(journal: str) -> None:
    study = open_study(journal)
    assert run_trial(study, 3)
    trial = studies.next_trial(study, 3)
    assert trial is not None
    x = trial.suggest_float("x", 0, 1)
    with studies.signs_of_life(trial):
        assert studies.reclaim(study) == 0, "it is alive"
        assert len(studies.finished(study)) == 1
        trial.set_user_attr("worker", {"host": socket.gethostname(), "pid": dead_process(), "seen": time.time()})
        assert studies.reclaim(study) == 1
        assert studies.reclaim(study) == 0
    assert len(studies.counted(study)) == 2
    again = studies.next_trial(study, 3)
    assert again is not None
    assert again.suggest_float("x", 0, 1) == x
    study.tell(again, 2.0)
    assert run_trial(study, 3)
    assert not run_trial(study, 3)
    assert len(studies.finished(study)) == 3


def test_a_trial_on_another_machine_is_given_up_after_long_silence(journal: str) -> None:
    study = open_study(journal)
    trial = studies.next_trial(study, 3)
    assert trial is not None
    trial.set_user_attr("worker", {"host": "elsewhere", "pid": dead_process(), "seen": time.time()})
    assert studies.reclaim(study) == 0
    trial.set_user_attr("worker", {"host": "elsewhere", "pid": os.getpid(), "seen": time.time() - 1000})
    assert studies.reclaim(study) == 1


def test_a_trial_that_kills_its_process_again_and_again_fails(journal: str) -> None:
    study = open_study(journal)
    pid = dead_process()
    for _ in range(studies.MOST_RETRIES + 1):
        trial = studies.next_trial(study, 1)
        assert trial is not None
        trial.suggest_float("x", 0, 1)
        trial.set_user_attr("worker", {"host": socket.gethostname(), "pid": pid, "seen": time.time()})
        assert studies.reclaim(study) == 1
    assert studies.next_trial(study, 1) is None
    assert [trial.state for trial in studies.finished(study)] == [TrialState.FAIL]
    assert studies.first_reason(study) == "its process died, 3 times"


def test_of_two_processes_that_see_one_place_left_one_gets_it(journal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study, other = open_study(journal), open_study(journal)
    ask = study.ask

    def ask_after_the_other() -> optuna.Trial:
        assert run_trial(other, 1)
        return ask()

    monkeypatch.setattr(study, "ask", ask_after_the_other)
    assert studies.next_trial(study, 1) is None
    assert len(study.get_trials()) == 2
    assert len(studies.counted(study)) == len(studies.finished(study)) == 1


def test_an_interrupted_trial_is_tried_again_however_often(journal: str) -> None:
    study = open_study(journal)
    for _ in range(studies.MOST_RETRIES + 2):
        trial = studies.next_trial(study, 1)
        assert trial is not None
        assert studies.retry(study, study.get_trials()[-1])
    assert run_trial(study, 1)
    assert len(studies.finished(study)) == 1


def test_a_study_continues_only_with_the_same_question(journal: str) -> None:
    open_study(journal, n_timesteps=100, settings={"a": [1]})
    open_study(journal, n_timesteps=100, settings={"a": [1]})
    with pytest.raises(ZooError, match=r"'s' was begun with n_timesteps 100, not 200.*--study-name"):
        open_study(journal, n_timesteps=200, settings={"a": [1]})
    with pytest.raises(ZooError, match=r"no study 't'.*Studies there: s"):
        studies.load_study(studies.open_storage(journal), "t")


def test_half_a_line_at_the_end_of_a_journal_is_cut_off(journal: str) -> None:
    assert run_trial(open_study(journal), 5)
    whole = Path(journal).read_bytes()
    Path(journal).write_bytes(whole + b'{"op_code":4,"worker_id"')
    study = open_study(journal)
    assert run_trial(study, 5)
    assert len(studies.finished(open_study(journal))) == 2


@pytest.mark.parametrize("text", ["hello\n", '{"a": 1}', '{"not": "a journal"}\n', "{broken}\n{broken}\n"])
def test_a_file_that_is_no_journal_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ZooError, match="is not a journal of Optuna"):
        studies.open_storage(str(path))
    assert path.read_text() == text


def test_databases(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    assert run_trial(open_study(url), 2)
    assert len(studies.finished(open_study(url))) == 1
    with pytest.raises(ZooError, match=r"'redis://name:\*\*\*@host/0' is not the URL of a database"):
        studies.open_storage("redis://name:secret@host/0")
    with pytest.raises(ZooError, match="cannot be opened"):
        studies.open_storage("sqlite:////proc/none/study.db")


def test_optimizers_of_cmaes_are_looked_at_before_they_are_read(journal: str, tmp_path: Path) -> None:
    study = open_study(journal)
    study.sampler = optuna.samplers.CmaEsSampler(n_startup_trials=2, seed=0)
    study.optimize(lambda trial: -sum(trial.suggest_float(name, -1, 1) ** 2 for name in "xy"), 20)
    assert any("optimizer:" in key for trial in study.trials for key in trial.system_attrs)
    studies.check_optimizers(study)

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "marker"),)

    trial = study.ask()
    study._storage.set_trial_system_attr(trial._trial_id, "cma:optimizer:0", pickle.dumps(Evil()).hex())
    study.tell(trial, 1.0)
    with pytest.raises(ZooError, match=r"names (posix|nt).mkdir"):
        studies.check_optimizers(study)
    assert not (tmp_path / "marker").exists()
