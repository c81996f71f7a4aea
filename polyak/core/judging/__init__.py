"""Judging policies by recorded data alone: what they would do, how likely that is, what it would be worth."""
