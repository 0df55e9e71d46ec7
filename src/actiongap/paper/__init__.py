"""The paper's examples and experiments, regenerated: one module per part. Each compares the paper's numbers with ours."""
