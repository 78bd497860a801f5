# SPDX-License-Identifier: Apache-2.0
"""The table of docs/frameworks.md is true: each cell in a real training of its framework."""

import functools

import pytest
from observations import ROWS
from published_table import CELLS, cells, published, table
from steered_program import ADAPTERS, Program, Refused, Training


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The program of an adapter; only one is there at a time, and one that a test has broken is started
    anew."""
    found = {}

    def get(adapter):
        if adapter not in found or not found[adapter].is_alive():
            for old in found.values():
                old.close()
            found.clear()
            found[adapter] = Program(adapter, tmp_path_factory.mktemp(adapter))
        return found[adapter]

    yield get
    for old in found.values():
        old.close()


def observed(row, program, folder):
    """What `row` sees, or the refusal."""
    try:
        return ROWS[row](functools.partial(Training, program, folder / "checkpoints"))
    except Refused as refusal:
        return refusal
    except BaseException:
        program.close()  # it may be within a training
        raise


@pytest.mark.parametrize(("adapter", "row", "cell"), cells())
def test_cell(adapter, row, cell, program, tmp_path):
    seen = observed(row, program(adapter), tmp_path)
    if isinstance(cell, dict):
        assert isinstance(seen, Refused), f"not refused: {seen}"
        assert cell["refused"] in str(seen)
    else:
        assert not isinstance(seen, Refused), f"refused: {seen}"
        assert seen == cell


def test_the_published_table_is_this_one():
    assert published() == table(), "tests/frameworks/table/published_table.py writes it"


def test_every_adapter_has_a_column_and_every_row_a_function():
    columns = [adapter for column in CELLS["columns"].values() for adapter in column["adapters"]]
    assert sorted(columns) == sorted(ADAPTERS)
    assert list(CELLS["rows"]) == list(ROWS)
