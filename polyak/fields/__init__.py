"""Kinds of algorithms: which arguments each has, and which parts it puts together."""
