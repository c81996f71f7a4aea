"""What sb3-contrib has besides ``MaskablePPO`` for action masks: distributions, policies, buffers, evaluation."""
