"""Names from the catalog files of a data directory, and what is wrong with the files by them."""

from typing import TypedDict, final, type_check_only

__all__ = ["CatalogNames", "file_faults", "relation_names"]

_Class = TypedDict("_Class", {"class": str})  # a keyword, so no class statement can have it

@type_check_only
class Fault(_Class):
    """What is wrong with the files of a relation.

    class: missing, odd (no regular file), short (fewer blocks than were counted last), orphan (of no relation; path names the first of its
    files), catalog (cannot be read).
    """

    path: str
    relation: str
    bytes: int
    wanted: str
    found: str

@final
class CatalogNames:
    """Names from the catalog files of a data directory. Rows of transactions that had not ended, as far as the files tell, count too.

    Raises kinds not_found, rights, unsupported, storage, invalid.
    """

    def __new__(cls, data_dir: str) -> CatalogNames: ...
    def databases(self) -> list[tuple[int, str, int, int]]:
        """(oid, name, default tablespace, bytes or -1) of each database."""

    def roles(self) -> list[tuple[int, str]]:
        """(oid, name) of each role."""

    def relations(self, datid: int) -> list[tuple[int, int, int, int, str, str, str, str, int, int, float]]:
        """Rows of the table `relation` for one database, shared relations (datid 0) with it."""

def file_faults(data_dir: str) -> list[Fault]:
    """What is wrong with the files of a data directory as its catalogs have them. Nothing of a copy or a backup without its log.

    Raises as RowScan does.
    """

def relation_names(data_dir: str) -> tuple[dict[tuple[int, int, int], tuple[str, str]], list[tuple[str, str]]]:
    """Of the file of each relation in a data directory (tablespace, database, number): (database, schema.name).

    The database of what all databases share is 0, without a name. And the databases whose catalogs are lost, and why. Raises as
    RowScan does.
    """
