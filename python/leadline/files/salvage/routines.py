"""Functions, procedures and aggregates that users made."""

from __future__ import annotations

from leadline.files.salvage.catalog import Key, Row, elements, numbers, quoted
from leadline.files.salvage.expressions import expressions
from leadline.files.salvage.node_names import string
from leadline.files.salvage.queries import function_body
from leadline.files.salvage.written import Item, Writer

C_LANGUAGE, INTERNAL_LANGUAGE = "13", "12"
MODES = {"i": "", "o": "out ", "b": "inout ", "v": "variadic ", "t": ""}
VOLATILITY = {"i": "immutable", "s": "stable", "v": "volatile"}
PARALLEL = {"s": "safe", "r": "restricted", "u": "unsafe"}


def write(writer: Writer) -> None:
    for row in writer.catalog.rows("pg_proc"):
        if writer.is_mine("pg_proc", row):
            schema = writer.catalog.schema(int(row["pronamespace"]))
            writer.attempt(f"function {schema}.{row['proname']}", lambda row=row: _add(writer, row))  # type: ignore[misc]


def _add(writer: Writer, row: Row) -> None:
    kind = {"a": "aggregate", "p": "procedure"}.get(row["prokind"], "function")
    make = _aggregate if kind == "aggregate" else _routine
    name = f"{kind} {identity(writer, row)}"
    writer.before.append(Item(Key("pg_proc", int(row["oid"])), name, make(writer, row, kind), int(row["proowner"])))


def identity(writer: Writer, row: Row) -> str:
    """As `comment on` has it: with the types of what it is called with."""
    types = ", ".join(writer.catalog.type_name(oid) for oid in numbers(row["proargtypes"]))
    return f"{writer.catalog.function(int(row['oid']))}({types})"


def _arguments(writer: Writer, row: Row) -> tuple[str, str]:
    """Its arguments, and the columns of `returns table`."""
    catalog = writer.catalog
    types = numbers(row["proallargtypes"]) or numbers(row["proargtypes"])
    modes = [mode or "i" for mode in elements(row["proargmodes"])] or ["i"] * len(types)
    names = elements(row["proargnames"]) or [""] * len(types)
    inputs = [number for number, mode in enumerate(modes) if mode in "ibv"]
    defaults = expressions(row["proargdefaults"], catalog) if row["proargdefaults"] else []
    given = dict(zip(inputs[len(inputs) - len(defaults) :], defaults)) if defaults else {}
    arguments, columns = list[str](), list[str]()
    for number, (oid, mode, name) in enumerate(zip(types, modes, names)):
        text = f"{MODES[mode]}{quoted(name) + ' ' if name else ''}{catalog.type_name(oid)}"
        text += f" default {given[number]}" if number in given else ""
        (columns if mode == "t" else arguments).append(text)
    return ", ".join(arguments), ", ".join(columns)


def _routine(writer: Writer, row: Row, kind: str) -> str:
    catalog = writer.catalog
    arguments, columns = _arguments(writer, row)
    lines = [f"create {kind} {catalog.function(int(row['oid']))}({arguments})"]
    if kind == "function":
        result = catalog.type_name(int(row["prorettype"]))
        lines.append(f"returns table({columns})" if columns else f"returns {'setof ' if row['proretset'] == 't' else ''}{result}")
    lines.append(f"language {quoted(str(catalog.by_oid('pg_language')[int(row['prolang'])]['lanname']))}")
    words = []
    if kind == "function":
        words += ["window"] * (row["prokind"] == "w") + [VOLATILITY[row["provolatile"]]] * (row["provolatile"] != "v")
        words += ["strict"] * (row["proisstrict"] == "t") + ["leakproof"] * (row["proleakproof"] == "t")
        words += [f"parallel {PARALLEL[row['proparallel']]}"] * (row["proparallel"] != "u")
    words += ["security definer"] * (row["prosecdef"] == "t")
    if kind == "function":
        words += [f"cost {row['procost']}"] * (row["procost"] != ("1" if row["prolang"] in (C_LANGUAGE, INTERNAL_LANGUAGE) else "100"))
        words += [f"rows {row['prorows']}"] * (row["proretset"] == "t" and row["prorows"] != "1000")
    if function := int(row["prosupport"] or 0):
        words.append(f"support {catalog.function(function)}")
    if row["protrftypes"]:
        raise ValueError("it uses transforms")
    lines += [" ".join(words)] * bool(words) + settings(row["proconfig"])
    if row.get("prosqlbody"):
        lines.append(function_body(row["prosqlbody"], catalog))
    elif row["prolang"] == C_LANGUAGE:
        lines.append(f"as {string(row['probin'])}, {string(row['prosrc'])}")
    else:
        lines.append(f"as {dollar_quoted(row['prosrc'])}")
    return "\n".join(lines) + ";"


def settings(config: str | None) -> list[str]:
    """`set` clauses. Lists are values of their own each, as search_path has them."""
    found = []
    for name, _, value in (entry.partition("=") for entry in elements(config) if entry):
        is_list = name.lower() in ("search_path", "temp_tablespaces", "session_preload_libraries", "local_preload_libraries")
        found.append(f"set {name} to {value or string('') if is_list else string(value)}")
    return found


def dollar_quoted(text: str) -> str:
    """Between marks that the text does not have."""
    mark = "$_$"
    while mark in text or text.endswith(mark[:-1]):
        mark = mark.replace("_", "__", 1)
    return f"{mark}{text}{mark}"


def _aggregate(writer: Writer, row: Row, _kind: str) -> str:
    catalog = writer.catalog
    found = catalog.grouped("pg_aggregate", "aggfnoid")[int(row["oid"])][0]
    if found["aggkind"] != "n":
        raise ValueError("an ordered-set aggregate")
    arguments, _ = _arguments(writer, row)
    parts = [f"sfunc = {catalog.function(int(found['aggtransfn']))}", f"stype = {catalog.type_name(int(found['aggtranstype']))}"]
    functions = {"aggfinalfn": "finalfunc", "aggcombinefn": "combinefunc", "aggserialfn": "serialfunc", "aggdeserialfn": "deserialfunc",
                 "aggmtransfn": "msfunc", "aggminvtransfn": "minvfunc", "aggmfinalfn": "mfinalfunc"}  # fmt: skip
    parts += [f"{option} = {catalog.function(int(found[column]))}" for column, option in functions.items() if int(found[column])]
    parts += ["finalfunc_extra"] * (found["aggfinalextra"] == "t") + ["mfinalfunc_extra"] * (found["aggmfinalextra"] == "t")
    modify = {"r": "read_only", "s": "shareable", "w": "read_write"}
    parts += [f"finalfunc_modify = {modify[found['aggfinalmodify']]}"] * (found["aggfinalmodify"] != "r")
    if int(found["aggmtranstype"]):
        parts.append(f"mstype = {catalog.type_name(int(found['aggmtranstype']))}")
        parts += [f"minitcond = {string(found['aggminitval'])}"] if found["aggminitval"] is not None else []
    parts += [f"sspace = {found['aggtransspace']}"] * (found["aggtransspace"] != "0")
    parts += [f"initcond = {string(found['agginitval'])}"] if found["agginitval"] is not None else []
    parts += [f"sortop = {catalog.operator(int(found['aggsortop']))}"] if int(found["aggsortop"]) else []
    parts += [f"parallel = {PARALLEL[row['proparallel']]}"] * (row["proparallel"] != "u")
    return f"create aggregate {catalog.function(int(row['oid']))}({arguments or '*'}) ({', '.join(parts)});"
