//! Reads nftables rules from the kernel (`linux/netfilter/nf_tables.h`).

use super::expressions::{expression_step, number, steps, text, value, verdict};
use super::packet::Hook;
use super::ruleset::{Base, Chain, INET, IP, IP6, NETDEV, Ruleset, SetKind, Table};
use super::walk::{Entry, Found, Sets};
use crate::netlink::{Body, NLM_F_REQUEST, Socket, attribute, attributes};
use std::collections::HashMap;
use std::io;

/// `NFNL_SUBSYS_NFTABLES`, the upper byte of a message's type.
const SUBSYSTEM: u16 = 10 << 8;
/// `NFT_MSG_NEWGEN`: a transaction has ended.
pub(crate) const NEWGEN: u16 = SUBSYSTEM | 15;
const GETTABLE: u16 = SUBSYSTEM | 1;
const GETCHAIN: u16 = SUBSYSTEM | 4;
const GETRULE: u16 = SUBSYSTEM | 7;
const GETSET: u16 = SUBSYSTEM | 10;
const GETSETELEM: u16 = SUBSYSTEM | 13;
const GETGEN: u16 = SUBSYSTEM | 16;
/// The size of `struct nfgenmsg`: family, version, resource.
const HEAD: usize = 4;
/// The most answers about elements that are cached.
const REMEMBERED: usize = 4096;
/// The number of attempts to read tables that change meanwhile.
const TRIES: usize = 4;

fn body(family: u8) -> Body {
    Body::new(&[family, 0, 0, 0])
}

/// The number of the last transaction, or 0 if the kernel has no nftables.
///
/// # Errors
/// Errors from the kernel.
pub(crate) fn generation(socket: &mut Socket) -> io::Result<u32> {
    match socket.ask(GETGEN, NLM_F_REQUEST, body(0)) {
        Ok(answer) => Ok(answer.and_then(|answer| number(attribute(answer.get(HEAD..)?, 1)?)).unwrap_or(0)),
        Err(error) if is_absent(&error) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Returns true if the kernel has no nftables.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENOENT))
}

/// All tables, and the number of the transaction after which they were read.
///
/// # Errors
/// Errors from the kernel; `WouldBlock` if the tables change all the time.
pub(crate) fn read(socket: &mut Socket) -> io::Result<(u32, Ruleset)> {
    for _ in 0..TRIES {
        let before = generation(socket)?;
        if before == 0 {
            return Ok((0, Ruleset::default()));
        }
        if let Some(ruleset) = Reader::default().read(socket)?
            && generation(socket)? == before
        {
            return Ok((before, ruleset));
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Reads the attributes of a message of a family. Returns `None` if something is missing.
type Read = fn(&mut Reader, u8, &[u8]) -> Option<()>;

#[derive(Default)]
struct Reader {
    tables: Vec<Table>,
    /// The indexes of tables.
    places: HashMap<(u8, String), usize>,
    /// The table and the chain of the last rule.
    last: Option<Last>,
}

impl Reader {
    /// Returns `None` if the tables changed meanwhile.
    fn read(mut self, socket: &mut Socket) -> io::Result<Option<Ruleset>> {
        let mut whole = true;
        let steps: [(u16, Read); 4] =
            [(GETTABLE, Reader::table), (GETCHAIN, Reader::chain), (GETSET, Reader::set), (GETRULE, Reader::rule)];
        for (kind, read) in steps {
            if self.places.is_empty() && kind != GETTABLE {
                break;
            }
            whole &= socket.dump(kind, body(0), |_, answer| {
                if let (Some(family), Some(attributes)) = (answer.first(), answer.get(HEAD..)) {
                    // An incomplete message describes nothing that this code can use.
                    let _ = read(&mut self, *family, attributes);
                }
            })?;
        }
        self.tables.retain(|table| table.chains.values().any(|chain| chain.base.is_some()));
        Ok(whole.then(|| Ruleset::new(self.tables)))
    }

    fn table(&mut self, family: u8, message: &[u8]) -> Option<()> {
        const DORMANT: u32 = 1;
        let name = text(attribute(message, 1)?);
        let flags = attribute(message, 2).and_then(number).unwrap_or(0);
        if [INET, IP, IP6, NETDEV].contains(&family) && flags & DORMANT == 0 {
            self.places.insert((family, name.clone()), self.tables.len());
            self.tables.push(Table { family, name, ..Table::default() });
        }
        Some(())
    }

    fn find(&mut self, family: u8, name: &[u8]) -> Option<usize> {
        self.places.get(&(family, text(name))).copied()
    }

    fn chain(&mut self, family: u8, message: &[u8]) -> Option<()> {
        const DROP: u32 = 0;
        let table = self.find(family, attribute(message, 1)?)?;
        let is_nat = attribute(message, 7).is_some_and(|kind| text(kind) == "nat");
        let policy = attribute(message, 5).and_then(number);
        // NAT chains see only a connection's first packet.
        let base = attribute(message, 4).filter(|_| !is_nat).and_then(|hook| base(family, hook));
        let base = base.map(|base| Base { drops: policy == Some(DROP), ..base });
        let chain = Chain { rules: Vec::new(), base };
        self.tables[table].chains.insert(text(attribute(message, 3)?), chain);
        Some(())
    }

    fn set(&mut self, family: u8, message: &[u8]) -> Option<()> {
        const EVAL: u32 = 0x20;
        let table = self.find(family, attribute(message, 1)?)?;
        let flags = attribute(message, 3).and_then(number).unwrap_or(0);
        let key_len = number(attribute(message, 5)?)? as usize;
        let kind = SetKind { key_len, is_dynamic: flags & EVAL != 0 };
        self.tables[table].sets.insert(text(attribute(message, 2)?), kind);
        Some(())
    }

    fn rule(&mut self, family: u8, message: &[u8]) -> Option<()> {
        let [table, chain] = [attribute(message, 1)?, attribute(message, 2)?];
        let is_same =
            self.last.as_ref().is_some_and(|last| (last.family, &*last.table, &*last.chain) == (family, table, chain));
        if !is_same {
            let place = self.find(family, table)?;
            // Tables with NAT chains only have many rules on some hosts, and none of their rules is
            // ever walked.
            let walked = self.tables[place].chains.values().any(|chain| chain.base.is_some());
            let (table, chain, name) = (table.to_vec(), chain.to_vec(), text(chain));
            self.last = Some(Last { family, table, chain, place, name, walked });
        }
        let last = self.last.as_ref().filter(|last| last.walked)?;
        let rule = steps(attribute(message, 4).unwrap_or_default(), family);
        self.tables[last.place].chains.get_mut(&last.name)?.rules.push(rule);
        Some(())
    }
}

/// Where the last rule was. Most rules follow another of the same chain.
struct Last {
    family: u8,
    table: Vec<u8>,
    chain: Vec<u8>,
    place: usize,
    name: String,
    walked: bool,
}

/// Reads `NFTA_CHAIN_HOOK`. Returns `None` for hooks that none of our packets pass.
fn base(family: u8, message: &[u8]) -> Option<Base> {
    const DEVICE: u16 = 3;
    const DEVICES: u16 = 4;
    const NAME: u16 = 1;
    let hook = number(attribute(message, 1)?)?;
    let hook = match (family, hook) {
        (NETDEV, 0) | (INET, 5) => Hook::Ingress,
        (NETDEV, 1) => Hook::Egress,
        (NETDEV, _) => return None,
        (_, 0) => Hook::Prerouting,
        (_, 1) => Hook::Input,
        (_, 3) => Hook::Output,
        (_, 4) => Hook::Postrouting,
        _ => return None,
    };
    let priority = number(attribute(message, 2)?)? as i32;
    let mut devices: Vec<String> = attribute(message, DEVICE).map(text).into_iter().collect();
    for (kind, name) in attribute(message, DEVICES).into_iter().flat_map(attributes) {
        // An attribute of another kind is a prefix of names.
        let more = if kind == NAME { "" } else { "*" };
        devices.push(format!("{}{more}", text(name)));
    }
    Some(Base { hook, priority, drops: false, devices })
}

/// Looks elements up in the kernel, and caches the answers.
pub(crate) struct Elements<'a> {
    pub socket: &'a mut Socket,
    pub known: &'a mut Known,
}

/// The kernel's answers about elements, for the ruleset of one transaction.
pub(crate) type Known = HashMap<(u8, String, String, Vec<u8>), Found>;

impl Sets for Elements<'_> {
    fn find(&mut self, table: &Table, set: &str, key: &[u8]) -> Found {
        if table.sets.get(set).is_none_or(|kind| kind.is_dynamic) {
            return Found::May;
        }
        let name = (table.family, table.name.clone(), set.to_owned(), key.to_vec());
        if let Some(found) = self.known.get(&name) {
            return found.clone();
        }
        let found = self.ask(table, set, key);
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(name, found.clone());
        found
    }
}

impl Elements<'_> {
    fn ask(&mut self, table: &Table, set: &str, key: &[u8]) -> Found {
        let with_nul = |name: &str| [name.as_bytes(), &[0]].concat();
        let body = body(table.family).attr(1, &with_nul(&table.name)).attr(2, &with_nul(set));
        let body = body.nest(3, |list| list.nest(1, |element| element.nest(1, |data| data.attr(1, key))));
        match self.socket.ask(GETSETELEM, NLM_F_REQUEST, body) {
            Ok(Some(answer)) => element(&answer, table.family).unwrap_or(Found::May),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Found::No,
            _ => Found::May,
        }
    }
}

/// Reads the element in an answer. An element that expires may be present or not.
fn element(answer: &[u8], family: u8) -> Option<Found> {
    const ELEMENTS: u16 = 3;
    const DATA: u16 = 2;
    const EXPIRATION: u16 = 5;
    const EXPRESSION: u16 = 7;
    const EXPRESSIONS: u16 = 11;
    let element = attribute(attribute(answer.get(HEAD..)?, ELEMENTS)?, 1)?;
    if attribute(element, EXPIRATION).is_some() {
        return Some(Found::May);
    }
    let data = attribute(element, DATA);
    let mut does = attribute(element, EXPRESSIONS).map(|list| steps(list, family)).unwrap_or_default();
    does.extend(attribute(element, EXPRESSION).map(|expression| expression_step(expression, family)));
    let entry = Entry { verdict: data.and_then(verdict), data: data.and_then(value).map(<[u8]>::to_vec), steps: does };
    Some(Found::Yes(entry))
}
