//! Files that are often taken for captures, and how to make a capture of them.

/// The bytes at the beginning of a file that are looked at.
pub const LOOKED_AT: u64 = 64;

/// A file that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// Its kind, with an article.
    pub what: &'static str,
    /// The way to a capture that can be read.
    pub remedy: &'static str,
}

/// The kinds, each by its first bytes.
const KINDS: [(&[u8], Foreign); 10] = [
    (
        b"\xfd7zXZ\0",
        Foreign { what: "a file compressed with xz", remedy: "have it unpacked: xz -dc FILE | baton trace -" },
    ),
    (
        b"\x04\x22\x4d\x18",
        Foreign { what: "a file compressed with lz4", remedy: "have it unpacked: lz4 -dc FILE | baton trace -" },
    ),
    (
        b"BZh",
        Foreign { what: "a file compressed with bzip2", remedy: "have it unpacked: bzip2 -dc FILE | baton trace -" },
    ),
    (b"PK\x03\x04", Foreign { what: "a zip archive", remedy: "have it unpacked: unzip -p FILE | baton trace -" }),
    (
        b"7z\xbc\xaf\x27\x1c",
        Foreign { what: "a 7-Zip archive", remedy: "have it unpacked: 7z x -so FILE | baton trace -" },
    ),
    (b"snoop\0\0\0", Foreign { what: "a capture of Solaris snoop", remedy: "convert it: editcap FILE NEW.pcapng" }),
    (b"btsnoop\0", Foreign { what: "a capture of Bluetooth", remedy: "name a capture of IP traffic" }),
    (b"TRSNIFF data", Foreign { what: "a capture of Sniffer", remedy: "convert it: editcap FILE NEW.pcapng" }),
    (b"GMBU", Foreign { what: "a capture of Network Monitor", remedy: "convert it: editcap FILE NEW.pcapng" }),
    (b"RTSS", Foreign { what: "a capture of Network Monitor 1", remedy: "convert it: editcap FILE NEW.pcapng" }),
];

const TEXT: Foreign = Foreign {
    what: "text",
    remedy: "capture with 'tcpdump -w FILE', or convert a hex dump: text2pcap FILE NEW.pcapng",
};

/// Tells what a file is that begins with these bytes, if it is known and not a capture that can be read.
pub fn recognize(first: &[u8]) -> Option<Foreign> {
    let of_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    let first = &first[..first.len().min(LOOKED_AT as usize)];
    let known = KINDS.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, kind)| *kind);
    known.or_else(|| (first.len() >= 8 && first.iter().all(of_text)).then_some(TEXT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_known_and_captures_are_not_among_them() {
        for (magic, kind) in KINDS {
            assert_eq!(recognize(&[magic, &[0; 40]].concat()), Some(kind));
            assert_eq!(recognize(&magic[..2]), None);
        }
        assert_eq!(recognize(b"12:00:01.5 IP 10.0.0.1.80 > 10.0.0.2.4000: Flags [S]"), Some(TEXT));
        for magic in
            [&b"\xd4\xc3\xb2\xa1\x02\0\x04\0"[..], b"\n\r\r\n\x1c\0\0\0", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd", b""]
        {
            assert_eq!(recognize(&[magic, &[0; 40]].concat()), None, "{magic:?}");
        }
    }
}
