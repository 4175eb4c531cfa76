"""DuckDB's compiled module. The package around it looks for its version among all that is installed and opens a database that nobody
asked for, which takes longer than many a query of ours.
"""

from __future__ import annotations

import _duckdb as duckdb

__all__ = ["duckdb"]
