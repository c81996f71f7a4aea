"""Sampling: windows of rows, their reduction to transitions or sequences, and the pipeline that makes batches."""
