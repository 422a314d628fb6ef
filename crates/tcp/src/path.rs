//! The path to a peer: packet size and MSS.

/// The smallest MSS that we cut data to, whatever a peer or an ICMP error says,
/// in bytes (Linux: `TCP_MIN_SND_MSS`, 48; less lets a peer make us send a
/// header for each few bytes).
pub const MIN_MSS: u16 = 48;

/// The link's or path's maximum packet and the IP version, from which the MSS
/// follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The connection runs over IPv6.
    pub ipv6: bool,
    /// The peer is the next hop: no router is on the way.
    pub on_link: bool,
}

impl Path {
    /// Largest TCP payload of a packet of `mtu` bytes without any IP or TCP option.
    pub const fn mss_limit(self) -> u16 {
        // MUST-67 (RFC 9293 §3.7.1): the MSS option says MMS_R - 20. We can reassemble no
        // more than the link carries: we ask for no fragments.
        let headers = if self.ipv6 { 60 } else { 40 };
        let mss = self.mtu.saturating_sub(headers);
        if mss < MIN_MSS { MIN_MSS } else { mss }
    }

    /// The path, used for segments of at most `mss` bytes (`TCP_MAXSEG`).
    #[must_use]
    pub fn with_mss(self, mss: Option<u16>) -> Path {
        let headers = if self.ipv6 { 60 } else { 40 };
        let most = mss.map_or(u16::MAX, |mss| mss.max(MIN_MSS).saturating_add(headers));
        Path { mtu: self.mtu.min(most), ..self }
    }

    /// The MSS of a peer that sends no MSS option (RFC 9293 §3.7.1).
    pub const fn default_mss(self) -> u16 {
        // MUST-15 (RFC 9293 §3.7.1)
        if self.ipv6 { 1220 } else { 536 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // tests: MUST-15, MUST-67
    #[test]
    fn mss_follows_from_mtu_and_version() {
        let v4 = Path { mtu: 1500, ipv6: false, on_link: false };
        let v6 = Path { mtu: 1500, ipv6: true, on_link: false };
        assert_eq!((v4.mss_limit(), v6.mss_limit()), (1460, 1440));
        assert_eq!((v4.default_mss(), v6.default_mss()), (536, 1220));
        assert_eq!(Path { mtu: 20, ..v6 }.mss_limit(), MIN_MSS);
        assert_eq!([None, Some(1000), Some(9000)].map(|mss| v4.with_mss(mss).mss_limit()), [1460, 1000, 1460]);
        assert_eq!(v6.with_mss(Some(1)).mss_limit(), MIN_MSS);
    }
}
