"""``polyak data`` and ``polyak train --dataset``, from end to end."""

from pathlib import Path

import numpy as np
import pytest

from polyak import SAC, TD3BC
from polyak.experience import Dataset, collect
from tests.tolerance import bound
from tests.zoo.test_cli import run

SETTINGS = "default: {n_timesteps: 60, batch_size: 16, policy_kwargs: {net_arch: [16]}}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.yml").write_text(SETTINGS)
    (tmp_path / "words.txt").write_text("nothing but words")
    return tmp_path


@pytest.fixture
def pendulum(here: Path) -> Path:
    return collect("Pendulum-v1", None, 450, seed=0).save(here / "pendulum.npz")


def train(*more: object) -> int:
    return run("train", "--algo", "td3_bc", "--conf-file", "settings.yml", "--device", "cpu", "--seed", 0, *more)


# -- collect -----------------------------------------------------------------------------------------------------------


def test_random_actions_are_recorded(here, capsys):
    assert run("data", "collect", "--env", "Pendulum-v1", "--n", 450, "--out", "a.npz", "--seed", 3, "--n-envs", 2) == 0
    out = capsys.readouterr().out
    assert "Wrote a.npz" in out
    assert "450 transitions in 4 episodes" in out
    assert run("data", "collect", "--env", "Pendulum-v1", "--n", 450, "--out", "b.npz", "--seed", 3, "--n-envs", 2) == 0
    np.testing.assert_array_equal(Dataset.load("a.npz").actions, Dataset.load("b.npz").actions)


def test_a_model_is_recorded_whatever_its_algorithm(here):
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, seed=0)
    model.save("model.zip")
    words = ["data", "collect", "-e", "Pendulum-v1", "-m", "model.zip", "-n", 50, "-o", "a.csv", "--deterministic"]
    assert run(*words) == 0
    dataset = Dataset.load("a.csv")
    actions, _ = model.predict(dataset.transitions().observations, deterministic=True)
    # in another batch its products add up in another order: two hidden layers of 8, and scaling
    np.testing.assert_allclose(actions, dataset.actions, atol=bound(2 * 8 + 3 + 4, 8.0 * 2))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["collect", "-o", "a.npz"], "Which environment? Give --env."),
        (["collect", "-e", "CartPole-v1"], "Where to? Give --out."),
        (["collect", "-e", "CartPole-v1", "-o", "a.npz", "-n", 0], "--n must be at least 1, got 0"),
        (["collect", "-e", "CartPol-v1", "-o", "a.npz"], "Did you mean 'CartPole-v1'"),
        (["collect", "-e", "CartPole-v1", "-o", "a.npz", "-m", "no.zip"], "--model 'no.zip' is not a file"),
        (["collect", "-e", "CartPole-v1", "-o", "a.xlsx", "-n", 5], "none of the suffixes"),
        (["show"], "Which dataset? Give its file."),
        (["show", "no.npz"], "there is no such file"),
        (["show", "words.txt"], "in none of the formats"),
        (["show", "pendulum.npz", "-e", "CartPole-v1"], "rows of shape (3,)"),
        (["convert", "pendulum.npz"], "Where to? Give TARGET."),
        (["convert", "pendulum.npz", "a.npz", "--format", "excel"], "format='excel' is none of"),
        (["convert", "broken.csv", "a.npz"], "row 7 (episode 0, step 7): rewards is nan"),
    ],
)
def test_mistakes_are_reported_in_one_line(words, message, pendulum, capsys):
    pytest.importorskip("pandas")
    lines = Dataset.load(pendulum).select([0]).save("broken.csv").read_text().splitlines()
    cells = lines[8].split(",")
    cells[lines[0].split(",").index("reward")] = ""
    Path("broken.csv").write_text("\n".join([*lines[:8], ",".join(cells), *lines[9:]]))
    assert run("data", *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


# -- show and convert --------------------------------------------------------------------------------------------------


def test_a_set_is_shown_as_table_and_images(pendulum, capsys):
    assert run("data", "show", pendulum, "-o", "image.png") == 0
    out = capsys.readouterr().out
    dataset = Dataset.load(pendulum)
    for words in (
        "environment          Pendulum-v1",
        "transitions          450",
        "cut short          3 (100.0%)",
        "numbers              all finite",
        "Box[3] float32",
        "100% of [-2, 2] covered",
        f"{np.median(dataset.returns):>12.5g}",
    ):
        assert words in out
    assert Path("image.png").stat().st_size > 10_000


def test_choices_and_dicts_are_shown(here, capsys):
    rng = np.random.default_rng(0)
    seen = {"a": rng.normal(size=(31, 2)), "b": rng.integers(0, 9, (31, 4, 5)).astype(np.uint8)}
    Dataset(seen, np.arange(30) % 3, rng.normal(size=30), np.arange(30) == 29, columns={"q": rng.normal(size=30)}).save(
        "a"
    )
    assert run("data", "show", "a.npz") == 0
    out = capsys.readouterr().out
    assert "shares             0: 33.3%, 1: 33.3%, 2: 33.3%" in out
    assert "observations[a]" in out
    assert "columns              q" in out
    assert "terminal           1 (100.0%)" in out
    assert not list(Path().glob("*.png")), "no file uninvited"


def test_a_set_is_converted(pendulum, capsys):
    pytest.importorskip("pandas")
    assert run("data", "convert", pendulum, "a.csv") == 0
    assert run("data", "convert", "a.csv", "b.npz", "--env", "Pendulum-v1") == 0
    ours, theirs = Dataset.load("b.npz"), Dataset.load(pendulum)
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    for first, second in zip(ours.transitions()[:6], theirs.transitions()[:6], strict=True):
        np.testing.assert_array_equal(first, second)


# -- train -------------------------------------------------------------------------------------------------------------


def test_training_from_a_file_leaves_a_run_like_any_other(pendulum, capsys):
    """Evaluated in the environment that the file names; continued, and played."""
    assert train("--dataset", pendulum, "-n", 60, "--eval-freq", 30, "--eval-episodes", 1, "--save-freq", 30) == 0
    assert "60 gradient steps" in capsys.readouterr().out
    folder = Path("logs/td3_bc/Pendulum-v1_1")
    assert (folder / "evaluations.npz").is_file()
    assert (folder / "rl_model_30_steps.zip").is_file()
    model = TD3BC.load(folder / "Pendulum-v1.zip")
    assert model.num_timesteps == 60
    assert train("--dataset", pendulum, "-n", 20, "-i", folder / "Pendulum-v1.zip") == 0
    assert TD3BC.load("logs/td3_bc/Pendulum-v1_2/Pendulum-v1.zip").num_timesteps == 80
    assert run("enjoy", "--algo", "td3_bc", "-e", "Pendulum-v1", "-n", 20, "--device", "cpu", "--no-render") == 0


def test_a_file_that_does_not_say_its_environment(pendulum, capsys):
    pytest.importorskip("pandas")
    Dataset.load(pendulum).save("pendulum.csv")
    assert train("--dataset", "pendulum.csv", "-n", 10) == 0
    assert "nothing is evaluated. Give --env" in capsys.readouterr().err
    assert not Path("logs/td3_bc/pendulum_1/evaluations.npz").exists()
    assert train("--dataset", "pendulum.csv", "-n", 20, "-e", "Pendulum-v1", "--eval-freq", 10) == 0
    assert Path("logs/td3_bc/Pendulum-v1_1/evaluations.npz").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--algo", "ppo"], "--dataset: ppo learns by acting only. From a dataset learn"),
        (["-e", "CartPole-v1"], "--dataset 'pendulum.npz' and CartPole-v1: observations has rows of shape (3,)"),
        (["--dataset", "no.npz"], "there is no such file"),
        (["--save-replay-buffer"], "there is no replay buffer to save"),
        (["-params", "normalize:True"], "normalize of settings.yml [default] is for what acts"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_before_there_is_a_folder(words, message, pendulum, capsys):
    assert train("--dataset", "pendulum.npz", *words) == 2
    assert message in capsys.readouterr().err
    assert not Path("logs").exists()
