#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/frameworks.md, made of cells.toml; run as a program it writes it there."""

import pathlib
import re
import tomllib

TOP = pathlib.Path(__file__).resolve().parents[3]
PAGE = TOP / "docs/frameworks.md"
CELLS = tomllib.loads(pathlib.Path(__file__).with_name("cells.toml").read_text())
PLACE = re.compile(
    r"(?<=<!-- made by tests/frameworks/table/published_table.py -->\n).*?(?=\n\n)", re.S
)


def cells():
    """(adapter, row, cell) of each cell that says something."""
    return [
        (adapter, name, row[column])
        for column, what in CELLS["columns"].items()
        for adapter in what["adapters"]
        for name, row in CELLS["rows"].items()
        if column in row
    ]


def text(cell):
    """A cell as the page shows it."""
    if cell is None:
        return "-"
    if isinstance(cell, dict):
        return f"refused: {cell['refused']}"
    return "; ".join(CELLS["phrases"].get(part, part) for part in cell)


def lines():
    columns = CELLS["columns"]
    yield ["", *(column["title"] for column in columns.values())]
    yield ["---"] * (len(columns) + 1)
    for row in CELLS["rows"].values():
        yield [row["title"], *(text(row.get(column)) for column in columns)]


def table():
    return "\n".join("| " + " | ".join(line) + " |" for line in lines())


def published():
    return PLACE.search(PAGE.read_text()).group(0)


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text()))
