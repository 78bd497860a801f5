# SPDX-License-Identifier: Apache-2.0
"""What --host hands to the shell of the other host: words, whatever is in them."""

import json
import re
import shutil
import subprocess
import sys

import pytest

WORDS = [
    "$(touch hacked)",
    "`touch hacked`",
    "'; touch hacked; '",
    "\\",
    "; touch hacked #",
    "\\'; touch hacked; '",
    '"; touch hacked; "',
    "a\tb  c",
    "* ? [a] {b,c} ~ !! !$",
    "--reason",
    "\u202e\u00e4",
    "line=1\nline=2",
    "&& touch hacked",
    "> hacked",
]


@pytest.fixture
def line(place):
    """The line that ssh is given."""
    ssh = place.tmp_path / "ssh"
    ssh.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    ssh.chmod(0o755)
    show = place.tmp_path / "show"
    show.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    show.chmod(0o755)
    env = {"KAJITORI_SSH": str(ssh), "KAJITORI_REMOTE": str(show), "USER": "'; touch hacked; '"}

    def made(*words):
        done = place.kajitori("send", "--host", "there", "--", *words, env=env)
        host, text = json.loads(done.stdout)
        assert host == "there"
        return text

    return made


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "fish", "ksh", "mksh"])
def test_words_arrive_in_every_shell_and_nothing_else_happens(place, line, shell):
    if not shutil.which(shell):
        return  # the ones that are there have shown it, and the next test holds for all
    folder = place.tmp_path / "cwd"
    folder.mkdir()
    done = subprocess.run(
        [shell, "-c", line(*WORDS)], cwd=folder, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)[-len(WORDS) :] == WORDS
    assert not list(folder.iterdir())


def test_no_backslash_stands_in_quotes(line):
    """fish takes one there for more than itself."""
    text = line(*WORDS)
    quoted = re.findall(r"'([^']*)'|\\(.)", text)
    assert any(escaped == "\\" for _, escaped in quoted)
    assert not any("\\" in inner for inner, _ in quoted)


@pytest.mark.parametrize(
    "host", ["-oProxyCommand=touch hacked", "a b", "a;b", "$(id)", "a'b", "", "`id`", "a\nb"]
)
def test_what_is_no_host_is_refused(place, host):
    done = place.kajitori("ps", f"--host={host}", status=2)
    assert "is no name of a host" in done.stderr


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("ssh://[::1]/r", ["::1"]),
        ("ssh://[::1]:2222/r", ["-p", "2222", "::1"]),
        ("ssh://me@[fe80::2%eth0]:22/r", ["-p", "22", "me@fe80::2%eth0"]),
        ("ssh://me@there:22/r", ["-p", "22", "me@there"]),
        ("ssh://there", ["there"]),
    ],
)
def test_the_host_of_a_url(place, url, host):
    done = place.kajitori("ping", url, env={"KAJITORI_SSH": "printf %s\\\\n"})
    assert done.stdout.splitlines()[: len(host)] == host
