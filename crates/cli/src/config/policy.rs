//! `[policy]`: reads the rules of `baton_policy::rules`.

use super::values::Text;
use baton_policy::conditions::Condition;
use baton_policy::rules::{Entry, Policy, Rule};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Section {
    #[serde(default, deserialize_with = "rule")]
    rule: Rule,
    #[serde(default, rename = "for")]
    entries: Vec<Keys>,
}

/// `[[policy.for]]`
struct Keys(Entry);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Keys, D::Error> {
        from.deserialize_map(KeysVisitor)
    }
}

struct KeysVisitor;

impl<'de> Visitor<'de> for KeysVisitor {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("conditions and a rule")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let (mut conditions, mut rule) = (Vec::new(), None);
        while let Some(Key(key)) = map.next_key()? {
            if key == "rule" {
                rule = Some(map.next_value::<When>()?.0);
            } else {
                conditions.push(map.next_value_seed(Value(key))?);
            }
        }
        let rule = rule.ok_or_else(|| A::Error::custom("a rule is missing; write rule = \"fcfs\" or another one"))?;
        Ok(Keys(Entry { conditions, rule }))
    }
}

/// A rule, whose errors have the place of its text.
struct When(Rule);

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<When, D::Error> {
        rule(from).map(When)
    }
}

/// The key of a condition, or `rule`.
struct Key(&'static str);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        const KEYS: [&str; 15] = {
            let mut keys = ["rule"; 15];
            let mut at = 0;
            while at < Condition::KEYS.len() {
                keys[at] = Condition::KEYS[at];
                at += 1;
            }
            keys
        };
        let text = String::deserialize(from)?;
        KEYS.iter().find(|key| **key == text).map(|key| Key(key)).ok_or_else(|| D::Error::unknown_field(&text, &KEYS))
    }
}

/// The value of a condition: a text, a number, or a list of them.
struct Value(&'static str);

impl<'de> serde::de::DeserializeSeed<'de> for Value {
    type Value = Condition;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Condition, D::Error> {
        let text = from.deserialize_any(TextsVisitor)?;
        let text = if self.0 == "user" { numbers(&text).map_err(D::Error::custom)? } else { text };
        Condition::parse(self.0, &text).map_err(D::Error::custom)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a number, or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<String, A::Error> {
        let mut parts = Vec::new();
        while let Some(Text(part)) = seq.next_element()? {
            parts.push(part);
        }
        Ok(parts.join(", "))
    }
}

/// Users by number.
fn numbers(users: &str) -> Result<String, String> {
    let names = super::Names::load();
    let number = |user: &str| {
        let id = user.parse().map_or_else(|_| super::Id::Name(user.to_owned()), super::Id::Number);
        let found = names.user(&id);
        found.ok_or_else(|| format!("there is no user '{user}'; name one of /etc/passwd, or give its number"))
    };
    let all: Result<Vec<String>, String> =
        users.split(',').map(|user| number(user.trim()).map(|uid| uid.to_string())).collect();
    Ok(all?.join(", "))
}

fn rule<'de, D: Deserializer<'de>>(from: D) -> Result<Rule, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Policy, D::Error> {
    let section = Section::deserialize(from)?;
    Ok(Policy { entries: section.entries.into_iter().map(|keys| keys.0).collect(), otherwise: section.rule })
}
