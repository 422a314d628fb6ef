//! Parses values: sizes, times, modes, names. An error is one sentence, and its remedy follows
//! after a semicolon.

use baton_engine::tuning::EngineTuning;
use baton_kernel::Rules;
use baton_kernel::steer::Kind;
use baton_policy::watermarks::Choice;
use baton_service::broker::PairUsers;
use baton_tcp::config::{Acks, Congestion};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Range of the limit on connections: half of what an engine can have, because the engine inside a
/// program has room for twice as many as the program.
const CONNECTIONS: RangeInclusive<u32> = 1..=*EngineTuning::CONNECTIONS.end() / 2;
/// Longest time that a move may wait.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// Range of `patience`. The broker asks an engine once per second, so it must be longer.
const PATIENCE: RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(3600);
/// Longest interface name in bytes: `IFNAMSIZ` without the terminating zero.
const INTERFACE_NAME_MAX: usize = 15;

/// A string, or a number taken as a string.
#[derive(Debug)]
pub(super) struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        struct Any;
        impl Visitor<'_> for Any {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
                Ok(Text(text.to_owned()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
                Ok(Text(number.to_string()))
            }
        }
        from.deserialize_any(Any)
    }
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(Text::deserialize(from)?.0)
}

/// One of a fixed set of words.
fn word<'de, D: Deserializer<'de>, T: Copy>(from: D, words: &[(&str, T)]) -> Result<T, D::Error> {
    let text = text(from)?;
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        D::Error::custom(format!("'{text}' is not known; write {}", known.join(", ")))
    })
}

pub(super) fn kind<'de, D: Deserializer<'de>>(from: D) -> Result<Kind, D::Error> {
    word(from, &[("auto", Kind::Auto), ("xdp", Kind::Xdp), ("tc", Kind::Tc)])
}

pub(super) fn rules<'de, D: Deserializer<'de>>(from: D) -> Result<Rules, D::Error> {
    word(from, &[Rules::Follow, Rules::Refuse, Rules::Strict].map(|rules| (rules.word(), rules)))
}

pub(super) fn pair_users<'de, D: Deserializer<'de>>(from: D) -> Result<PairUsers, D::Error> {
    word(from, &[PairUsers::Same, PairUsers::Any, PairUsers::Never].map(|users| (users.word(), users)))
}

pub(super) fn congestion<'de, D: Deserializer<'de>>(from: D) -> Result<Congestion, D::Error> {
    word(from, &[("cubic", Congestion::Cubic), ("reno", Congestion::Reno)])
}

pub(super) fn acks<'de, D: Deserializer<'de>>(from: D) -> Result<Acks, D::Error> {
    word(from, &[("per-run", Acks::PerRun), ("every-second", Acks::EverySecond)])
}

pub(super) fn load<'de, D: Deserializer<'de>>(from: D) -> Result<Choice, D::Error> {
    text(from)?.parse().map_err(D::Error::custom)
}

pub(super) fn coalesce<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    let (least, most) = EngineTuning::COALESCE.into_inner();
    number(from, least.into()..=most.into()).map(|limit| limit as u16)
}

pub(super) fn interfaces<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    for (at, name) in names.iter().enumerate() {
        let fits = (1..=INTERFACE_NAME_MAX).contains(&name.len());
        if !fits || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
            return Err(D::Error::custom(format!("'{name}' is not an interface name; `ip link` lists the interfaces")));
        }
        if names[..at].contains(name) {
            return Err(D::Error::custom(format!("'{name}' is named twice; name each interface once")));
        }
    }
    Ok(names)
}

pub(super) fn absolute<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::from(String::deserialize(from)?);
    // `sockaddr_un` holds 108 bytes including the terminating zero.
    if !path.is_absolute() || path.as_os_str().len() > 107 {
        let path = path.display();
        return Err(D::Error::custom(format!("'{path}' cannot be used; give an absolute path of at most 107 bytes")));
    }
    Ok(path)
}

pub(super) fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let text = text(from)?;
    let mode = u32::from_str_radix(&text, 8).ok().filter(|mode| *mode <= 0o777 && text.starts_with('0'));
    mode.ok_or_else(|| D::Error::custom(format!("'{text}' is not a mode; write it in octal, as \"0660\"")))
}

/// A number in a range.
fn number<'de, D: Deserializer<'de>>(from: D, range: RangeInclusive<u32>) -> Result<u32, D::Error> {
    let number = i64::deserialize(from)?;
    u32::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(|| {
        D::Error::custom(format!("{number} is out of range; give a number from {} to {}", range.start(), range.end()))
    })
}

pub(super) fn connections<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    number(from, CONNECTIONS)
}

pub(super) fn programs<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    number(from, 1..=4096)
}

pub(super) fn large_buffers<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    number(from, 0..=4096)
}

pub(super) fn stream_buffer<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    power_of_two(from, 4 << 10, 4 << 20)
}

pub(super) fn large_buffer<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    power_of_two(from, 4 << 10, 64 << 20)
}

fn power_of_two<'de, D: Deserializer<'de>>(from: D, least: u64, most: u64) -> Result<u32, D::Error> {
    let text = text(from)?;
    let size = bytes(&text).filter(|size| (least..=most).contains(size) && size.is_power_of_two());
    size.map(|size| size as u32).ok_or_else(|| {
        let (least, most) = (least >> 10, most >> 20);
        D::Error::custom(format!(
            "'{text}' is not a buffer size; give a power of two from {least} KiB to {most} MiB, as \"256 KiB\""
        ))
    })
}

pub(super) fn drain<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = text(from)?;
    duration(&text).filter(|time| *time <= DRAIN_MAX).ok_or_else(|| {
        D::Error::custom(format!("'{text}' is not a time of at most 60 s; write it with its unit, as \"500 ms\""))
    })
}

pub(super) fn patience<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = text(from)?;
    duration(&text).filter(|time| PATIENCE.contains(time)).ok_or_else(|| {
        D::Error::custom(format!("'{text}' is not a time from 2 s to 3600 s; write it with its unit, as \"5 s\""))
    })
}

/// Splits a number from its unit, with or without a space between them.
fn measure(text: &str) -> Option<(u64, &str)> {
    let digits = text.trim().find(|c: char| !c.is_ascii_digit()).unwrap_or(text.trim().len());
    let (number, unit) = text.trim().split_at(digits);
    Some((number.parse().ok()?, unit.trim()))
}

/// Parses a size: `4096`, `256 KiB`, `4MiB`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = measure(text)?;
    let unit: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// Parses a time: `500 ms`, `2 s`, or 0 without a unit.
fn duration(text: &str) -> Option<Duration> {
    match measure(text)? {
        (0, "") => Some(Duration::ZERO),
        (number, "ms") => Some(Duration::from_millis(number)),
        (number, "s") => Some(Duration::from_secs(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, duration};
    use std::time::Duration;

    #[test]
    fn sizes_have_units() {
        let table = [
            ("4096", Some(4096)),
            ("256 KiB", Some(256 << 10)),
            (" 4MiB ", Some(4 << 20)),
            ("1 GiB", Some(1 << 30)),
            ("1 KB", None),
            ("", None),
            ("KiB", None),
            ("-1", None),
            ("99999999999999999999", None),
            ("18446744073709551615 GiB", None),
        ];
        for (text, size) in table {
            assert_eq!(bytes(text), size, "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let table =
            [("500 ms", ms(500)), ("2s", ms(2000)), ("0", ms(0)), ("0 s", ms(0)), ("500", None), ("1 min", None)];
        for (text, time) in table {
            assert_eq!(duration(text), time, "{text}");
        }
    }
}
