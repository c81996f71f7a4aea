"""From experience to gradient steps and back: one file for each way to learn."""
