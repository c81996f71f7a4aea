"""Games of two players, as arrays: rules, a checker of rules, and games of other libraries."""
