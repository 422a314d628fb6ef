"""Reports as Arrow tables and Parquet files, read by another implementation."""

import pytest
from conftest import capture

import baton_trace

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def reports():
    both = [baton_trace.trace(capture(port, 20 + port)) for port in (1, 2)]
    return [*both, baton_trace.Report.merge(both), baton_trace.trace(capture(3, 9), profile="ra", window_us=7)]


def test_a_table_is_what_the_reports_say():
    table = pyarrow.table(baton_trace.table(reports()))
    table.validate(full=True)
    rows = table.to_pylist()
    assert len(rows) == 4
    for row, report in zip(rows, reports()):
        figures = report.to_dict()
        for name in ["frames_in", "frames_out", "eliminated", "eliminated_share", "runs", "wire_bytes", "seconds"]:
            assert row[name] == figures[name], name
        assert dict(row["reasons"]) == figures["reasons"]
        assert dict(row["flushes"]) == figures["flushes"]
        assert dict(row["run_lengths"]) == {line["from"]: line["runs"] for line in figures["run_lengths"]}
        assert row["delay_p99_ns"] == figures["added_delay_ns"]["p99"]
        assert row["cpu_saved"] == figures["cpu"]["saved"]
        for name in ["profile", "cache", "buffer", "limit", "window_packets", "window_us", "checksum"]:
            assert row[name] == figures["rules"][name], name
    assert [row["captures"] for row in rows] == [1, 1, 2, 1]
    assert [row["path"] for row in rows] == ["bytes", "bytes", None, "bytes"]


def test_a_table_may_be_taken_several_times_and_outlives_its_source():
    source = baton_trace.table(reports())
    first, second = pyarrow.table(source), pyarrow.table(source)
    assert pyarrow.schema(source) == first.schema
    # A stream that nobody takes is released.
    source.__arrow_c_stream__()
    assert source.columns == first.column_names and len(source) == 4
    del source
    assert first == second
    assert pyarrow.table(baton_trace.table([])).num_rows == 0


def test_parquet_is_the_same_table(tmp_path):
    table = baton_trace.table(reports())
    table.write_parquet(tmp_path / "reports.parquet")
    read = parquet.read_table(tmp_path / "reports.parquet")
    assert read.to_pylist() == pyarrow.table(table).to_pylist()
    with pytest.raises(OSError, match="No such file"):
        table.write_parquet(tmp_path / "nowhere" / "x")
