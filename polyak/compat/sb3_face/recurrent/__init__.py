"""sb3-contrib's names for recurrent policies, and for their rollouts."""
