"""Finite MDPs: the model, examples, solving with any operator, aggregation, and learning from samples."""
