"""Tables, sequences and views that users made."""

from __future__ import annotations

from leadline.files.salvage import foreign
from leadline.files.salvage.catalog import Catalog, Key, Row, elements, numbers, quoted
from leadline.files.salvage.expressions import partition_bound
from leadline.files.salvage.keys import key_columns
from leadline.files.salvage.queries import view_query
from leadline.files.salvage.written import CLASSES, Item, Writer

DEFAULT_AM = ("0", "2")  # none, heap
STORAGE = {"p": "plain", "e": "external", "m": "main", "x": "extended"}
COMPRESSION = {"p": "pglz", "l": "lz4"}
STRATEGY = {"l": "list", "r": "range", "h": "hash"}
IDENTITY = {"a": "always", "d": "by default"}
AUTO, INTERNAL = "a", "i"
PG_CLASS = str(CLASSES["pg_class"])


def write(writer: Writer) -> None:
    catalog = writer.catalog
    for row in catalog.rows("pg_class"):
        if not writer.is_mine("pg_class", row) or is_temporary(catalog, row):
            continue
        what = f"{catalog.schema(int(row['relnamespace']))}.{row['relname']}"
        match row["relkind"]:
            case "r" | "p" | "f":
                writer.attempt(f"table {what}", lambda row=row: _table(writer, row))  # type: ignore[misc]
            case "S":
                writer.attempt(f"sequence {what}", lambda row=row: _sequence(writer, row))  # type: ignore[misc]
            case "v" | "m":
                writer.attempt(f"view {what}", lambda row=row: _view(writer, row))  # type: ignore[misc]


def is_temporary(catalog: Catalog, row: Row) -> bool:
    """Or a part of another relation, as TOAST is."""
    schema = catalog.schema(int(row["relnamespace"]))
    return row["relpersistence"] == "t" or schema.startswith(("pg_temp_", "pg_toast"))


def parents(catalog: Catalog, oid: int) -> list[int]:
    """Of a table, in order."""
    found = sorted(catalog.grouped("pg_inherits", "inhrelid").get(oid, ()), key=lambda row: int(row["inhseqno"]))
    return [int(row["inhparent"]) for row in found]


def _table(writer: Writer, row: Row) -> None:
    catalog, oid = writer.catalog, int(row["oid"])
    name = catalog.relation(oid)
    above = parents(catalog, oid)
    is_partition = row["relispartition"] == "t"
    defaults = {int(d["adnum"]): d for d in catalog.grouped("pg_attrdef", "adrelid").get(oid, ())}
    lines, later, apart = [], [], list[Item]()
    for column in catalog.attributes.get(oid, ()):
        if column["attisdropped"] == "t":
            continue
        default = defaults.get(int(column["attnum"]))
        if default is not None and _is_apart(writer, column, default):
            apart += _default_apart(writer, oid, column, default)
            default = None
        elif default is not None:
            writer.merged[Key("pg_attrdef", int(default["oid"]))] = Key("pg_class", oid)
        if column["attislocal"] == "t" or is_partition or not above:
            lines.append(_column(writer, row, column, default))
        else:
            later += _inherited(writer, name, oid, column, default)
        later += _storage(catalog, name, column) if row["relkind"] != "f" else []
    for constraint in catalog.grouped("pg_constraint", "conrelid").get(oid, ()):
        if constraint["contype"] != "c":
            continue
        key = Key("pg_constraint", int(constraint["oid"]))
        if constraint["conislocal"] == "f" and not is_partition:
            writer.merged[key] = Key("pg_class", oid)
        elif writer.calls_own(key) and constraint["convalidated"] == "t":
            for line in _check(writer, name, oid, constraint):
                apart.append(Item(key, "", f"alter table {name} add {line};", needs=(Key("pg_class", oid),)))
        else:
            writer.merged[key] = Key("pg_class", oid)
            lines += _check(writer, name, oid, constraint)
    body = ",\n    ".join(lines)
    is_foreign = row["relkind"] == "f"
    kind = "foreign " if is_foreign else "unlogged " if row["relpersistence"] == "u" else ""
    sql = f"create {kind}table {name} (" + (f"\n    {body}\n)" if body else ")")
    if above and not is_partition:
        sql += f"\ninherits ({', '.join(catalog.relation(parent) for parent in above)})"
    if row["relkind"] == "p":
        sql += f"\npartition by {_partition_key(writer, oid)}"
    if row["relam"] not in DEFAULT_AM:
        sql += f"\nusing {quoted(str(catalog.by_oid('pg_am')[int(row['relam'])]['amname']))}"
    given = [f"{option}={value}" for option, value in options(row)]
    toast = catalog.by_oid("pg_class").get(int(row["reltoastrelid"] or 0))
    given += [f"toast.{option}={value}" for option, value in options(toast)] if toast else []
    sql += f"\nwith ({', '.join(given)})" if given else ""
    sql += foreign.of_table(catalog, oid) if is_foreign else ""
    writer.before.append(
        Item(Key("pg_class", oid), f"{'foreign ' * is_foreign}table {name}", "\n".join([sql + ";", *later]), int(row["relowner"]))
    )
    writer.before += apart
    if is_partition:
        bound = partition_bound(row["relpartbound"], catalog)
        attach = f"alter table only {catalog.relation(above[0])} attach partition {name} {bound};"
        needs = [Key("pg_class", oid), Key("pg_class", above[0])]
        for table in (oid, above[0]):  # a partition has the checks of its parent before it is attached
            constraints = catalog.grouped("pg_constraint", "conrelid").get(table, ())
            needs += [Key("pg_constraint", int(c["oid"])) for c in constraints if c["contype"] == "c"]
        writer.before.append(Item(Key("pg_inherits", oid), "", attach, needs=tuple(needs)))


def options(row: Row) -> list[tuple[str, str]]:
    pairs = (entry.partition("=") for entry in elements(row["reloptions"]) if entry)
    return [(name, value if value.replace(".", "").isalnum() else "'" + value.replace("'", "''") + "'") for name, _, value in pairs]


def _column(writer: Writer, table: Row, column: Row, default: Row | None) -> str:
    catalog, oid = writer.catalog, int(table["oid"])
    type_oid = int(column["atttypid"])
    parts = [quoted(column["attname"]), catalog.type_name(type_oid, int(column["atttypmod"]))]
    parts += [foreign.given(column["attfdwoptions"]).strip()] * bool(column["attfdwoptions"])
    of_type = catalog.by_oid("pg_type").get(type_oid, {}).get("typcollation") or "0"
    if int(column["attcollation"]) and column["attcollation"] != of_type:
        parts.append(f"collate {catalog.collation(int(column['attcollation']))}")
    generated = (column["attgenerated"] or "").strip()
    if default is not None:
        what = f"default of {catalog.relation(oid)}.{parts[0]}"
        if (text := writer.expression(default["adbin"], what, oid)) is not None:
            word = {"s": "stored", "v": "virtual"}.get(generated)
            parts.append(f"generated always as ({text}) {word}" if word else f"default {text}")
    identity = (column["attidentity"] or "").strip()
    if identity and table["relispartition"] == "f":
        parts.append(f"generated {IDENTITY[identity]} as identity{_identity(writer, oid, int(column['attnum']))}")
    return " ".join([*parts, *_not_null(writer, oid, column)])


def _not_null(writer: Writer, oid: int, column: Row) -> list[str]:
    """From 18 on it is a constraint with a name."""
    if column["attnotnull"] == "f":
        return []
    for constraint in writer.catalog.grouped("pg_constraint", "conrelid").get(oid, ()):
        if constraint["contype"] == "n" and numbers(constraint["conkey"]) == [int(column["attnum"])]:
            name, table = quoted(constraint["conname"]), writer.catalog.relation(oid)
            writer.merged[Key("pg_constraint", int(constraint["oid"]))] = Key("pg_class", oid)
            if constraint["convalidated"] == "f":
                writer.constrain(constraint, table, f"not null {quoted(column['attname'])} not valid")
                return []
            return [f"constraint {name} not null{' no inherit' if constraint['connoinherit'] == 't' else ''}"]
    return ["not null"]


def _is_apart(writer: Writer, column: Row, default: Row) -> bool:
    """Whether the default is set by itself: it calls a function that users made, which may take a row of the table."""
    return not (column["attgenerated"] or "").strip() and writer.calls_own(Key("pg_attrdef", int(default["oid"])))


def _default_apart(writer: Writer, oid: int, column: Row, default: Row) -> list[Item]:
    name = writer.catalog.relation(oid)
    text = writer.expression(default["adbin"], f"default of {name}.{column['attname']}", oid)
    if text is None:
        return []
    sql = f"alter table only {name} alter column {quoted(column['attname'])} set default {text};"
    return [Item(Key("pg_attrdef", int(default["oid"])), "", sql, needs=(Key("pg_class", oid),))]


def _inherited(writer: Writer, name: str, oid: int, column: Row, default: Row | None) -> list[str]:
    """What a child has otherwise than its parents."""
    alter = f"alter table only {name} alter column {quoted(column['attname'])}"
    found = []
    if default is not None and not (column["attgenerated"] or "").strip():
        text = writer.expression(default["adbin"], f"default of {name}.{column['attname']}", oid)
        found += [f"{alter} set default {text};"] if text is not None else []
    elif default is None and _has_default(writer.catalog, oid, column["attname"]):
        found.append(f"{alter} drop default;")
    return found + [f"{alter} set not null;"] * (column["attnotnull"] == "t")


def _has_default(catalog: Catalog, oid: int, name: str) -> bool:
    """Whether a parent has one for this column."""
    for relid in parents(catalog, oid):
        numbers_of = {c["attnum"] for c in catalog.attributes.get(relid, ()) if c["attname"] == name}
        if any(default["adnum"] in numbers_of for default in catalog.grouped("pg_attrdef", "adrelid").get(relid, ())):
            return True
    return False


def _storage(catalog: Catalog, name: str, column: Row) -> list[str]:
    alter = f"alter table only {name} alter column {quoted(column['attname'])}"
    usual = catalog.by_oid("pg_type").get(int(column["atttypid"]), {}).get("typstorage")
    found = []
    if usual and column["attstorage"] != usual:
        found.append(f"{alter} set storage {STORAGE[column['attstorage']]};")
    if word := COMPRESSION.get(column.get("attcompression") or ""):
        found.append(f"{alter} set compression {word};")
    if column.get("attstattarget") not in (None, "-1"):
        found.append(f"{alter} set statistics {column['attstattarget']};")
    return found


def _check(writer: Writer, name: str, oid: int, constraint: Row) -> list[str]:
    text = writer.expression(constraint["conbin"], f"constraint {constraint['conname']} of {name}", oid)
    if text is None:
        return []
    no_inherit = " no inherit" if constraint["connoinherit"] == "t" else ""
    if constraint["convalidated"] == "f":
        writer.constrain(constraint, name, f"check ({text}){no_inherit} not valid")
        return []
    return [f"constraint {quoted(constraint['conname'])} check ({text}){no_inherit}"]


def _partition_key(writer: Writer, oid: int) -> str:
    """As `partition by` has it."""
    (found,) = writer.catalog.grouped("pg_partitioned_table", "partrelid")[oid]
    columns = key_columns(
        writer.catalog, oid, numbers(found["partattrs"]), found["partexprs"], numbers(found["partclass"]), numbers(found["partcollation"]),
        STRATEGY[found["partstrat"]] if found["partstrat"] == "h" else "btree",
    )  # fmt: skip
    return f"{STRATEGY[found['partstrat']]} ({', '.join(columns)})"


# -- sequences --------------------------------------------------------------------------------------------------------


def _owned(catalog: Catalog, sequence: int, kind: str) -> tuple[int, int] | None:
    """The table and the number of the column that a sequence belongs to."""
    for row in catalog.grouped("pg_depend", "objid").get(sequence, ()):
        if row["classid"] == PG_CLASS == row["refclassid"] and row["deptype"] == kind and int(row["refobjsubid"]) > 0:
            return int(row["refobjid"]), int(row["refobjsubid"])
    return None


def _identity(writer: Writer, oid: int, attnum: int) -> str:
    """The options of the sequence behind an identity column."""
    for row in writer.catalog.grouped("pg_depend", "refobjid").get(oid, ()):
        sequence = int(row["objid"])
        if _owned(writer.catalog, sequence, INTERNAL) == (oid, attnum) and sequence in writer.catalog.by_oid("pg_class"):
            writer.merged[Key("pg_class", sequence)] = Key("pg_class", oid)
            return f" (sequence name {writer.catalog.relation(sequence)} {_sequence_options(writer.catalog, sequence)})"
    return ""


def _sequence_options(catalog: Catalog, oid: int, *, with_type: bool = False) -> str:
    found = next(iter(catalog.grouped("pg_sequence", "seqrelid").get(oid, ())), None)
    if found is None:
        return ""
    kind = f"as {catalog.type_name(int(found['seqtypid']))} " if with_type else ""
    return (
        f"{kind}start with {found['seqstart']} increment by {found['seqincrement']} minvalue {found['seqmin']} maxvalue {found['seqmax']} "
        f"cache {found['seqcache']}{' cycle' if found['seqcycle'] == 't' else ''}"
    )


def _sequence(writer: Writer, row: Row) -> None:
    catalog, oid = writer.catalog, int(row["oid"])
    if _owned(catalog, oid, INTERNAL) is not None:
        return  # made with its identity column
    name = catalog.relation(oid)
    unlogged = "unlogged " if row["relpersistence"] == "u" else ""
    sql = f"create {unlogged}sequence {name} {_sequence_options(catalog, oid, with_type=True)};"
    writer.before.append(Item(Key("pg_class", oid), f"sequence {name}", sql, int(row["relowner"])))
    if (column := _owned(catalog, oid, AUTO)) is not None:
        owner = f"{catalog.relation(column[0])}.{catalog.column(*column)}"
        writer.after.append(Item(Key("pg_depend", oid), "", f"alter sequence {name} owned by {owner};"))


# -- views ------------------------------------------------------------------------------------------------------------


def _view(writer: Writer, row: Row) -> None:
    catalog, oid = writer.catalog, int(row["oid"])
    name = catalog.relation(oid)
    rules = [rule for rule in catalog.grouped("pg_rewrite", "ev_class").get(oid, ()) if rule["ev_type"] == "1"]
    for rule in rules:
        writer.merged[Key("pg_rewrite", int(rule["oid"]))] = Key("pg_class", oid)
    if not rules:
        raise ValueError("its query is missing from pg_rewrite")
    query = view_query(rules[0]["ev_action"], catalog)
    columns = ", ".join(quoted(c["attname"]) for c in catalog.attributes.get(oid, ()) if c["attisdropped"] == "f")
    head = f"{name} ({columns})" if columns else name
    given = ", ".join(f"{option}={value}" for option, value in options(row))
    head += f" with ({given})" if given else ""
    if row["relkind"] == "m":
        sql = f"create materialized view {head} as\n{query}\nwith no data;"
        writer.before.append(Item(Key("pg_class", oid), f"materialized view {name}", sql, int(row["relowner"])))
        writer.after.append(Item(Key("refresh", oid), "", f"refresh materialized view {name};", needs=(Key("pg_class", oid),)))
    else:
        sql = f"create view {head} as\n{query};"
        writer.before.append(Item(Key("pg_class", oid), f"view {name}", sql, int(row["relowner"])))
