"""What interpreters and notebooks show of results and environments: figures, no arrays."""

import numpy as np

from polyak.envs import VecNormalize, make_vec_env
from polyak.envs.tabular.process import FiniteProcess
from polyak.evaluation.in_environments import EvaluationResult


def test_numbers_are_enough_to_show_what_holds_arrays() -> None:
    result = EvaluationResult(np.arange(5000.0), np.full(5000, 7), np.arange(5000) % 2 == 0, n_capped=3)
    assert repr(result) == (
        "EvaluationResult(mean=2499.50, std=1443.38, episodes=5000, mean_length=7.0, success_rate=0.500, n_capped=3)"
    )
    assert repr(EvaluationResult(np.ones(2), np.ones(2))) == (
        "EvaluationResult(mean=1.00, std=0.00, episodes=2, mean_length=1.0)"
    )
    process = FiniteProcess.from_outcomes({0: {0: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 1, 1.0, True)]}})
    assert repr(process) == "<FiniteProcess of 2 states, 1 actions, 2 outcomes>"
    envs = make_vec_env("CartPole-v1", 2)
    assert repr(envs).startswith("<DummyVecEnv of 2 environments: Box(")
    assert repr(envs).endswith("-> Discrete(2)>")
    assert repr(VecNormalize(envs)) == f"<VecNormalize around {envs!r}>"
