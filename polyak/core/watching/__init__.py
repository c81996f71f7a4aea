"""Looking on while something learns: callbacks, logs, evaluation, and where the time goes."""
