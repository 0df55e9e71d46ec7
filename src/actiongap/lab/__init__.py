"""Experiments: their definition, resumable runs, validated records, and statistics."""
