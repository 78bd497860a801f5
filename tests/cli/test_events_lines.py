# SPDX-License-Identifier: Apache-2.0
"""kajitori events over files of lines: standard input, writers that are killed, cursors."""

import json
import subprocess
import sys

import pytest

WRITER = """
import os, time
step = 0
while True:
    os.write(1, b'{"step": %d, "loss": 0.5}\\n' % step)
    step += 1
    time.sleep(0.0002)
"""


def points_of(text):
    return [json.loads(line) for line in text.splitlines()]


def read_input(place, spec, text, *options):
    done = subprocess.run(
        [place.command, "events", spec, "--format", "jsonl", *options],
        input=text,
        env=place.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [(p["tag"], p["step"], p["value"]) for p in points_of(done.stdout)]


@pytest.mark.parametrize("options", [[], ["--follow"], ["--finished"]])
@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("jsonl:-", '{"step": 1, "loss": 2}\n{"step": 3, "loss": 4}'),
        ("csv:-:loss", "step,loss\n1,2\n3,4"),
        (r"text:-:/(?<step>\d+) loss=(\S+)/", "1 loss=2\n3 loss=4"),
    ],
)
def test_standard_input_ends(place, spec, text, options):
    tag = "value" if spec.startswith("text") else "loss"
    assert read_input(place, spec, text, *options) == [(tag, 1, 2.0), (tag, 3, 4.0)]


def test_standard_input_is_followed(place):
    """A line is printed before the pipe has its end."""
    reader = subprocess.Popen(
        [place.command, "events", "jsonl:-", "--follow", "--format", "jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=place.env,
        text=True,
    )
    for step in range(3):
        reader.stdin.write(json.dumps({"step": step, "loss": step / 2}) + "\n")
        reader.stdin.flush()
        assert json.loads(reader.stdout.readline())["value"] == step / 2
    reader.stdin.close()
    assert reader.wait(60) == 0
    reader.stdout.close()


def test_a_writer_that_is_killed(place):
    """All whole lines come, each once, from readers that go on where the one before was."""
    path, cursor = place.tmp_path / "m.jsonl", place.tmp_path / "cursor"
    words = ["events", f"jsonl:{path}", "--cursor", cursor, "--format", "jsonl"]
    points = []
    for _ in range(3):
        with path.open("ab") as file:
            writer = subprocess.Popen([sys.executable, "-c", WRITER], stdout=file)
        enough = len(points) + 50
        while len(points) < enough:
            assert writer.poll() is None
            points += points_of(place.kajitori(*words).stdout)
        writer.kill()
        writer.wait()
        points += points_of(place.kajitori(*words).stdout)
        whole = [json.loads(line)["step"] for line in path.read_text().split("\n")[:-1]]
        assert [point["step"] for point in points] == whole
