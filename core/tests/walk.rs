//! Row images by steps (`column::Walk`) against the same images value by value (`rows::walk_image`): equal
//! arrays, or an error of both. `data/changes.binlog` is from a real server (`data/generate.py`).

use std::sync::Arc;

use arrow_array::ArrayRef;
use penstock_core::column::{Binaries, ColumnBuilder, TypeOptions, Walk, ZeroDates};
use penstock_core::cursor::Cursor;
use penstock_core::mysql::event::{Event, EventKind, Events, FormatDescription};
use penstock_core::plan;
use penstock_core::rows::{walk_image, RowSink, RowsEvent, Taken};
use penstock_core::schema::TableSchema;
use penstock_core::table_map::TableMap;
use proptest::prelude::*;

const LOG: &[u8] = include_bytes!("data/changes.binlog");
const SCHEMA: &str = include_str!("data/changes.json");

/// The table, its map, and the row events that have whole images.
fn log() -> (TableSchema, Arc<TableMap>, Vec<RowsEvent<'static>>) {
    let schema = TableSchema::from_json(SCHEMA).unwrap();
    let format = FormatDescription::parse(&Event::parse(&LOG[4..], 4, Default::default()).unwrap()).unwrap();
    let (mut map, mut events) = (None, Vec::new());
    for event in Events::new(&LOG[4..], 4, format.checksum).map(Result::unwrap) {
        if event.header.kind == EventKind::TABLE_MAP {
            let found = TableMap::parse(&event, &format).unwrap();
            map = (found.table == schema.table).then_some(found).or(map);
        } else if event.header.kind.rows().is_some() {
            events.push(RowsEvent::parse(&event, &format).unwrap());
        }
    }
    let map = plan::fit(map.unwrap(), &schema).unwrap();
    events.retain(|rows| rows.table_id == map.table_id && rows.present.is_full());
    (schema, Arc::new(map), events)
}

struct Builders {
    builders: Vec<ColumnBuilder>,
    places: Vec<Option<usize>>,
}

impl Builders {
    /// Of the columns of which `wanted` has a bit.
    fn new(schema: &TableSchema, wanted: u32, types: TypeOptions) -> Self {
        let mut this = Self { builders: Vec::new(), places: vec![None; schema.columns.len()] };
        for (position, place) in this.places.iter_mut().enumerate().filter(|(at, _)| wanted >> at & 1 == 1) {
            *place = Some(this.builders.len());
            this.builders.push(ColumnBuilder::of(schema, position, types).unwrap());
        }
        this
    }

    fn finish(&mut self) -> Vec<ArrayRef> {
        self.builders.iter_mut().map(|builder| builder.finish().unwrap()).collect()
    }
}

impl RowSink for Builders {
    type Column = ColumnBuilder;

    fn column(&mut self, index: usize) -> Option<&mut ColumnBuilder> {
        self.builders.get_mut(self.places[index]?)
    }

    fn absent(&mut self, _: usize) -> Taken {
        Ok(())
    }
}

/// Sends the image to both; the bytes it had and the arrays.
fn both(
    (schema, map, rows): (&TableSchema, &Arc<TableMap>, &RowsEvent<'_>),
    image: &[u8],
    wanted: u32,
    types: TypeOptions,
) -> [Option<(usize, Vec<ArrayRef>)>; 2] {
    let mut one = Builders::new(schema, wanted, types);
    let mut cursor = Cursor::new(image, 0);
    let walked = walk_image(&mut cursor, map, rows.present, &mut one);
    let by_value = walked.is_ok().then(|| (cursor.position(), one.finish()));

    let Builders { mut builders, places } = Builders::new(schema, wanted, types);
    let walk = Walk::new(map, |column| places[column].map(|place| (place, &builders[place])));
    let mut cursor = Cursor::new(image, 0);
    let walked = walk.run(&mut cursor, rows.present, &mut builders);
    let by_steps = walked.is_ok().then(|| (cursor.position(), Builders { builders, places }.finish()));
    [by_value, by_steps]
}

fn types() -> impl Strategy<Value = TypeOptions> {
    let dates = prop_oneof![Just(ZeroDates::Null), Just(ZeroDates::Text), Just(ZeroDates::Error)];
    let binaries = prop_oneof![Just(Binaries::Bytes), Just(Binaries::Hex)];
    (dates, binaries).prop_map(|(zero_dates, binary)| TypeOptions {
        zero_dates,
        binary,
        ..Default::default()
    })
}

#[test]
fn the_servers_images_give_equal_arrays() {
    let (schema, map, events) = log();
    assert!(!events.is_empty());
    for rows in &events {
        let image = rows.images.clone().rest();
        let [by_value, by_steps] = both((&schema, &map, rows), image, u32::MAX, TypeOptions::default());
        assert_eq!(by_value.as_ref().unwrap().1.len(), schema.columns.len());
        assert_eq!(by_value, by_steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn damaged_images_give_equal_arrays_or_errors(
        number in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((0..220_usize, any::<u8>()), 0..5),
        cut in 0..400_usize,
        wanted: u32,
        types in types(),
    ) {
        let (schema, map, events) = log();
        let rows = number.get(&events);
        let mut image = rows.images.clone().rest().to_vec();
        for (place, byte) in damage {
            if let Some(old) = image.get_mut(place) {
                *old = byte;
            }
        }
        image.truncate(cut.max(1));
        let [by_value, by_steps] = both((&schema, &map, rows), &image, wanted, types);
        prop_assert_eq!(by_value, by_steps);
    }
}
