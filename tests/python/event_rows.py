# SPDX-License-Identifier: Apache-2.0
"""What a kajitori.EventReader delivered, to be compared."""


def rows(reader, columns):
    """(run, tag, step, value) of a batch."""
    names = [reader.series(number) for number in columns.series]
    return [
        (info.run, info.tag, step, value)
        for info, step, value in zip(names, columns.step, columns.value, strict=True)
    ]
