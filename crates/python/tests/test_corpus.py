"""A corpus on a Ray cluster of this machine: a worker is killed on the way, and the totals are those of one process."""

import json
import os
import signal

import pytest
from conftest import capture

import baton_trace
from baton_trace import corpus

pytest.importorskip("ray")

CAPTURES = 1000


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """A directory with a thousand small captures, one of them damaged, and a file that is none."""
    root = tmp_path_factory.mktemp("captures")
    for at in range(CAPTURES):
        below = root / f"{at % 10}"
        below.mkdir(exist_ok=True)
        (below / f"{at}.pcap").write_bytes(capture(1 + at % 300, 5 + at % 60, 500 + at))
    damaged = root / "7" / "7.pcap"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    (root / "note.pcap").write_text("no capture")
    return root


def alone(captures, **rules):
    """The report of one process."""

    def trace(path):
        try:
            return baton_trace.trace(path, **rules)
        except baton_trace.CaptureError as error:
            return error.report

    return baton_trace.Report.merge(trace(path) for path in baton_trace.find(captures))


def figures(report):
    """Everything of a report, with its captures in order."""
    record = json.loads(report.record())
    record["files"].sort(key=lambda file: file["path"])
    return record


def is_worker(pid):
    """True for a worker that Ray started below this test."""
    with open(f"/proc/{pid}/cmdline", "rb") as line:
        return line.read().startswith(b"ray::")


def test_a_killed_worker_changes_nothing_and_what_is_there_is_not_done_again(captures, tmp_path):
    killed, pids = [], set()

    def kill_one(study):
        pids.add(study.pid)
        if len(killed) == 0 and len(pids) >= 2 and is_worker(study.pid):
            os.kill(study.pid, signal.SIGKILL)
            killed.append(study.pid)

    records = tmp_path / "records"
    missing = str(captures / "missing.pcap")
    outcome = corpus.run([str(captures), missing], str(records), workers=4, on_study=kill_one)
    assert len(killed) == 1
    assert (outcome.studied, outcome.known) == (CAPTURES, 0)
    damaged = str(captures / "7" / "7.pcap")
    assert sorted(path for path, _ in outcome.troubled) == sorted([damaged, missing])
    assert "it ends in the middle of a record" in dict(outcome.troubled)[damaged]
    assert figures(outcome.total) == figures(alone(captures))

    # A capture that has changed, one whose record was lost, and the rest, which is not done again.
    (captures / "3" / "3.pcap").write_bytes(capture(3, 77))
    corpus.place(str(records), corpus.key(str(captures / "4" / "4.pcap"), {})).unlink()
    again = []
    outcome = corpus.run([str(captures)], str(records), workers=4, on_study=again.append)
    assert sorted(study.path.rsplit("/", 1)[1] for study in again) == ["3.pcap", "4.pcap"]
    assert outcome.known == CAPTURES - 2
    assert [path for path, _ in outcome.troubled] == [damaged]
    assert figures(outcome.total) == figures(alone(captures))
    assert not list(records.rglob(".part-*"))


def test_another_option_reads_a_capture_again(tmp_path, capsys):
    tunnelled = tmp_path / "tunnelled.pcap"
    tunnelled.write_bytes(capture(1, 30, tunnel=True))
    records = tmp_path / "records"

    def lines(*options):
        code = corpus.main([str(tunnelled), "--records", str(records), "--workers", "1", *options])
        said = capsys.readouterr()
        assert code == 0, said
        return said.out.splitlines()

    beside, inside = baton_trace.trace(tunnelled), baton_trace.trace(tunnelled, inner=True)
    assert (beside.eliminated, inside.frames_in) == (0, 30)
    assert inside.eliminated > 20
    inner = ["--inner"]
    for options, studied, report in [([], 1, beside), (inner, 1, inside), (inner, 0, inside), ([], 0, beside)]:
        said = lines(*options)
        assert said[0] == f"{studied} captures read, {1 - studied} known already, 0 with trouble"
        assert said[2] == f"{report.eliminated} of 30 frames would be joined to another"
        assert (records / "total.ndjson").read_text() == report.record() + "\n"
