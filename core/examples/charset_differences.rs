//! Compares what a server makes of East Asian codes (`src/charset/generate.py --dump`) with encoding_rs, and
//! prints
//! `src/charset/differences.rs`.
//!
//!     cargo run --example charset_differences DUMP > src/charset/differences.rs

use std::collections::BTreeMap;

use penstock_core::charset::encoding_of;

fn main() {
    let path = std::env::args().nth(1).expect("the path of a dump");
    let dump = std::fs::read_to_string(path).expect("a dump");
    let mut found: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    for line in dump.lines() {
        let mut fields = line.split(' ');
        let (Some(charset), Some(code), Some(scalar)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let number = u32::from_str_radix(code, 16).expect("a code");
        let bytes = &number.to_be_bytes()[4 - code.len() / 2..];
        let server = u32::from_str_radix(scalar, 16).unwrap_or(0);
        let text =
            encoding_of(charset).and_then(|e| e.decode_without_bom_handling_and_without_replacement(bytes));
        let mut characters = text.iter().flat_map(|text| text.chars());
        let ours = match (characters.next(), characters.next()) {
            (Some(character), None) => u32::from(character),
            _ => 0,
        };
        let list = found.entry(charset).or_default();
        if server != 0 && ours != server {
            list.push((number, server));
        }
    }
    println!(
        "//! Written by `examples/charset_differences.rs` from the answers of a real server. Do not edit.\n"
    );
    for (charset, list) in found.into_iter().filter(|(_, list)| !list.is_empty()) {
        println!("\n/// Code and scalar, by code.");
        println!("#[rustfmt::skip]");
        println!("pub static {}: [(u32, u32); {}] = [", charset.to_uppercase(), list.len());
        for chunk in list.chunks(8) {
            let pairs: Vec<String> =
                chunk.iter().map(|(code, scalar)| format!("({code:#x}, {scalar:#x})")).collect();
            println!("    {},", pairs.join(", "));
        }
        println!("];");
    }
}
