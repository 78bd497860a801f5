# SPDX-License-Identifier: Apache-2.0
"""The command line itself: verbs, options, help, pages, exit statuses without any run."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
VERBS = [
    "ps",
    "status",
    "watch",
    "stop",
    "abort",
    "pause",
    "resume",
    "checkpoint",
    "evaluate",
    "extend",
    "prune",
    "set",
    "get",
    "params",
    "note",
    "ping",
    "recover",
    "send",
    "log",
    "tune",
    "events",
    "emit",
    "gc",
    "help",
    "version",
]


def test_version(place):
    done = place.kajitori("--version")
    assert re.fullmatch(r"kajitori \d+\.\d+\.\d+\n", done.stdout)
    assert place.kajitori("version").stdout == done.stdout


def test_help_lists_every_verb(place):
    done = place.kajitori("help")
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout
    assert place.kajitori("--help").stdout == done.stdout
    assert set(VERBS) <= set(place.kajitori("help", "--words").stdout.split())


def all_verbs(place):
    return place.kajitori("help", "--words").stdout.split()


def test_every_verb_has_help(place):
    for verb in all_verbs(place):
        done = place.kajitori("help", verb)
        assert done.stdout.startswith(f"Usage: kajitori {verb}")
        assert place.kajitori(verb, "--help").stdout == done.stdout
        assert "--help" in place.kajitori("help", "--words", verb).stdout


def test_an_example_can_be_typed_as_it_stands(place):
    for verb in all_verbs(place):
        for example in re.findall(
            r"^  (\S*kajitori .*)", place.kajitori("help", verb).stdout, re.M
        ):
            quoted_taken_out = re.sub(r"'[^']*'|\"[^\"]*\"", "", example)
            assert not re.search(r"\S[<>]|[<>]\d", quoted_taken_out), example


def test_every_verb_has_a_page_that_mandoc_likes(place):
    assert shutil.which("mandoc")
    for page in [[], *([verb] for verb in all_verbs(place))]:
        text = place.kajitori("help", "--man", *page).stdout
        lint = subprocess.run(
            ["mandoc", "-Tlint", "-W", "style"], input=text, text=True, capture_output=True
        )
        assert lint.stdout + lint.stderr == "", page
        assert lint.returncode == 0
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS"):
            assert f".SH {section}\n" in text
        if page:
            assert ".SH OPTIONS\n" in text
            assert ".SH SEE ALSO\n" in text


def test_every_page_is_built(place):
    built = pathlib.Path(os.path.realpath(place.command)).parent
    assert (built / "kajitori.1").is_file()
    for verb in all_verbs(place):
        assert (built / f"kajitori-{verb}.1").read_text().startswith(".TH KAJITORI")


def test_completion(place):
    script = ROOT / "cli" / "completion.bash"
    shell = """kajitori() { "$COMMAND" "$@"; }
    source "$SCRIPT"
    COMP_WORDS=(kajitori $WORDS); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _kajitori
    printf '%s\\n' "${COMPREPLY[@]}" """

    def complete(words):
        env = {**place.env, "COMMAND": place.command, "SCRIPT": str(script), "WORDS": words}
        done = subprocess.run(
            ["bash", "-c", shell], env=env, text=True, check=True, capture_output=True
        )
        return done.stdout.split()

    assert complete("st") == ["status", "stop"]
    assert complete("stop --rea") == ["--reason"]
    assert complete("stop --wait a") == ["accepted", "applied"]
    assert complete("pause --level l") == ["leave"]
    assert complete("prune --th") == ["--threshold"]
    assert complete("tune --pruner med") == ["median"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "say what to do: ps, status, watch, stop, "),
        (["stauts"], "no verb 'stauts'; did you mean 'status'?"),
        (["explode"], "no verb 'explode'; there are ps, status, watch, stop, "),
        (["--frobnicate"], "no such option: --frobnicate"),
        (["stop", "--frobnicate"], "no such option: --frobnicate"),
        (["stop", "--dryrun"], "no such option: --dryrun; did you mean --dry-run?"),
        (["events", "--tga=x", "."], "no such option: --tga"),
        (["tune", "--jbos=2", "--", "a"], "no such option: --jbos=2; did you mean --jobs?"),
        (["tune", "a", "--lr", "{lr}"], "no such option: --lr; those of the program stand behind"),
        (["stop", "--at"], "--at needs a value"),
        (["stop", "a", "b"], "'b' is one argument too many"),
        (["status", "a", "b"], "'b' is one argument too many"),
        (["ps", "a"], "'a' is one argument too many"),
        (["ps", "--run", "a"], "no such option: --run"),
        (["ps", "--format", "xml"], "--format xml: ps has the formats"),
        (["set"], "say what to set"),
        (["set", "lr"], "say what to set: NAME=VALUE (lr would be the run)"),
        (["stop", ""], "the name of the run is empty"),
        (["set", "-r", "", "lr=1"], "the name of the run is empty"),
        (["stop", "dry_run=1"], "dry_run=1: must be yes or no"),
        (["tune", "-n", "x"], "-n x: must be a whole number"),
        (["tune", "--trials=1.5"], "--trials=1.5: must be a whole number"),
        (["tune", "--jobs", "99999999999999999999"], "--jobs 99999999999999999999: the number is"),
        (["set", "run", "lr"], "'lr' is no NAME=VALUE"),
        (["set", "lr=1", "lr=2"], "'lr' is given twice"),
        (["set", "=1"], "'=1' has no name"),
        (["send"], "say what to send"),
        (["send", "a", "b", "c"], "quote it"),
        (["stop", "--wait", "never"], "--wait never"),
        (["stop", "--timeout", "soon"], "--timeout soon"),
        (["stop", "--timeout", "-1"], "--timeout -1"),
        (["events"], "say which folder"),
        (["events", "a", "b"], "'b' is one argument too many"),
        (["help", "nothing"], "no verb 'nothing'; there are ps, "),
        (["help", "stauts"], "did you mean 'status'?"),
    ],
)
def test_wrong_usage(place, words, says):
    done = place.kajitori(*words, status=2)
    assert done.stdout == ""
    first, second = done.stderr.splitlines()
    assert says in first
    assert first.startswith("kajitori: ")
    assert second.startswith("Usage: kajitori ")


def test_no_run(place):
    done = place.kajitori("ps")
    assert done.stdout == ""
    assert done.stderr == "kajitori: no run is live\n"
    assert place.kajitori("ps", "-q").stderr == ""
    assert place.kajitori("ps", "--format", "json", "-q").stdout == "[]\n"
    for words in (
        ["status"],
        ["watch"],
        ["stop"],
        ["pause"],
        ["resume"],
        ["set", "lr=1"],
        ["get"],
        ["send", "ping"],
        ["checkpoint"],
        ["extend", "+1"],
        ["note", "x"],
        ["ping"],
        ["params"],
        ["recover"],
    ):
        done = place.kajitori(*words, status=3)
        note = "kajitori: a run that left is started again by its name: kajitori resume RUN\n"
        hint = note if words == ["resume"] else ""
        assert done.stderr == f"kajitori: no run is live (looked in {place.runtime})\n{hint}"
        assert done.stdout == ""
    done = place.kajitori("log", status=3)
    assert "there is no journal" in done.stderr


def test_flags_win_over_environment(place, tmp_path):
    done = place.kajitori("status", "--runtime-dir", tmp_path / "other", status=3)
    assert f"looked in {tmp_path}/other" in done.stderr
    done = place.kajitori("log", "--state-dir", tmp_path / "other", status=3)
    assert f"{tmp_path}/other/runs" in done.stderr


def test_without_any_setting_it_looks_in_both_places(place, tmp_path):
    env = {"KAJITORI_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": str(tmp_path / "xdg")}
    done = place.kajitori("status", "x-no-such-run", status=3, env=env)
    assert f"/tmp/kajitori-{os.geteuid()}" in done.stderr or "no live run begins" in done.stderr


def test_runtime_folder_that_cannot_be_used(place):
    place.runtime.write_text("")
    done = place.kajitori("status", status=1)
    assert done.stderr == f"kajitori: the runtime folder {place.runtime} is not a folder\n"
    place.runtime.unlink()
    place.runtime.mkdir()
    place.runtime.chmod(0o755)
    done = place.kajitori("ps", status=1)
    assert f"{place.runtime} must be a folder of ours with mode 700" in done.stderr


def test_output_that_cannot_be_written(place):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [place.command, "help"], stdout=full, stderr=subprocess.PIPE, text=True, env=place.env
        )
    assert done.returncode == 1
    assert done.stderr == "kajitori: cannot write the result to standard output\n"
