"""Names, settings and counters of a server: over one short SQL connection, or from its catalog files."""
