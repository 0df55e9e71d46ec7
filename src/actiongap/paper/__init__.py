"""The paper's examples and experiments, regenerated: one module per part, with the paper's numbers beside ours."""
