//! The configuration of an engine.

use super::baton_wait_fn;
use super::memory::{input, text};
use baton_engine::endpoint::Cidr;
use baton_socket::host::HostConfig;
use baton_socket::posix::PosixConfig;
use baton_tcp::config::{Config, Congestion};
use baton_tcp::time::{Duration, Instant};
use baton_wire::addr::Addr;
use libc::{c_char, c_int, c_void};
use std::net::IpAddr;

/// Congestion control: CUBIC (RFC 9438), the default.
pub const BATON_CUBIC: c_int = 0;
/// Congestion control: NewReno (RFC 6582).
pub const BATON_RENO: c_int = 1;

/// The configuration of an engine. Fill it with `baton_config_default`, then set at least
/// `addresses`. The strings and the secret are not needed after `baton_new`.
#[repr(C)]
pub struct baton_config {
    /// Size of this structure in bytes.
    pub size: usize,
    /// Addresses with prefix lengths, separated by spaces:
    /// `"10.77.0.2/24 fd00::2/64"`.
    pub addresses: *const c_char,
    /// The next hop for IPv4 packets to other networks; NULL for none.
    pub gateway_v4: *const c_char,
    /// The next hop for IPv6 packets to other networks; NULL for none.
    pub gateway_v6: *const c_char,
    /// 1 if frames have an Ethernet header (the default), 0 if they are bare IP packets.
    pub ethernet: c_int,
    /// Ethernet address; all zero for a random one.
    pub mac: [u8; 6],
    /// Length in bytes of the largest IP packet; default 1500.
    pub mtu: u16,
    /// 32 random bytes for sequence numbers and SYN cookies; NULL to let the library
    /// generate them.
    pub secret: *const u8,
    /// `BATON_CUBIC` or `BATON_RENO`.
    pub congestion: c_int,
    /// Maximum number of sockets, including those that wait to be accepted; default 4096.
    pub max_sockets: u32,
    /// Size in bytes of each socket's send buffer, and of its receive buffer; a power of two,
    /// default 262144. Memory is allocated as it is used.
    pub buffer_bytes: u32,
    /// Maximum number of frames that are queued in each direction; default 1024.
    pub queue_frames: u32,
    /// Duration of TIME-WAIT in milliseconds; default 60000.
    pub time_wait_ms: u32,
    /// 1 to negotiate selective acknowledgments (RFC 2018), the default, or 0.
    pub sack: c_int,
    /// 1 to negotiate timestamps (RFC 7323 §3), the default, or 0.
    pub timestamps: c_int,
    /// 1 to negotiate window scaling (RFC 7323 §2), the default, or 0.
    pub window_scaling: c_int,
    /// 1 to negotiate ECN (RFC 3168), or 0, the default.
    pub ecn: c_int,
    /// Number of times that a SYN is repeated before a connect fails, 1 to 127; default 7, which
    /// takes 247 s (Linux's `tcp_syn_retries`).
    pub syn_retries: u8,
    /// Number of times that a SYN-ACK is repeated before a half-open connection is dropped, 1 to
    /// 127; default 5 (`tcp_synack_retries`).
    pub synack_retries: u8,
    /// Number of times that data is repeated without progress before a connection is aborted, 1
    /// to 127; default 15 (`tcp_retries2`).
    pub retries: u8,
    /// The current time, in nanoseconds of the caller's clock.
    pub now_ns: u64,
    /// The callback that blocking calls wait with, or NULL. It must move frames in and out, let
    /// time pass until `until_ns` at most, call `baton_drive`, and return 0. If it returns
    /// another value, the call that waits fails with `EINTR`. It may make other calls on the
    /// engine, but must not free it.
    pub wait: Option<baton_wait_fn>,
    /// The first argument of `wait`.
    pub wait_arg: *mut c_void,
}

/// Fills a configuration with the defaults. Returns 0, or -1 with `errno` set.
///
/// # Safety
/// `config` is NULL or points to writable memory for a `baton_config`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baton_config_default(config: *mut baton_config) -> c_int {
    let default = baton_config {
        size: size_of::<baton_config>(),
        addresses: std::ptr::null(),
        gateway_v4: std::ptr::null(),
        gateway_v6: std::ptr::null(),
        ethernet: 1,
        mac: [0; 6],
        mtu: 1500,
        secret: std::ptr::null(),
        congestion: BATON_CUBIC,
        max_sockets: 4096,
        buffer_bytes: 256 << 10,
        queue_frames: 1024,
        time_wait_ms: 60_000,
        sack: 1,
        timestamps: 1,
        window_scaling: 1,
        ecn: 0,
        syn_retries: 7,
        synack_retries: 5,
        retries: 15,
        now_ns: 0,
        wait: None,
        wait_arg: std::ptr::null_mut(),
    };
    // SAFETY: the caller's promise.
    super::status(unsafe { super::memory::write(config, default) })
}

/// Converts a configuration to that of the sockets.
///
/// # Errors
/// A line that names the field and says what is wrong with it.
///
/// # Safety
/// The strings are zero-terminated, and `secret` is NULL or points to 32 bytes.
pub(super) unsafe fn translate(config: &baton_config) -> Result<PosixConfig, String> {
    // SAFETY: the caller's promise.
    let string = |ptr| unsafe { text(ptr) }.map(|text| text.to_string_lossy().into_owned());
    let addresses = string(config.addresses).unwrap_or_default();
    let addresses: Vec<Cidr> = addresses
        .split_whitespace()
        .map(|text| text.parse().map_err(|error| format!("addresses: {error}")))
        .collect::<Result<_, _>>()?;
    let first = *addresses.first().ok_or("addresses: none given; set one, for example \"10.77.0.2/24\"")?;
    let gateway = |name: &str, ptr, v6: bool| match string(ptr) {
        None => Ok(None),
        Some(text) => match text.parse::<IpAddr>() {
            Ok(ip) if ip.is_ipv6() == v6 => Ok(Some(Addr::from(ip))),
            _ => Err(format!("{name}: {text:?} is not an address of that family")),
        },
    };
    let mut host = HostConfig::new(first);
    let interface = &mut host.engine.interface;
    interface.addresses = addresses;
    interface.gateway_v4 = gateway("gateway_v4", config.gateway_v4, false)?;
    interface.gateway_v6 = gateway("gateway_v6", config.gateway_v6, true)?;
    interface.ethernet = config.ethernet != 0;
    if config.mac != [0; 6] {
        interface.mac = config.mac;
    }
    within("mtu", config.mtu.into(), 576, u16::MAX.into())?;
    interface.mtu = config.mtu;
    // SAFETY: the caller's promise.
    let secret = unsafe { input(config.secret, if config.secret.is_null() { 0 } else { 32 }) };
    if let Some(secret) = secret.ok().and_then(|secret| secret.first_chunk()) {
        host.engine.secret = *secret;
    }
    host.engine.tcp.congestion = match config.congestion {
        BATON_CUBIC => Congestion::Cubic,
        BATON_RENO => Congestion::Reno,
        other => return Err(format!("congestion: {other} is neither BATON_CUBIC nor BATON_RENO")),
    };
    protocol(config, &mut host.engine.tcp)?;
    within("max_sockets", config.max_sockets, 1, 1 << 20)?;
    within("buffer_bytes", config.buffer_bytes, 4096, 1 << 26)?;
    if !config.buffer_bytes.is_power_of_two() {
        return Err(format!("buffer_bytes: {} is not a power of two", config.buffer_bytes));
    }
    within("queue_frames", config.queue_frames, 1, 1 << 16)?;
    // Connections whose sockets are closed still need a place until TCP has ended them.
    host.engine.max_connections = 2 * config.max_sockets + 1024;
    host.consumer.connections = config.max_sockets;
    host.consumer.stream_buffer = config.buffer_bytes;
    host.consumer.stream_buffers = 2 * config.max_sockets;
    // The caller has fixed the buffer size.
    host.consumer.large_buffers = 0;
    Ok(PosixConfig {
        host,
        queue_frames: config.queue_frames as usize,
        descriptors: config.max_sockets,
        now: Instant(config.now_ns),
    })
}

/// The protocol options that connections negotiate, and their limits on repetition.
fn protocol(config: &baton_config, tcp: &mut Config) -> Result<(), String> {
    let on = |name: &str, value: c_int| match value {
        0 | 1 => Ok(value == 1),
        other => Err(format!("{name}: {other} is neither 0 nor 1")),
    };
    tcp.sack = on("sack", config.sack)?;
    tcp.timestamps = on("timestamps", config.timestamps)?;
    tcp.window_scaling = on("window_scaling", config.window_scaling)?;
    tcp.ecn = on("ecn", config.ecn)?;
    for (name, value, place) in [
        ("syn_retries", config.syn_retries, &mut tcp.syn_retries),
        ("synack_retries", config.synack_retries, &mut tcp.synack_retries),
        ("retries", config.retries, &mut tcp.retries),
    ] {
        within(name, value.into(), 1, 127)?;
        *place = value;
    }
    tcp.time_wait = Duration::from_millis(config.time_wait_ms.into());
    Ok(())
}

fn within(name: &str, value: u32, least: u32, most: u32) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name}: {value} is not in the range {least} to {most}"))
    }
}
