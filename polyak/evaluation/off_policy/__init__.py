"""Off-policy evaluation: a policy's return, estimated from recorded episodes."""
