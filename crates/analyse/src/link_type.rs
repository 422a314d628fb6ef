//! Numbers of the link types, as tcpdump.org/linktypes.html has them.
#![allow(missing_docs)]

pub const NULL: u16 = 0;
pub const ETHERNET: u16 = 1;
pub const RAW_BSD: u16 = 12;
pub const RAW_OPENBSD: u16 = 14;
pub const RAW: u16 = 101;
pub const LOOP: u16 = 108;
pub const LINUX_SLL: u16 = 113;
pub const IPV4: u16 = 228;
pub const IPV6: u16 = 229;
pub const LINUX_SLL2: u16 = 276;

/// The name of a link type that can be read, or is often seen in captures and cannot.
pub fn name(link: u16) -> Option<&'static str> {
    Some(match link {
        NULL => "NULL",
        ETHERNET => "ETHERNET",
        RAW | RAW_BSD | RAW_OPENBSD => "RAW",
        LOOP => "LOOP",
        LINUX_SLL => "LINUX_SLL",
        IPV4 => "IPV4",
        IPV6 => "IPV6",
        LINUX_SLL2 => "LINUX_SLL2",
        9 => "PPP",
        50 => "PPP_HDLC",
        51 => "PPP_ETHER",
        104 => "C_HDLC",
        105 => "IEEE802_11",
        119 => "IEEE802_11_PRISM",
        127 => "IEEE802_11_RADIOTAP",
        163 => "IEEE802_11_AVS",
        187 => "BLUETOOTH_HCI_H4",
        189 => "USB_LINUX",
        192 => "PPI",
        195 => "IEEE802_15_4_WITHFCS",
        201 => "BLUETOOTH_HCI_H4_WITH_PHDR",
        219 => "NULL_WITH_PHDR",
        220 => "USB_LINUX_MMAPPED",
        227 => "CAN_SOCKETCAN",
        239 => "NFLOG",
        247 => "INFINIBAND",
        249 => "USBPCAP",
        253 => "NETLINK",
        _ => return None,
    })
}
