"""Captures read, merged and kept."""

import doctest
import gc
import gzip
import inspect
import json
import pickle
import sys
import threading
import time

import pytest
from conftest import capture

import baton_trace


def test_the_examples_of_all_docstrings_run(here):
    names = {"baton_trace": baton_trace}
    documented = {"baton_trace": baton_trace}
    for name in baton_trace.__all__:
        value = getattr(baton_trace, name)
        documented[name] = value
        if inspect.isclass(value):
            own = {f"{name}.{member}": getattr(value, member) for member in vars(value) if member[0] != "_"}
            documented.update(own)
    runner = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    for name, value in documented.items():
        text = inspect.getdoc(value)
        assert text, f"{name} has no docstring"
        example = doctest.DocTestParser().get_doctest(text, dict(names), name, None, None)
        runner.run(example)
    assert runner.failures == 0 and runner.tries >= 15, runner.tries


def test_paths_and_bytes_of_every_form_give_the_same(here):
    expected = baton_trace.trace("capture.pcap").to_dict()
    plain = (here / "capture.pcap").read_bytes()
    packed = here / "packed"
    packed.write_bytes(gzip.compress(plain))
    for source in [here / "capture.pcap", packed, plain, bytearray(plain), packed.read_bytes()]:
        report = baton_trace.trace(source).to_dict()
        assert {**report, "files": None} == {**expected, "files": None}
    assert expected["eliminated"] == 25
    assert [(file["path"], file["trouble"]) for file in expected["files"]] == [("capture.pcap", None)]
    assert [line["rules"]["profile"] for line in expected["profiles"]] == ["rsc", "ra", "gro"]
    assert baton_trace.trace(plain, profile="gro").frames_out == expected["profiles"][2]["frames_out"]


def test_bytes_are_not_copied_and_let_go(here):
    with open("/proc/self/statm") as before:
        before = int(before.read().split()[1])
    large = capture(1, 100_000)
    count = sys.getrefcount(large)
    report = baton_trace.trace(large)
    assert report.frames_in == 100_000
    gc.collect()
    assert sys.getrefcount(large) == count
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    used = int(peak.split()[1]) * 1024 - before * 4096
    # The parts, what they are joined to, and no third time.
    assert used < 2.9 * len(large), (used, len(large))


def test_other_threads_run_meanwhile(here):
    large = capture(1, 300_000)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        while not ticks:
            time.sleep(0.001)
        begun = time.monotonic()
        for _ in range(5):
            baton_trace.trace(large)
        ended = time.monotonic()
    finally:
        done.set()
        thread.join()
    # Held, the lock would let no tick pass within a call, and there are only five.
    assert sum(begun < at < ended for at in ticks) > 10, ended - begun


def test_errors_have_the_words_of_the_command(here):
    with pytest.raises(FileNotFoundError, match="No such file or directory: 'missing'"):
        baton_trace.trace("missing")
    cut = (here / "capture.pcap").read_bytes()[:-1]
    with pytest.raises(baton_trace.CaptureError) as caught:
        baton_trace.trace(cut)
    assert str(caught.value) == (
        "bytes: damaged at byte 31054: it ends in the middle of a record; the report covers what came before"
    )
    assert caught.value.report.frames_in == 29
    with pytest.raises(baton_trace.CaptureError, match="text, not a capture that can be read; capture with 'tcpdump"):
        baton_trace.trace(b"12:00:01 IP 10.0.0.1 > 10.0.0.2")
    for arguments, words in [
        ({"profile": "x"}, 'profile is "x"; it can be'),
        ({"checksum": "x"}, 'checksum is "x"; it can be'),
        ({"cache": 0}, "cache is 0; give a number"),
        ({"limit": 0}, "limit is 0; give a number"),
        ({"window_us": 1 << 63}, "window_us is 9223372036854775808, out of range"),
        ({"window_us": 1, "window_packets": 1}, "window_us and window_packets exclude each other"),
        ({"profile": "gro", "cache": 9}, "cache is 64 or 8 with the profile gro"),
        ({"profile": "ra", "buffer": 1}, "buffer has no meaning with the profile ra"),
    ]:
        with pytest.raises(ValueError, match=words):
            baton_trace.trace("capture.pcap", **arguments)
    with pytest.raises(TypeError):
        baton_trace.trace(7)
    with pytest.raises(ValueError, match="a cost cannot be NaN ns"):
        baton_trace.trace("capture.pcap").to_dict(cost_byte=float("nan"))


def in_order(report):
    """Everything of a report, with its captures in order."""
    record = json.loads(report.record())
    record["files"].sort(key=lambda file: file["figures"]["frames_in"])
    return record


def test_merged_reports_are_those_of_all_captures(here):
    parts = [baton_trace.trace(capture(port, 10 * port)) for port in range(1, 6)]
    forwards, backwards = baton_trace.Report.merge(parts), baton_trace.Report.merge(reversed(parts))
    assert in_order(forwards) == in_order(backwards)
    assert forwards.frames_in == 150 and len(forwards.files) == 5
    assert parts[0].frames_in == 10
    with pytest.raises(ValueError, match="there are no reports to merge"):
        baton_trace.Report.merge([])
    with pytest.raises(baton_trace.RecordError, match="under other rules"):
        baton_trace.Report.merge([parts[0], baton_trace.trace(capture(1, 1), profile="ra")])
    with pytest.raises(TypeError):
        baton_trace.Report.merge([parts[0], "report"])


def test_reports_are_kept_as_lines_and_pickled(here):
    report = baton_trace.trace("capture.pcap", window_us=250)
    line = report.record()
    assert json.loads(line)["schema"] == "baton-trace-record" and "\n" not in line
    assert pickle.loads(pickle.dumps(report)).record() == line
    with pytest.raises(baton_trace.RecordError, match="it has version 2 of its schema"):
        baton_trace.Report.from_record(line.replace('"version":1', '"version":2'))


def test_captures_are_found_by_their_contents(here):
    (here / "below").mkdir()
    (here / "below" / "b").write_bytes(capture(1, 1))
    (here / "note.pcap").write_text("no capture")
    (here / "below" / "up").symlink_to("..")
    found = [str(path) for path in baton_trace.find(here)]
    assert [path.rsplit("/", 1)[1] for path in found] == ["b", "capture.pcap"]
