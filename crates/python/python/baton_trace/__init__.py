"""What receive coalescing (LRO, GRO) would save on captures of network traffic.

The same as the command ``baton trace``, with the same rules, figures and messages:

>>> import baton_trace
>>> baton_trace.trace("capture.pcap").to_dict()["frames_out"]
5

``python -m baton_trace.corpus`` reads many captures on Ray.
"""

from ._native import CaptureError, RecordError, Report, Table, find, table, trace

__all__ = ["CaptureError", "RecordError", "Report", "Table", "find", "table", "trace"]
