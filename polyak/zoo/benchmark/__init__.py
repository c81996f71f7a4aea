"""``polyak benchmark``: suites of tasks, trained over several seeds, beside the scores that the Zoo publishes."""
