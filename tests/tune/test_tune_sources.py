# SPDX-License-Identifier: Apache-2.0
"""kajitori tune with the metric in files of lines."""

import sys

PRUNED_THIRD = [("COMPLETE", 1.0, 3), ("COMPLETE", 1.0, 3), ("PRUNED", 9.0, 1)]


def outcome(study):
    return [(row["state"], row["value"], row["steps"]) for row in study.table(3)]


def test_the_metric_from_json_lines(study):
    study.write(
        "train.py",
        """
        import json, os, signal, sys
        trial, x = int(sys.argv[1]), float(sys.argv[2])
        os.makedirs(f"logs/{trial}")
        with open(f"logs/{trial}/metrics.jsonl", "w", buffering=1) as file:
            for step in range(3):
                file.write(json.dumps({"step": step, "lr": x, "loss": float("nan"),
                                       "eval": {"loss": 1.0 if trial < 2 else 9.0}}) + "\\n")
                while trial >= 2:
                    signal.pause()
        """,
    )
    study.metric = "jsonl:logs/{trial}/metrics.jsonl:eval/loss"
    study.program = [sys.executable, "train.py", "{trial}", "{x}"]
    assert outcome(study) == PRUNED_THIRD


def test_the_metric_from_a_table_that_is_rewritten(study):
    """As Lightning's CSVLogger does when a column is new."""
    study.write(
        "train.py",
        """
        import signal, sys
        trial, x = int(sys.argv[1]), float(sys.argv[2])
        name = f"metrics-{trial}.csv"
        with open(name, "w") as file:
            file.write(f"step,train_loss\\n0,{x}\\n")
        with open(name, "w") as file:
            file.write(f"step,train_loss,val_loss\\n0,{x},\\n")
            for step in range(3):
                file.write(f"{step},,{1.0 if trial < 2 else 9.0}\\n")
                file.flush()
                while trial >= 2:
                    signal.pause()
        """,
    )
    study.metric = "csv:metrics-{trial}.csv:val_loss"
    study.program = [sys.executable, "train.py", "{trial}", "{x}"]
    assert outcome(study) == PRUNED_THIRD
