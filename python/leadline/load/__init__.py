"""Loads on a PostgreSQL server: scripts of pgbench, run at a rate or as fast as the server answers, and measured."""
