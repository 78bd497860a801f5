# SPDX-License-Identifier: Apache-2.0
"""Follows TensorBoard event files below a folder and marks the best value so far of each tag.

The trainings know nothing of it.

    python follow_events.py logs --tag epoch_loss

Ends with Ctrl-C; with --finished when all that is there was printed; with --until STEP when a value
of that step came.
"""

import argparse
import contextlib

import kajitori


def follow(reader, until):
    """Prints the values; the best one of each series."""
    best = {}
    for columns in reader:
        for series, part in columns.by_series().items():
            info = reader.series(series)
            for step, value in zip(part.step, part.value, strict=True):
                is_best = value < best.get(series, float("inf"))
                if is_best:
                    best[series] = value
                print(f"{info.run} {info.tag} {step} {value:.6g}{' *' if is_best else ''}")
                if until is not None and step >= until:
                    reader.finish()
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--tag")
    parser.add_argument("--finished", action="store_true", help="nothing is written any more")
    parser.add_argument("--until", type=int, metavar="STEP")
    options = parser.parse_args()
    with (
        kajitori.EventReader(options.folder, tag=options.tag, finished=options.finished) as reader,
        contextlib.suppress(KeyboardInterrupt),
    ):
        best = follow(reader, options.until)
        print(f"{len(best)} tags, {reader.stats().points} values")


if __name__ == "__main__":
    main()
