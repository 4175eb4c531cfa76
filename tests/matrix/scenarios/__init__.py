"""All scenarios: importing this registers them."""

from matrix.scenarios import clean, clients, ddl, failed, locks, pages, sessions, statements, storage, tables, wal

__all__ = ["clean", "clients", "ddl", "failed", "locks", "pages", "sessions", "statements", "storage", "tables", "wal"]
