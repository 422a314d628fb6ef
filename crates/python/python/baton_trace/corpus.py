"""Many captures on Ray: a task for each, and one report.

    python -m baton_trace.corpus --records records/ captures/

::

    driver --path--> study --record--> records/xx/KEY.ndjson
       |               (a capture a task)        |
       +--64 names--> merge_files <--------------+
       +--16 references--> merge --> … --> total.ndjson

A study writes its record under another name and renames it, so a record is there whole or not at all. Its key is made
of the capture's path, size and time of change and of the rules: what is there is not read again, and what has changed
is. The directory of records has to be one that all machines see, as have the captures.

Records add up exactly (``baton_trace.Report.merge``), so neither the order nor the tree nor a worker's death changes
the total. A study that dies with its worker is tried again; a capture that ends its worker each time is named, as is
one that cannot be opened, and costs nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator

import baton_trace

#: Records that one task reads and merges.
LEAF = 64
#: Merged records that one task merges.
BRANCH = 16
#: Times that a study is tried again after its worker died.
RETRIES = 2
#: Studies that are handed to Ray at a time, for each CPU.
AHEAD = 4


@dataclass
class Study:
    """The outcome of one study."""

    path: str
    #: The file with its record, unless it failed.
    record: str | None
    #: Why the capture was not read, or not to its end.
    trouble: str | None = None
    #: The worker's process, on its machine.
    pid: int = 0


@dataclass
class Outcome:
    """What became of a corpus."""

    #: The report on all captures that could be read; ``None`` if there were none.
    total: baton_trace.Report | None = None
    #: Captures that were read now.
    studied: int = 0
    #: Captures whose records were there already.
    known: int = 0
    #: Captures that were not read, or not to their end: path and reason.
    troubled: list[tuple[str, str]] = field(default_factory=list)


def key(path: str, rules: dict[str, Any]) -> str:
    """The name of a capture's record: of its path, size and time of change, and of the rules.

    Raises ``OSError`` if there is no such file.
    """
    facts = os.stat(path)
    text = json.dumps([path, facts.st_size, facts.st_mtime_ns, rules], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def place(records: str, name: str) -> Path:
    """Where a record lies. A directory has some hundred thousand entries at most."""
    return Path(records, name[:3], name + ".ndjson")


def study(path: str, records: str, rules: dict[str, Any]) -> Study:
    """Reads one capture and writes its record, in a worker."""
    try:
        target = place(records, key(path, rules))
        try:
            report, trouble = baton_trace.trace(path, **rules), None
        except baton_trace.CaptureError as error:
            report, trouble = error.report, str(error)
    except OSError as error:
        return Study(path, None, f"{path}: {error.strerror or error}", os.getpid())
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, report.record() + "\n")
    return Study(path, str(target), trouble, os.getpid())


def write_whole(target: Path, text: str) -> None:
    """Writes a file that is there whole or not at all."""
    # The same capture may be studied again on another machine while the first is thought to be dead.
    part = target.with_name(f".part-{uuid.uuid4().hex}")
    part.write_text(text)
    os.replace(part, target)


def merge_files(paths: list[str]) -> str:
    """Merges the records in these files."""
    return merge(*(Path(path).read_text() for path in paths))


def merge(*lines: str) -> str:
    """Merges records."""
    return baton_trace.Report.merge(baton_trace.Report.from_record(line) for line in lines).record()


def captures(paths: Iterable[str]) -> Iterator[str]:
    """The captures that are named and those below directories, each once."""
    seen = set()
    for path in paths:
        found = baton_trace.find(path) if os.path.isdir(path) else [path]
        for capture in map(os.path.abspath, found):
            if capture not in seen:
                seen.add(capture)
                yield capture


def run(
    paths: Iterable[str],
    records: str,
    *,
    address: str | None = None,
    workers: int | None = None,
    rules: dict[str, Any] | None = None,
    on_study: Callable[[Study], None] = lambda study: None,
) -> Outcome:
    """Reads all captures on Ray and merges their records.

    ``address`` is a cluster's, else one is started here with ``workers`` workers (as many as there are CPUs).
    ``rules`` are the keyword arguments of ``baton_trace.trace``. ``on_study`` is told of each study that ended.

    Raises ``RuntimeError`` if Ray cannot be started, and ``ValueError`` for rules that do not fit.
    """
    import ray

    rules = rules or {}
    # An empty capture tells whether the rules are possible, before anything is started.
    baton_trace.trace(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"), **rules)
    records = os.path.abspath(records)
    os.makedirs(records, exist_ok=True)
    options: dict[str, Any] = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
    ray.init(log_to_driver=False, logging_level="warning", **options)
    try:
        return _drive(ray, list(captures(paths)), records, rules, on_study)
    finally:
        ray.shutdown()


def _drive(ray: Any, paths: list[str], records: str, rules: dict[str, Any], on_study: Callable[[Study], None]) -> Outcome:
    outcome = Outcome()
    study_task = ray.remote(max_retries=RETRIES)(study)
    files_task, merge_task = ray.remote(merge_files), ray.remote(merge)
    ahead = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, str] = {}
    leaf: list[str] = []
    levels: list[list[Any]] = [[]]

    def add(level: int, reference: Any) -> None:
        if level == len(levels):
            levels.append([])
        levels[level].append(reference)
        if len(levels[level]) == BRANCH:
            full, levels[level] = levels[level], []
            add(level + 1, merge_task.remote(*full))

    def add_record(path: str) -> None:
        leaf.append(path)
        if len(leaf) == LEAF:
            add(0, files_task.remote(leaf.copy()))
            leaf.clear()

    def take_one() -> None:
        (done,), _ = ray.wait(list(running), num_returns=1)
        path = running.pop(done)
        try:
            ended = ray.get(done)
        except ray.exceptions.RayError as error:
            # The worker died with it each time, or the code failed.
            ended = Study(path, None, f"{path}: {' '.join(str(error).split())}")
        outcome.studied += ended.record is not None
        if ended.trouble is not None:
            outcome.troubled.append((path, ended.trouble))
        if ended.record is not None:
            add_record(ended.record)
        on_study(ended)

    for path in paths:
        try:
            there = place(records, key(path, rules))
        except OSError as error:
            outcome.troubled.append((path, f"{path}: {error.strerror or error}"))
            continue
        if there.exists():
            outcome.known += 1
            add_record(str(there))
            continue
        running[study_task.remote(path, records, rules)] = path
        while len(running) >= ahead:
            take_one()
    while running:
        take_one()
    if leaf:
        add(0, files_task.remote(leaf))
    rest = [reference for level in levels for reference in level]
    if rest:
        line = ray.get(merge_task.remote(*rest))
        write_whole(Path(records, "total.ndjson"), line + "\n")
        outcome.total = baton_trace.Report.from_record(line)
        # Of those whose records were there already as well.
        said = {path for path, _ in outcome.troubled}
        troubled = [(path, why) for path, why in outcome.total.files if why is not None and path not in said]
        outcome.troubled += [(path, f"{path}: {why}") for path, why in troubled]
    return outcome


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m baton_trace.corpus", description="Reads many captures on Ray.")
    parser.add_argument("captures", nargs="+", help="captures, or directories of them, that all machines see")
    parser.add_argument("--records", required=True, metavar="DIR", help="where records go; what is there is not done again")
    parser.add_argument("--address", help="a Ray cluster; else one is started here")
    parser.add_argument("--workers", type=int, metavar="N", help="workers of the one that is started here [all CPUs]")
    parser.add_argument("--html", metavar="FILE", help="write a page, with the program baton from the PATH")
    parser.add_argument("--profile", choices=["rsc", "ra", "gro"], default="rsc")
    for option in ["--cache", "--buffer", "--limit", "--window-packets", "--window-us"]:
        parser.add_argument(option, type=int, metavar="N")
    parser.add_argument("--checksum", choices=["trust", "verify"], default="trust")
    # No option is no rule, so records that were made before this one existed keep their names.
    parser.add_argument("--inner", action="store_true", default=None, help="look at TCP inside tunnels")
    given = vars(parser.parse_args(arguments))
    names = ["profile", "cache", "buffer", "limit", "window_packets", "window_us", "checksum", "inner"]
    rules = {name: given[name] for name in names if given[name] is not None}
    baton = shutil.which("baton")
    if given["html"] and baton is None:
        parser.error("--html needs the program baton on the PATH; install it, or merge the records elsewhere")
    try:
        outcome = run(
            given["captures"], given["records"], address=given["address"], workers=given["workers"], rules=rules
        )
    except ValueError as error:
        parser.error(str(error))
    for _, trouble in outcome.troubled:
        print(trouble, file=sys.stderr)
    print(f"{outcome.studied} captures read, {outcome.known} known already, {len(outcome.troubled)} with trouble")
    if outcome.total is None:
        return 1
    figures = outcome.total.to_dict()
    verdict = figures["verdict"]
    print(f"{verdict['answer']}: {verdict['because']}")
    print(f"{figures['eliminated']} of {figures['frames_in']} frames would be joined to another")
    total = Path(given["records"], "total.ndjson")
    print(f"The report of all: baton trace merge {total}")
    if given["html"]:
        # It exits with 1 where a capture was damaged, which has been said.
        shown = subprocess.run([baton, "trace", "merge", total, "--html", given["html"]], stdout=subprocess.DEVNULL)
        if not Path(given["html"]).exists():
            return shown.returncode
    return 1 if outcome.troubled else 0


if __name__ == "__main__":
    sys.exit(main())
