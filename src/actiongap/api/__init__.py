"""High-level functions: whole jobs in one call. They run studies, show progress and return objects."""
