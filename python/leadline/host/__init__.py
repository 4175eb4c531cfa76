"""What this host is: facts read once, and its counters."""
