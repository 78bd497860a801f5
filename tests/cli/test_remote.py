# SPDX-License-Identifier: Apache-2.0
"""--host and ssh://HOST/RUN, over a real sshd; runs live in another place than the one of the caller."""

import socket

import pytest
from sshd import Sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.close()


@pytest.fixture
def there(place, tmp_path):
    folder = tmp_path / "there"
    folder.mkdir()
    there = type(place)(folder)
    yield there
    there.close()


@pytest.fixture
def here(place, there, server):
    remote = f"env KAJITORI_RUNTIME_DIR={there.runtime} KAJITORI_STATE_DIR={there.state} "
    place.env.update(KAJITORI_SSH=server.ssh, KAJITORI_REMOTE=remote + place.command)
    return place


def test_a_run_on_another_host(here, there):
    digits = there.digits(run_id="digits-far")
    assert here.kajitori("ps", "-q").stdout == ""
    (row,) = here.json("ps", "--host", "far")
    assert row["id"] == "digits-far"
    done = here.kajitori("set", "--host=far", "digits", "lr=0.25")
    assert done.stdout.startswith("lr: 0.05 -> 0.25, applied at step ")
    (record,) = [r for r in there.journal("digits-far") if r.get("state") == "applied"]
    assert record["by"] == done_by(here)
    watching = here.start_kajitori("watch", "--host", "far", "--format", "jsonl")
    watching.wait_line('"metric"')
    assert here.kajitori("stop", "ssh://far/digits-far").stdout.startswith("stop: applied at")
    assert digits.wait() == 0
    assert watching.wait() == 0
    assert "run ended" in here.kajitori("log", "-r", "ssh://far/digits").stdout
    assert not here.state.exists()


def done_by(place):
    return f"{place.env['USER']}@{socket.gethostname()}"


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "far", "-qr", "digits"],
        ["-rdigits", "--host", "far"],
        ["--run", "ssh://far/digits"],
        ["ssh://far/digits"],
        ["ssh://far/"],
        ["ssh://far"],
        ["ssh://127.0.0.1:{port}/digits-far"],
        ["--host", "far", "--", "digits"],
    ],
)
def test_ways_to_name_it(here, there, server, fake_there, words):
    words = [word.format(port=server.port) for word in words]
    assert here.kajitori("ping", *words).stdout.startswith("digits-far: ")


@pytest.fixture
def fake_there(there):
    return there.digits(run_id="digits-far")


def test_what_is_said_arrives_as_it_is(here, there, fake_there):
    text = """it's "$HOME" `id` \\ * ; # & | ~ ! 学習 --host x"""
    here.kajitori("note", text, "--host", "far", "--reason", "a b", "--by", "o'me")
    (note,) = [r for r in there.journal("digits-far") if r.get("verb") == "note"]
    assert note["words"] == [text]
    assert note["reason"] == "a b"
    assert note["by"] == "o'me"
    here.kajitori("note", "--host=far", "--reason", "--host", "x")
    note = [r for r in there.journal("digits-far") if r.get("verb") == "note"][-1]
    assert (note["words"], note["reason"]) == (["x"], "--host")


def test_a_schedule_goes_along(here, there, fake_there, tmp_path):
    (tmp_path / "steps.txt").write_text("set lr=0.5 at=step:99999999\nset lr=0.25\n")
    done = here.kajitori("send", "--host", "far", "--schedule", tmp_path / "steps.txt")
    assert done.stdout.startswith("set: waits for step 99999999 (command 3)\nset: accepted")
    sent = [r for r in there.journal("digits-far") if r.get("state") == "accepted"]
    assert [r["args"]["lr"] for r in sent] == [0.5, 0.25]
    assert {r["by"] for r in sent} == {done_by(here)}
    done = here.kajitori("send", "--host", "far", "--schedule", tmp_path / "none", status=1)
    assert done.stderr == f"kajitori: {tmp_path}/none: No such file or directory\n"


def test_exit_statuses(here, there):
    done = here.kajitori("stop", "--host", "far", status=3)
    assert done.stderr == f"kajitori: no run is live (looked in {there.runtime})\n"
    there.digits(run_id="digits-far")
    assert "lr" in here.kajitori("set", "lr=99", "--host", "far", status=5).stderr
    assert here.kajitori("set", "--host", "far", status=2).stdout == ""
    here.env["KAJITORI_REMOTE"] = "no-such-command"
    done = here.kajitori("stop", "--host", "far", status=127)
    assert done.stderr.endswith(
        "kajitori: there is no kajitori on far; say where it is in KAJITORI_REMOTE\n"
    )


def test_a_host_that_cannot_be_reached(here):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = here.kajitori("ps", "--host", "far", status=1, env={"KAJITORI_SSH": f"ssh -p {port}"})
    assert done.stderr.endswith("kajitori: cannot reach far\n")
    done = here.kajitori("ps", "--host", "far", status=1, env={"KAJITORI_SSH": "/no/ssh -v"})
    assert done.stderr == "kajitori: cannot run /no/ssh -v: No such file or directory\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["ps", "--host", "-oProxyCommand=x"], "'-oProxyCommand=x' is no name of a host"),
        (["ps", "--host="], "'' is no name of a host"),
        (["ps", "--host", "a b"], "'a b' is no name of a host"),
        (["stop", "ssh://-x/run"], "'-x' is no name of a host"),
        (["stop", "ssh://far:x/run"], "'x' is no number of a port"),
        (["help", "--host", "far"], "no such option: --host"),
        (["stop", "--host", "far", "--frob"], "no such option: --frob"),
    ],
)
def test_wrong_usage(here, words, says):
    assert here.kajitori(*words, status=2).stderr.startswith(f"kajitori: {says}")
