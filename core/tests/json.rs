//! Binary JSON as text: documents put together here by the server's description of the format, against their
//! text; and documents, damaged ones too, with and without the memory of those before.

use std::collections::BTreeMap;

use penstock_core::json::{write_text_as, write_text_with, Shapes, Style};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Value {
    Null,
    Bool(bool),
    Int(i16),
    Text(String),
    Array(Vec<Value>),
    /// Members in the server's order: by the length of the key, then by its bytes.
    Object(BTreeMap<(usize, String), Value>),
}

impl Value {
    /// The type, and the bytes of the value.
    fn binary(&self) -> (u8, Vec<u8>) {
        match self {
            Self::Null => (0x04, vec![0, 0]),
            Self::Bool(value) => (0x04, vec![2 - u8::from(*value), 0]),
            Self::Int(value) => (0x05, value.to_le_bytes().to_vec()),
            Self::Text(text) => {
                let (mut bytes, mut length) = (Vec::new(), text.len());
                while length >= 0x80 {
                    bytes.push(length as u8 | 0x80);
                    length >>= 7;
                }
                bytes.push(length as u8);
                bytes.extend(text.as_bytes());
                (0x0c, bytes)
            }
            Self::Array(values) => (0x02, container(&[], &values.iter().collect::<Vec<_>>())),
            Self::Object(members) => {
                let keys: Vec<&str> = members.keys().map(|(_, key)| key.as_str()).collect();
                (0x00, container(&keys, &members.values().collect::<Vec<_>>()))
            }
        }
    }

    fn document(&self) -> Vec<u8> {
        let (kind, bytes) = self.binary();
        [&[kind], bytes.as_slice()].concat()
    }

    fn text(&self) -> String {
        match self {
            Self::Null => "null".into(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Text(text) => serde_json::to_string(text).unwrap(),
            Self::Array(values) => {
                format!("[{}]", values.iter().map(Self::text).collect::<Vec<_>>().join(", "))
            }
            Self::Object(members) => {
                let member = |((_, key), value): (&(usize, String), &Self)| {
                    format!("{}: {}", serde_json::to_string(key).unwrap(), value.text())
                };
                format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A small one: count, size, entries of keys, entries of values, keys, values.
fn container(keys: &[&str], values: &[&Value]) -> Vec<u8> {
    let mut behind: Vec<u8> = keys.concat().into_bytes();
    let head = 4 + 4 * keys.len() + 3 * values.len();
    let mut entries = Vec::new();
    let mut place = head;
    for key in keys {
        entries.extend((place as u16).to_le_bytes());
        entries.extend((key.len() as u16).to_le_bytes());
        place += key.len();
    }
    for value in values {
        let (kind, bytes) = value.binary();
        entries.push(kind);
        if matches!(kind, 0x04 | 0x05) {
            entries.extend(bytes);
        } else {
            entries.extend(((head + behind.len()) as u16).to_le_bytes());
            behind.extend(bytes);
        }
    }
    let size = (head + behind.len()) as u16;
    [&(values.len() as u16).to_le_bytes()[..], &size.to_le_bytes(), &entries, &behind].concat()
}

/// Few keys, so that objects resemble each other.
fn value() -> impl Strategy<Value = Value> {
    let text = prop_oneof!["[a-z]{0,15}", "[ -~éß\"\\\\\\n\\t]{0,40}", "[a-z]{120,140}"];
    let key =
        prop_oneof![Just("a"), Just("source"), Just("visits"), Just("a \"quoted\""), Just("é"), Just("")];
    let key = prop_oneof![key.prop_map(String::from), "[a-c]{1,2}", "[a-z]{14,40}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i16>().prop_map(Value::Int),
        (-20..20_i16).prop_map(Value::Int),
        text.prop_map(Value::Text),
    ];
    leaf.prop_recursive(3, 24, 5, move |inner| {
        let member = (key.clone(), inner.clone()).prop_map(|(key, value)| ((key.len(), key), value));
        prop_oneof![
            1 => proptest::collection::vec(inner, 0..4).prop_map(Value::Array),
            3 => proptest::collection::vec(member, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn documents_have_their_text_whatever_came_before(
        different in proptest::collection::vec(value(), 1..4),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 1..12),
    ) {
        let mut shapes = Shapes::default();
        for number in order {
            let value = number.get(&different);
            let mut out = b"before".to_vec();
            write_text_with(&mut shapes, Style::default(), &value.document(), &mut out).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("before{}", value.text()));
        }
    }

    #[test]
    fn damaged_documents_have_the_same_text_whatever_came_before(
        value in value(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let whole = value.document();
        let mut damaged = whole.clone();
        for (place, byte) in &damage {
            let place = place.index(damaged.len());
            damaged[place] = *byte;
        }
        damaged.truncate(1 + cut.index(2 * damaged.len()));
        let mut shapes = Shapes::default();
        for document in [&whole, &damaged, &damaged, &whole, &damaged] {
            let (mut anew, mut again) = (Vec::new(), Vec::new());
            let written = write_text_as(Style::default(), document, &mut anew);
            let written_again = write_text_with(&mut shapes, Style::default(), document, &mut again);
            prop_assert_eq!(written.is_ok(), written_again.is_ok());
            if written.is_ok() {
                prop_assert_eq!(anew, again);
            }
        }
    }
}
