"""The databases of a cluster that does not start, brought home from its files: catalogs, schema and rows."""
