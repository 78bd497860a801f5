# SPDX-License-Identifier: Apache-2.0
"""kajitori events csv: over what Python's csv module writes, which is the oracle."""

import csv
import io
import json
import random

SEPARATORS = ",;\t"


def random_name(rng, separator, quoted):
    odd = '"\n' + (SEPARATORS if quoted else separator)
    return "".join(["c", *rng.choices("ab é/:" + odd, k=rng.randrange(6)), f"{rng.random():.9f}"])


def random_cell(rng):
    if rng.random() < 0.3:
        return ""
    return rng.choice([repr(rng.gauss(0, 1e3)), str(rng.randrange(-9, 9)), "nan", "-inf", "1e-300"])


def random_table(rng):
    separator = rng.choice(SEPARATORS)
    quoted = rng.random() < 0.5
    names = ["step", *(random_name(rng, separator, quoted) for _ in range(rng.randrange(1, 6)))]
    rng.shuffle(names)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(
        text,
        names,
        delimiter=separator,
        quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL,
        lineterminator=rng.choice(["\n", "\r\n"]),
    )
    writer.writeheader()
    for k in range(rng.randrange(1, 20)):
        writer.writerow({name: k if name == "step" else random_cell(rng) for name in names})
    return separator, text.getvalue()


def expected_points(separator, text):
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    return [
        (name, int(row["step"]), repr(float(cell)))
        for row in rows
        for name, cell in row.items()
        if name != "step" and cell
    ]


def test_tables_of_pythons_csv_module(place):
    rng = random.Random(5)
    file = place.tmp_path / "table.csv"
    for _ in range(60):
        separator, text = random_table(rng)
        file.write_text(text, newline="", encoding="utf-8")
        done = place.kajitori("events", f"csv:{file}", "--finished", "--format", "jsonl")
        points = [json.loads(line) for line in done.stdout.splitlines()]
        got = [(p["tag"], p["step"], repr(float(p["value"]))) for p in points]
        assert got == expected_points(separator, text), text
