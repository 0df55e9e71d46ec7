"""The demonstration: one page on which action gaps can be turned, widened and shaken, and bicycles watched."""
