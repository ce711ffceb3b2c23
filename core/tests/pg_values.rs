//! Values of PostgreSQL by all ways to Arrow: from COPY, from rows of the log, and through the forms that
//! elements of lists and other sources' images have. All give equal arrays, or none does.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use penstock_core::batches::Batches;
use penstock_core::changelog::Changelog;
use penstock_core::column::{ColumnBuilder, ExtremeDates, Layout, NotNumbers, TypeOptions};
use penstock_core::cursor::Cursor;
use penstock_core::output::Options;
use penstock_core::pgoutput::copy::CopyDecoder;
use penstock_core::pgoutput::types::{column, PgType};
use penstock_core::pgoutput::value::Target;
use penstock_core::pgoutput::{Messages, NAME};
use penstock_core::records::{append, RecordFile, HEAD, MAGIC};
use penstock_core::rows::read_value;
use penstock_core::schema::{ColumnSchema, ColumnType, TableSchema};
use penstock_core::segment_file::SegmentFile;
use penstock_core::split::Split;
use penstock_core::typed_rows::write::Records;
use penstock_core::typed_rows::RowsScan;
use penstock_core::wire::form;
use proptest::prelude::*;
use serde_json::{json, Value as Json};

/// Types by their numbers with modifiers, and types that are made of others.
const TYPES: &str = r#"[[16,-1],[17,-1],[20,-1],[21,-1],[23,-1],[26,-1],[5069,-1],[700,-1],[701,-1],
    [1700,-1],[1700,786438],[1700,655368],[790,-1],[25,-1],[1043,14],[114,-1],[3802,-1],[1560,-1],
    [1082,-1],[1114,-1],[1114,6],[1184,-1],[1083,-1],[1083,6],[1266,-1],[1186,-1],[2950,-1],[869,-1],
    [3220,-1],[600,-1],[1007,-1],[1231,-1],[1231,655366],[1182,-1],[1115,-1],[1009,-1],[2951,-1],
    [["range",23],-1],[["record",23,25],-1]]"#;

fn types() -> Vec<(Json, i32)> {
    serde_json::from_str(TYPES).unwrap()
}

/// One type, and its column.
struct Tried {
    said: Json,
    /// Of the table, as a definition in the log has them.
    columns: Json,
    table: Arc<TableSchema>,
    column: ColumnType,
    options: TypeOptions,
}

impl Tried {
    fn new(said: Json, modifier: i32, options: TypeOptions) -> Self {
        let mut of_type = column("v", &said, modifier, true, "");
        let schema: ColumnSchema = serde_json::from_value(of_type.clone()).unwrap();
        of_type["pg_type"] = said.clone();
        let id = json!({"name": "id", "type": "int", "nullable": false, "pg_type": 23, "identity": true});
        let columns = json!([id, of_type]);
        let table = json!({"database": "d", "table": "t", "key": ["id"], "columns": columns});
        let table = Arc::new(TableSchema::from_json(&table.to_string()).unwrap());
        Self { said, columns, table, column: schema.column_type().unwrap(), options }
    }

    fn target(&self) -> Target {
        Target::new(PgType::of_json(&self.said), self.column.clone())
    }

    fn builder(&self) -> ColumnBuilder {
        ColumnBuilder::new(self.column.clone(), self.options)
    }

    /// From the value in the form that it has in lists.
    fn by_form(&self, value: &[u8]) -> Option<ArrayRef> {
        let (target, mut image, mut builder) = (self.target(), Vec::new(), self.builder());
        target.binary(value, &mut target.form(&mut image)).ok()?;
        let mut cursor = Cursor::new(&image, 0);
        read_value(&mut cursor, form(&self.column), &mut builder).ok()?;
        assert!(cursor.is_empty());
        builder.finish().ok()
    }

    fn by_copy(&self, value: Option<&[u8]>) -> Option<ArrayRef> {
        let mut answer = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0".to_vec();
        answer.extend_from_slice(&[0, 2, 0, 0, 0, 4, 0, 0, 0, 7]);
        answer.extend_from_slice(&value.map_or(-1, |value| value.len() as i32).to_be_bytes());
        answer.extend_from_slice(value.unwrap_or_default());
        answer.extend_from_slice(&[0xff, 0xff]);
        let types = vec![PgType::of(23), PgType::of_json(&self.said)];
        let mut decoder = CopyDecoder::new(self.table.clone(), types, self.options, 10, 1 << 20).unwrap();
        let (start, rest) = answer.split_at(answer.len() / 2);
        assert!(decoder.feed(start).ok()?.is_empty() && decoder.feed(rest).ok()?.is_empty());
        Some(decoder.finish().ok()??.column_by_name("v").unwrap().clone())
    }

    /// `kind`: `b`, or `t` for a text. `reversed`: the log has the columns in the other order.
    fn by_log(&self, kind: u8, value: Option<&[u8]>, reversed: bool) -> Option<ArrayRef> {
        let sent = match value {
            None => vec![b'n'],
            Some(value) => [&[kind][..], &(value.len() as u32).to_be_bytes(), value].concat(),
        };
        let id: &[u8] = &[b'b', 0, 0, 0, 4, 0, 0, 0, 7];
        let values = if reversed { [&sent, id].concat() } else { [id, &sent].concat() };
        let mut definition = json!({"key": ["id"], "columns": self.columns});
        if reversed {
            (definition["columns"][0]["sent"], definition["columns"][1]["sent"]) = (1.into(), 0.into());
        }
        let mut records = Records::default();
        records.begin(0, 0, "7");
        records.definition(0, 1, ("d", "t"), &definition.to_string());
        records.message(0, 1, &[b"I\0\0\0\x01N\0\x02", &values[..]].concat());
        records.commit(0);
        let mut file = MAGIC.to_vec();
        append(HEAD, 0, br#"{"format":"pgoutput","version":1}"#, &mut file);
        file.extend_from_slice(&records.bytes);
        let split = Split {
            file: SegmentFile::from(""),
            base: 0,
            start: 0,
            end: file.len() as u64,
            preamble: Vec::new(),
            positions: None,
        };
        let file = RecordFile::of_bytes(file, 0, NAME).unwrap();
        let scan = RowsScan::<Messages>::over(file, self.table.clone(), &split, None).unwrap();
        let options = Options { types: self.options, ..Options::of(Layout::Changelog) };
        let batch = Changelog::new(scan, &options).unwrap().next_batch().ok()??;
        assert_eq!(batch.num_rows(), 1);
        Some(batch.column_by_name("v").unwrap().clone())
    }
}

fn numeric() -> impl Strategy<Value = Vec<u8>> {
    let sign = prop_oneof![4 => Just(0_u16), 4 => Just(0x4000), 1 => Just(0xc000), 1 => Just(0xd000)];
    let digits = proptest::collection::vec(prop_oneof![0..10_000_u16, Just(5000), Just(0)], 0..8);
    (digits, -4..6_i16, sign, 0..12_u16).prop_map(|(digits, weight, sign, scale)| {
        let head = [digits.len() as u16, weight as u16, sign, scale];
        head.iter().chain(&digits).flat_map(|number| number.to_be_bytes()).collect()
    })
}

/// Arrays of one dimension.
fn array() -> impl Strategy<Value = Vec<u8>> {
    let element =
        prop_oneof![any::<[u8; 4]>().prop_map(Vec::from), any::<[u8; 8]>().prop_map(Vec::from), numeric()];
    let elements = proptest::collection::vec(proptest::option::of(element), 1..4);
    (elements, 0..2_u32).prop_map(|(elements, first)| {
        let head = [1, 0, 0, elements.len() as u32, first];
        let mut bytes: Vec<u8> = head.iter().flat_map(|number| number.to_be_bytes()).collect();
        for element in elements {
            bytes.extend_from_slice(&element.as_ref().map_or(-1, |bytes| bytes.len() as i32).to_be_bytes());
            bytes.extend_from_slice(&element.unwrap_or_default());
        }
        bytes
    })
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<bool>().prop_map(|value| vec![value.into()]),
        any::<[u8; 2]>().prop_map(Vec::from),
        any::<[u8; 4]>().prop_map(Vec::from),
        any::<[u8; 8]>().prop_map(Vec::from),
        any::<[u8; 16]>().prop_map(Vec::from),
        // Days and moments around those that exist, and the infinite ones.
        (-3_000_000..3_000_000_i32).prop_map(|days| days.to_be_bytes().to_vec()),
        (0..86_400_000_001_i64).prop_map(|micros| micros.to_be_bytes().to_vec()),
        (-63_200_000_000_000_000..63_200_000_000_000_000_i64).prop_map(|us| us.to_be_bytes().to_vec()),
        Just(i64::MAX.to_be_bytes().to_vec()),
        Just(i32::MIN.to_be_bytes().to_vec()),
        numeric(),
        array(),
        ".{0,12}".prop_map(String::into_bytes),
        r#"\{"a": [0-9]{1,3}\}"#.prop_map(String::into_bytes),
        r#"\{"a": [0-9]{1,3}\}"#.prop_map(|text: String| format!("\x01{text}").into_bytes()),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,12}(\\.[0-9]{1,4})?",
        "[tf]",
        "(NaN|-?Infinity|infinity)",
        "[0-9]{4}-0[1-9]-[12][0-9]( [01][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(\\+00)?)?( BC)?",
        "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]",
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        "(\\\\x)?([0-9a-f]{2}){0,4}",
        "(\\[0:1\\]=)?\\{(-?[0-9]{1,4}|NULL)(,[0-9]{1,4}){0,2}\\}",
        ".{0,9}",
    ]
}

/// Errors where a value cannot be what its column is, and texts instead.
fn options() -> impl Strategy<Value = TypeOptions> {
    any::<bool>().prop_map(|texts| match texts {
        false => TypeOptions::default(),
        true => TypeOptions {
            extreme_dates: ExtremeDates::Text,
            not_numbers: NotNumbers::Text,
            ..TypeOptions::default()
        },
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn values_are_the_same_by_copy_by_log_and_by_form(value in value(), options in options()) {
        for (said, modifier) in types() {
            let tried = Tried::new(said.clone(), modifier, options);
            let copied = tried.by_copy(Some(&value));
            prop_assert_eq!(&tried.by_log(b'b', Some(&value), false), &copied, "{} {:?}", said, value);
            prop_assert_eq!(&tried.by_log(b'b', Some(&value), true), &copied, "{} {:?}", said, value);
            if let Some(formed) = tried.by_form(&value) {
                prop_assert_eq!(Some(&formed), copied.as_ref(), "{} {:?}", said, value);
            }
        }
    }

    #[test]
    fn texts_are_the_same_in_any_order_of_columns(text in text(), options in options()) {
        for (said, modifier) in types() {
            let tried = Tried::new(said.clone(), modifier, options);
            let mut builder = tried.builder();
            let taken = tried.target().text(text.as_bytes(), &mut builder);
            let direct = taken.ok().and_then(|()| builder.finish().ok());
            for reversed in [false, true] {
                let logged = tried.by_log(b't', Some(text.as_bytes()), reversed);
                prop_assert_eq!(&logged, &direct, "{} {}", said, text);
            }
        }
    }
}

#[test]
fn nulls_are_null_by_both_ways() {
    for (said, modifier) in types() {
        let tried = Tried::new(said, modifier, TypeOptions::default());
        for found in [tried.by_copy(None), tried.by_log(b'b', None, false), tried.by_log(b'b', None, true)] {
            let found = found.unwrap();
            assert!((found.len(), found.null_count()) == (1, 1));
        }
    }
}
