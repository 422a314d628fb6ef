"""Captures for the tests."""

import struct

import pytest


def segment(port: int, seq: int, payload: int) -> bytes:
    """An Ethernet frame with a TCP data segment over IPv4."""
    tcp = struct.pack("!HHIIBBHHH", port, 80, seq, 9, 0x50, 0x10, 8192, 0, 0)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + payload, 0, 0x4000, 64, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    return b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + tcp + b"\xab" * payload


def in_ipip(frame: bytes) -> bytes:
    """The frame with its IPv4 packet in another (IPIP, RFC 2003)."""
    ends = b"\xc0\0\2\1", b"\xc0\0\2\2"
    outer = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(frame) - 14, 0, 0x4000, 64, 4, 0, *ends)
    return frame[:14] + outer + frame[14:]


def capture(port: int, segments: int, payload: int = 1000, *, tunnel: bool = False) -> bytes:
    """A pcap file with segments of one connection, a microsecond apart; with ``tunnel`` each is in IPIP."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)]
    for at in range(segments):
        frame = segment(port, 1 + at * payload, payload)
        frame = in_ipip(frame) if tunnel else frame
        out.append(struct.pack("<IIII", 1, at, len(frame), len(frame)) + frame)
    return b"".join(out)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current directory, with a capture of 30 segments."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "capture.pcap").write_bytes(capture(9, 30))
    return tmp_path
