"""The ladder: one engine and one input, measured rung by rung from synchronous to many streams."""
