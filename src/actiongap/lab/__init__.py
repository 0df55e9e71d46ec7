"""What an experiment is: a specification, a run that survives, its records, and statistics that hold."""
