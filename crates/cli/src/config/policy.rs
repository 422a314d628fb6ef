//! `[policy]`: parses the rules of `baton_policy::rules`.

use super::values::Text;
use baton_policy::rules::{Policy, PortRule, Rule, Side, parse_ports};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Section {
    #[serde(default, deserialize_with = "rule")]
    rule: Rule,
    #[serde(default)]
    port: Vec<Entry>,
}

/// `[[policy.port]]`
#[derive(Deserialize)]
#[serde(try_from = "Keys")]
struct Entry(PortRule);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Keys {
    local: Option<Text>,
    remote: Option<Text>,
    #[serde(deserialize_with = "rule")]
    rule: Rule,
}

impl TryFrom<Keys> for Entry {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Entry, String> {
        let (side, text) = match (keys.local, keys.remote) {
            (Some(text), None) => (Side::Local, text),
            (None, Some(text)) => (Side::Remote, text),
            _ => return Err("a rule is for a local or for a remote port; give one of local and remote".to_owned()),
        };
        let ports = parse_ports(&text.0).map_err(|error| error.to_string())?;
        Ok(Entry(PortRule { side, ports, rule: keys.rule }))
    }
}

fn rule<'de, D: Deserializer<'de>>(from: D) -> Result<Rule, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Policy, D::Error> {
    let section = Section::deserialize(from)?;
    Ok(Policy { ports: section.port.into_iter().map(|entry| entry.0).collect(), otherwise: section.rule })
}
