"""Environments of other protocols as :class:`~polyak.envs.protocol.BatchedEnv`."""
