"""Experiments that the laboratory runs. They ask whether a wider action gap makes the greedy policy more robust."""
