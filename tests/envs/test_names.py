"""What is suggested for an unknown name."""

from polyak.suggestions import did_you_mean


def test_the_closest_names_are_suggested_in_any_case() -> None:
    assert did_you_mean("N_STEP", ["n_steps", "gamma"]) == " Did you mean 'n_steps'?"
    assert did_you_mean("something", ["n_steps", "gamma"]) == ""
    assert did_you_mean("ant-v3", ["Ant-v5", "Ant-v4", "Car"]) == " Did you mean 'Ant-v5' or 'Ant-v4'?"
