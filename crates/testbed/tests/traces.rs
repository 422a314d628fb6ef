//! Traces: both formats, damage with its offset, persistent connections, huge files in constant memory.

use baton_policy::rules::Rule;
use baton_testbed::trace::sessions::Sessions;
use baton_testbed::trace::{Damage, Format, Item, Record, Why, log, records, replay};
use baton_testbed::workload::Session;
use baton_testbed::world::Config;
use std::io::{self, BufReader, Read};

const LINE: &str = r#"host.example - - [10/Jul/1998:22:45:01 +0200] "GET /a.html HTTP/1.0" 200 1234"#;

fn damages(text: &[u8], format: Format) -> Vec<Damage> {
    let damage = |item: io::Result<Item>| match item {
        Ok(Item::Damage(damage)) => Some(damage),
        _ => None,
    };
    records(format, text).filter_map(damage).collect()
}

fn cup(seconds: u32, client: u32, object: u32, size: u32, method: u8) -> Vec<u8> {
    let words = [seconds, client, object, size].into_iter().flat_map(u32::to_be_bytes);
    words.chain([method, 0x42, 1, 0]).collect()
}

#[test]
fn a_line_of_either_log_format_is_read() {
    let common = log::parse(LINE.as_bytes()).expect("a line");
    // date -u -d '1998-07-10 20:45:01' +%s
    assert_eq!((common.seconds, common.bytes), (900_103_501, 1234));
    let combined = format!(r#"{LINE} "http://x/\"y\"" "Mozilla/4.0 (a; b)""#);
    assert_eq!(log::parse(combined.as_bytes()), Ok(common));
    let none = log::parse(LINE.replace("1234", "-").as_bytes()).expect("a line");
    assert_eq!((none.bytes, none.file, none.client), (0, common.file, common.client));
    let other = log::parse(LINE.replace("a.html", "b.html").as_bytes()).expect("a line");
    assert_ne!(other.file, common.file);
    let leap = LINE.replace("10/Jul/1998:22:45:01 +0200", "29/Feb/2000:00:00:00 +0000");
    assert_eq!(log::parse(leap.as_bytes()).map(|record| record.seconds), Ok(951_782_400));
    let quoted = LINE.replace("/a.html", r#"/a\"b"#);
    assert_eq!(log::parse(quoted.as_bytes()).map(|record| record.bytes), Ok(1234));
}

#[test]
fn a_damaged_line_is_named_with_its_number_and_offset() {
    for (line, why) in [
        ("word", Why::NoClient),
        (&*LINE.replace('[', ""), Why::NoTime),
        (&*LINE.replace("Jul", "Foo"), Why::NoTime),
        (&*LINE.replace("10/", "32/"), Why::NoTime),
        (&*LINE.replace("HTTP/1.0\"", "HTTP/1.0"), Why::NoRequest),
        (&*LINE.replace(" 200", " 20x"), Why::NoStatus),
        (&*LINE.replace(" 1234", " 12k"), Why::NoSize),
        (&*LINE.replace(" 1234", ""), Why::NoSize),
        (&*LINE.replace("1234", "99999999999999999999999"), Why::NoSize),
        (&*format!("{LINE}{}", "x".repeat(log::LONGEST_LINE)), Why::TooLong),
    ] {
        let text = format!("{LINE}\n\n{line}\n{LINE}\n");
        let offset = LINE.len() as u64 + 2;
        assert_eq!(damages(text.as_bytes(), Format::Log), [Damage { number: 3, offset, why }], "{line:.80}");
        assert_eq!(records(Format::Log, text.as_bytes()).count(), 3);
    }
    let damage = damages(b"\xff\xfe", Format::Log)[0];
    assert_eq!(damage.to_string(), "record 1 at byte 0: it has no client");
}

#[test]
fn records_of_the_world_cup_are_read_and_a_cut_one_is_named() {
    let mut bytes = cup(900_000_000, 7, 3, 512, 0);
    bytes.extend(cup(900_000_001, 7, 4, u32::MAX, 1));
    bytes.extend(cup(900_000_001, 7, 4, 1, 9));
    bytes.extend(&cup(900_000_002, 8, 5, 100, 0)[..13]);
    let read: Vec<Item> = records(Format::WorldCup, &bytes[..]).map(Result::unwrap).collect();
    let record = |seconds, client, file, bytes| Item::Record(Record { seconds, client, file, bytes });
    let damage = |number, why| Item::Damage(Damage { number, offset: (number - 1) * 20, why });
    let expected =
        [record(900_000_000, 7, 3, 512), record(900_000_001, 7, 4, 0), damage(3, Why::Method), damage(4, Why::Cut)];
    assert_eq!(read, expected);
}

#[test]
fn requests_within_15_seconds_share_a_connection() {
    let text = [(0, 1, 1), (0, 2, 9), (15, 1, 2), (31, 1, 3), (10, 1, 4)]
        .into_iter()
        .flat_map(|(seconds, client, object)| cup(seconds, client, object, 1, 0))
        .collect::<Vec<u8>>();
    let files = |session: Session| session.requests.iter().map(|request| request.file).collect::<Vec<u32>>();
    let sessions: Vec<Vec<u32>> = Sessions::new(records(Format::WorldCup, &text[..])).map(files).collect();
    // The last record's clock runs back: it counts as of then.
    assert_eq!(sessions, [vec![9], vec![1, 2], vec![3, 4]]);
}

/// A trace that is made while it is read.
struct Endless {
    left: u64,
    same_time: bool,
    part: Vec<u8>,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.part.is_empty() && self.left > 0 {
            self.left -= 1;
            let seconds = if self.same_time { 0 } else { self.left as u32 };
            self.part = cup(!seconds, self.left as u32 / 3, 1, 1000, self.left.is_multiple_of(1000) as u8 * 99);
        }
        let taken = self.part.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&self.part[..taken]);
        self.part.drain(..taken);
        Ok(taken)
    }
}

#[test]
fn a_huge_trace_is_held_in_constant_memory() {
    for same_time in [false, true] {
        let input = BufReader::new(Endless { left: 2_000_000, same_time, part: Vec::new() });
        let mut sessions = Sessions::new(records(Format::WorldCup, input));
        let (mut count, mut most) = (0, 0);
        while let Some(session) = sessions.next() {
            count += session.requests.len();
            most = most.max(sessions.held());
        }
        assert_eq!(count, 1_998_000);
        assert!(most <= 1 << 20, "{most}");
        assert_eq!((sessions.damages.count, sessions.damages.first.len()), (2_000, 16));
    }
}

#[test]
fn a_line_without_end_is_held_in_constant_memory() {
    let input = BufReader::new(io::repeat(b'x').take(100_000_000));
    let read: Vec<Item> = records(Format::Log, input).map(Result::unwrap).collect();
    assert_eq!(read, [Item::Damage(Damage { number: 1, offset: 0, why: Why::TooLong })]);
}

#[test]
fn an_input_that_fails_keeps_what_was_read() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let text = format!("{LINE}\n");
    let mut sessions = Sessions::new(records(Format::Log, BufReader::new(text.as_bytes().chain(Fails))));
    assert_eq!(sessions.by_ref().count(), 1);
    assert_eq!(sessions.damages.failed.as_deref(), Some("the disk is gone"));
}

#[test]
fn the_testbed_serves_a_trace_to_its_end() {
    let text: Vec<u8> = (0..600).flat_map(|n| cup(n / 10, n % 100, n % 7, 3000, (n == 5) as u8 * 9)).collect();
    let config = Config { clients: 20, warm_up: 0, measured: u64::MAX, ..Config::baseline() };
    let (measured, damages) = replay(&config, Format::WorldCup, &text[..], &mut Rule::FirstCome);
    assert_eq!((measured.requests, damages.count), (599, 1));
}
