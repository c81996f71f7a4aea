"""Suites of tasks, trained over several seeds, beside the scores that RL Baselines3 Zoo publishes."""
