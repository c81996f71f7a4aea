"""``polyak run``: a program sees what plain ``python`` shows it, and polyak behind the names of another library."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest

from polyak.compat.run import MARK, STARTUP, environment, run
from tests.pairs import one_of_each
from tests.processes import PATIENCE
from tests.warm import python
from tests.zoo.test_cli import run as polyak

RUN = [sys.executable, "-m", "polyak", "run"]
ANSWERED = "import stable_baselines3 as sb3; print(sb3.PPO.__module__)"
FOUND = "from importlib.util import find_spec; print(find_spec('stable_baselines3').origin)"
"""Who would answer; torch is not imported for it."""


def write(folder: Path, name: str, text: str) -> Path:
    """A file with ``text``, in folders that are made."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def outcome(command: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command somewhere else than here, without what the tests' own environment adds, in a Python of its own."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", MARK)}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env | environ, timeout=PATIENCE)


def warm(words: list[str], folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The same for a program that imports torch, in a fork; it finds polyak where the tests do."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", MARK)}
    path = os.pathsep.join([*filter(None, [environ.get("PYTHONPATH")]), str(Path(__file__).parents[2])])
    return python(["-m", "polyak", "run", *words], folder, env | environ | {"PYTHONPATH": path})


def test_the_script_has_its_own_arguments_and_main(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        "deep/show.py",
        """
        import sys
        import beside
        print(__name__, sys.argv[1:], sys.path[0], beside.HERE)
        """,
    )
    write(tmp_path, "deep/beside.py", "HERE = 'beside'")
    words = ["--help", "-m", "a b", "--", "--env-kwargs", "x:1", "y:2", "-h", "--version"]
    result = outcome([*RUN, "deep/show.py", *words], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == f"__main__ {words} {script.parent} beside"


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit(7)",
        "import sys; sys.exit('told why')",
        "def f():\n    raise ValueError('wrong')\nf()",
        "def f(:",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "print('fine')",
        "import sys; print(sys.path, sys.flags)",
        "import sys, __main__; print(__main__.__dict__.keys(), __main__.__spec__, __file__)",
    ],
)
def test_the_end_is_that_of_plain_python(tmp_path: Path, text: str) -> None:
    write(tmp_path, "program.py", text)
    plain, ours = outcome([sys.executable, "program.py"], tmp_path), outcome([*RUN, "program.py"], tmp_path)
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_modules_run_as_with_python_m(tmp_path: Path) -> None:
    write(tmp_path, "package/__init__.py", "")
    write(tmp_path, "package/tool.py", f"import sys; print(sys.argv[1:], __package__); {FOUND}")
    result = outcome([*RUN, "-m", "package.tool", "--help", "-m"], tmp_path)
    assert result.stdout.split("\n")[0] == "['--help', '-m'] package", result.stderr
    assert "polyak" in result.stdout
    plain = outcome([sys.executable, "-m", "no_such_module"], tmp_path)
    ours = outcome([*RUN, "-m", "no_such_module"], tmp_path)
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


def test_commands_of_the_zoo_are_polyaks(tmp_path: Path) -> None:
    from polyak.compat.run import COMMANDS, zoo_command
    from polyak.zoo.cli import ALIASES
    from polyak.zoo.cli import COMMANDS as OURS

    assert {zoo_command(f"rl_zoo3.{name}")[2] for name in COMMANDS} <= {*OURS, *ALIASES}
    assert zoo_command("rl_zoo3.plots.all_plots") == ["-m", "polyak", "all-plots"]
    assert zoo_command("rl_zoo3.utils") == zoo_command("train") == []
    result = outcome([*RUN, "-m", "rl_zoo3.train", "--algo", "pppo", "--env", "CartPole-v1"], tmp_path)
    assert result.returncode == 2, result.stderr
    assert "Unknown algorithm --algo 'pppo'" in result.stderr


@pytest.mark.skipif(os.name == "nt", reason="no POSIX signals")
def test_ctrl_c_ends_the_program_itself(tmp_path: Path) -> None:
    waiting = "import pathlib, time; pathlib.Path('started').touch(); time.sleep(10**6)"
    write(tmp_path, "wait.py", waiting)
    heed = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # who runs the tests may ignore it: a shell's `&` does
    process = subprocess.Popen([*RUN, "wait.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed)
    while not (tmp_path / "started").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert errors.count("File ") == 1
    assert errors.strip().endswith("KeyboardInterrupt")


def test_a_real_copy_beside_is_not_touched(tmp_path: Path) -> None:
    for name in ("stable_baselines3", "sb3_contrib"):
        write(tmp_path, f"site/{name}/__init__.py", "raise SystemExit('the real one was imported')")
    write(tmp_path, "program.py", f"{ANSWERED}\nimport sb3_contrib")
    result = warm(["program.py"], tmp_path, PYTHONPATH=str(tmp_path / "site"))
    said = "polyak run: polyak answers stable_baselines3 and sb3_contrib.\n"
    assert (result.returncode, result.stderr) == (0, said)
    assert result.stdout.startswith("polyak.")


def test_only_the_packages_named_are_answered(tmp_path: Path) -> None:
    home = "from importlib.util import find_spec; print(find_spec('sb3_contrib').origin)"
    ask = f"{FOUND}\n{home}"
    write(tmp_path, "parent.py", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {home!r}])\n{ask}")
    installed = write(tmp_path, "site/sb3_contrib/__init__.py", "")
    for options, origin in (([], "polyak (sb3_contrib)"), (["--only", "stable_baselines3"], str(installed))):
        found = outcome([*RUN, *options, "parent.py"], tmp_path, PYTHONPATH=str(tmp_path / "site"))
        assert found.stdout.split("\n") == [origin, "polyak (stable_baselines3)", origin, ""], found.stderr
    wrong = outcome([*RUN, "--only", "gym", "parent.py"], tmp_path)
    assert wrong.returncode == 2
    assert "only=['gym'] cannot be answered" in wrong.stderr


@pytest.mark.parametrize("method", one_of_each(["spawn", "forkserver", "fork"], "spawn"))
def test_worker_processes_answer_the_names(tmp_path: Path, method: str) -> None:
    import multiprocessing

    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    write(
        tmp_path,
        "workers.py",
        f"""
        import gymnasium as gym
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import SubprocVecEnv

        class Noisy(gym.Wrapper):
            def reset(self, **kwargs):
                import stable_baselines3
                import sys
                observation, info = super().reset(**kwargs)
                return observation, {{**info, "home": stable_baselines3.PPO.__module__, "main": __name__}}

        if __name__ == "__main__":
            env = make_vec_env("CartPole-v1", 1, wrapper_class=Noisy, vec_env_cls=SubprocVecEnv,
                               vec_env_kwargs=dict(start_method={method!r}))
            env.reset()
            print([info["home"].split(".")[0] for info in env.reset_infos])
            print(env.step([0])[0].shape)
            env.close()
        """,
    )
    result = warm(["workers.py"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split("\n")[:2] == ["['polyak']", "(1, 4)"]


def test_python_programs_that_it_starts_answer_the_names(tmp_path: Path) -> None:
    write(
        tmp_path, "parent.py", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {FOUND!r}], check=True)"
    )
    result = outcome([*RUN, "parent.py"], tmp_path)
    assert result.stdout == "polyak (stable_baselines3)\n", result.stderr


def test_another_installation_is_left_alone(tmp_path: Path) -> None:
    """``POLYAK_RUN`` names one ``sys.prefix``; a Python with another one finds what is installed there."""
    write(tmp_path, "site/stable_baselines3.py", "print('installed there')")
    write(tmp_path, "program.py", "import stable_baselines3")
    env = environment({"PYTHONPATH": str(tmp_path / "site")}) | {MARK: str(tmp_path)}
    result = outcome([sys.executable, "program.py"], tmp_path, PYTHONPATH=env["PYTHONPATH"], **{MARK: env[MARK]})
    assert result.stdout.strip() == "installed there", result.stderr


def test_the_sitecustomize_behind_it_still_runs(tmp_path: Path) -> None:
    write(tmp_path, "site/sitecustomize.py", "import builtins; builtins.MINE = 1; WHO = 'hidden'")
    write(tmp_path, "program.py", f"import sitecustomize; print(MINE, sitecustomize.WHO); {FOUND}")
    result = outcome([*RUN, "program.py"], tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert result.stdout.startswith("1 hidden\npolyak ("), result.stderr


def test_options_of_the_interpreter_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "program.py", "import sys; print(sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions)")
    options = ["-O", "-X", "dev", "-W", "error::FutureWarning"]
    plain = outcome([sys.executable, *options, "program.py"], tmp_path)
    ours = outcome([sys.executable, *options, "-m", "polyak", "run", "program.py"], tmp_path)
    assert ours.stdout == plain.stdout


def test_the_environment_is_prepared_once() -> None:
    once = environment({"PYTHONPATH": os.pathsep.join(["a", "", "b"]), "OTHER": "1"})
    assert once["PYTHONPATH"].split(os.pathsep) == [str(STARTUP), "a", "", "b"]
    assert environment(once) == once
    assert environment({})["PYTHONPATH"] == str(STARTUP)


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"SCRIPT 'train.py' does not exist.*-m"):
        run("train.py")
    assert polyak("run", "train.py") == 2
    assert capsys.readouterr().err.startswith("polyak: SCRIPT 'train.py'")
    write(tmp_path, "program.py", "")
    result = outcome([sys.executable, "-E", *RUN[1:], "program.py"], tmp_path)
    assert result.returncode == 2
    assert "start Python without -I, -E and -S" in result.stderr


def test_without_a_script_it_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in ((["run"], 2), (["run", "--help"], 0)):
        assert polyak(*words) == code
        captured = capsys.readouterr()
        assert "SCRIPT" in captured.out + captured.err
