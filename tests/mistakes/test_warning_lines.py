"""A warning names the line of the program that it is about."""

import ast
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch

import polyak
from polyak import PPO, SAC
from polyak import warning as advice
from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.compat.sb3_face.functions import constant_fn
from polyak.envs import DummyVecEnv, make_vec_env
from polyak.evaluation.in_environments import evaluate_policy
from polyak.warning import warn_user

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu"}
ON: dict[str, Any] = {**SMALL, "n_steps": 16, "batch_size": 16, "n_epochs": 1}


class Silent(BaseCallback):
    def _on_step(self) -> None:  # type: ignore[override]
        return None


def truncated_batch() -> None:
    PPO("MlpPolicy", "CartPole-v1", **{**ON, "batch_size": 10})  # a dataclass's __init__ stands between


def few_updates() -> None:
    SAC("MlpPolicy", make_vec_env("Pendulum-v1", 2), gradient_steps=1, **SMALL)  # advise


def old_spelling() -> None:
    PPO("MlpPolicy", "CartPole-v1", **{**ON, "policy_kwargs": {"net_arch": [{"pi": [8], "vf": [8]}]}})  # nn


def callback_of_none() -> None:
    PPO("MlpPolicy", "CartPole-v1", **ON).learn(16, callback=Silent())


def too_many_actions() -> None:
    envs = DummyVecEnv([lambda: gym.make("CartPole-v1")])
    envs.reset()
    envs.step([0, 1])  # envs


def unmonitored() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", **ON)
    evaluate_policy(model, DummyVecEnv([lambda: gym.make("CartPole-v1")]), n_eval_episodes=1)


def other_kind_of_vector() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", **ON)
    envs = gym.make("CartPole-v1")
    model.learn(16, callback=EvalCallback(DummyVecEnv([lambda: envs]), eval_freq=16, verbose=0))


def old_name() -> None:
    constant_fn(1.0)  # compat


def through_torch() -> None:
    torch.no_grad()(few_updates)()


@pytest.mark.parametrize(
    ("program", "part"),
    [
        (truncated_batch, "truncated mini-batch"),
        (few_updates, "gradient_steps=1"),
        (old_spelling, "is an old spelling"),
        (callback_of_none, "returned None"),
        (too_many_actions, "actions hold 2"),
        (unmonitored, "no ``Monitor``"),
        (other_kind_of_vector, "Monitor"),
        (old_name, "deprecated"),
        (through_torch, "gradient_steps=1"),
    ],
)
def test_a_warning_names_the_line_of_the_program(program: Callable[[], None], part: str) -> None:
    advice.forget()
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        program()
    found = [warning for warning in record if part in str(warning.message)]
    assert found, [str(warning.message) for warning in record]
    lines, first = inspect.getsourcelines(few_updates if program is through_torch else program)
    for warning in found:
        assert warning.filename == __file__
        assert first < warning.lineno < first + len(lines)


def test_a_program_given_as_text_has_a_line_too() -> None:
    """As with ``python -c``, and in a notebook."""
    place = {"__name__": "__main__", "warn_user": warn_user}
    with pytest.warns(UserWarning, match="here") as record:
        exec(compile("\n\nwarn_user('here')", "<string>", "exec"), place)
    assert (record[0].filename, record[0].lineno) == ("<string>", 3)


def test_without_a_program_the_line_that_warns_is_named() -> None:
    place = {"__name__": "polyak.somewhere", "warn_user": warn_user}
    code = compile("warn_user('here')", "polyak/somewhere.py", "exec")
    from threading import Thread

    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        worker = Thread(target=exec, args=(code, place))
        worker.start()
        worker.join()
    ours = [warning for warning in record if warning.category is UserWarning]  # files may be collected meanwhile
    assert [(str(warning.message), warning.filename) for warning in ours] == [("here", "polyak/somewhere.py")]


def test_one_place_warns_for_the_whole_package() -> None:
    root = Path(polyak.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if "warnings.warn" not in (text := path.read_text()):
            continue
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        assert "warnings.warn" not in calls, f"{path.relative_to(root)}: call polyak.warning.warn_user instead"


def test_a_line_of_a_loop_warns_once() -> None:
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("default")
        for _ in range(3):
            old_spelling()
    assert len([warning for warning in record if "old spelling" in str(warning.message)]) == 1
