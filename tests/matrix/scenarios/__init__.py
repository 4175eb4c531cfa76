"""All scenarios: importing this registers them."""

from matrix.scenarios import clean, clients, ddl, locks, pages, sessions, wal

__all__ = ["clean", "clients", "ddl", "locks", "pages", "sessions", "wal"]
