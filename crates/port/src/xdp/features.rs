//! Abilities of an interface's driver with XDP, according to the kernel (Linux 6.3 and later;
//! generic netlink family `netdev`, Documentation/netlink/specs/netdev.yaml). Asking changes
//! nothing on the interface.

use std::io;

use crate::sys::netlink::ask;

/// Abilities of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverFeatures {
    /// It runs XDP programs and follows their redirects: no generic hook needed.
    pub driver: bool,
    /// It receives into, and sends from, packet memory.
    pub zero_copy: bool,
    /// It passes frames in pieces: longer than a page.
    pub pieces: bool,
}

const HEADER_LEN: usize = 16;
const GENERIC_LEN: usize = 4;
/// Controller: its id, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX`, `NETDEV_A_DEV_XDP_FEATURES`.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_…`.
const BASIC: u64 = 1;
const REDIRECT: u64 = 2;
const ZERO_COPY: u64 = 8;
const RX_PIECES: u64 = 32;

/// Asks the kernel what the driver of the interface with that index can do.
///
/// # Errors
/// `NotFound` on a kernel that cannot tell, or as the kernel answers.
pub fn driver_features(interface: u32) -> io::Result<DriverFeatures> {
    let id = query(CONTROLLER, GET_FAMILY, FAMILY_NAME, b"netdev\0", FAMILY_ID)?;
    let id = id.try_into().map(u16::from_ne_bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    let bits = query(id, GET_DEVICE, DEVICE_INDEX, &interface.to_ne_bytes(), DEVICE_XDP_FEATURES)?;
    let bits = bits.try_into().map(u64::from_ne_bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(DriverFeatures {
        driver: bits & (BASIC | REDIRECT) == BASIC | REDIRECT,
        zero_copy: bits & ZERO_COPY != 0,
        pieces: bits & RX_PIECES != 0,
    })
}

/// Sends one request with one attribute; the value of attribute `wanted` of the answer.
fn query(family: u16, command: u8, attribute: u16, value: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let mut request = vec![0; HEADER_LEN];
    request[4..6].copy_from_slice(&family.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request.extend_from_slice(&[command, 1, 0, 0]);
    request.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
    request.extend_from_slice(&attribute.to_ne_bytes());
    request.extend_from_slice(value);
    request.resize(request.len().next_multiple_of(4), 0);
    let len = request.len() as u32;
    request[..4].copy_from_slice(&len.to_ne_bytes());
    let mut answer = [0; 8192];
    let n = ask(&request, &mut answer)?;
    find(&answer[..n], wanted)
}

/// The value of an attribute in an answer, or the error that the answer is.
fn find(answer: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let half = |at: usize| -> Option<u16> { Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?)) };
    if i32::from(half(4).ok_or_else(short)?) == libc::NLMSG_ERROR {
        let code = answer.get(HEADER_LEN..HEADER_LEN + 4).ok_or_else(short)?;
        let code = i32::from_ne_bytes(code.try_into().map_err(|_| short())?);
        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
    }
    let mut at = HEADER_LEN + GENERIC_LEN;
    while let (Some(len), Some(kind)) = (half(at), half(at + 2)) {
        let len = usize::from(len);
        if len < 4 {
            break;
        }
        // The upper bits say that a value is nested or in network order.
        if kind & 0x3fff == wanted {
            return answer.get(at + 4..at + len).map(<[u8]>::to_vec).ok_or_else(short);
        }
        at += len.next_multiple_of(4);
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_others_and_damage_is_an_error() {
        let mut answer = vec![0; HEADER_LEN + GENERIC_LEN];
        for (kind, value) in [(1u16, &[9, 9, 9][..]), (3, &[1, 2, 3, 4])] {
            answer.extend((4 + value.len() as u16).to_ne_bytes());
            answer.extend(kind.to_ne_bytes());
            answer.extend(value);
            answer.resize(answer.len().next_multiple_of(4), 0);
        }
        assert_eq!(find(&answer, 3).unwrap(), [1, 2, 3, 4]);
        assert_eq!(find(&answer, 2).unwrap_err().kind(), io::ErrorKind::NotFound);
        for cut in 0..answer.len() {
            assert!(find(&answer[..cut], 3).is_err());
        }
        answer[HEADER_LEN + GENERIC_LEN] = 0;
        assert!(find(&answer, 3).is_err(), "an attribute of no length");
        let mut error = vec![0; HEADER_LEN];
        error[4] = libc::NLMSG_ERROR as u8;
        error.extend((-libc::ENODEV).to_ne_bytes());
        assert_eq!(find(&error, 3).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
