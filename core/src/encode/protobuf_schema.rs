//! Connect's schemas as definitions of Protobuf (proto3): fields are numbered in their order, and `optional`
//! says what may be null. Decimals are `confluent.type.Decimal`, which registries know.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::avro_schema::{field_names, fields, split_name, text};

const DECIMAL: &str = "org.apache.kafka.connect.data.Decimal";

/// The file with the message for a struct of Connect. The error names fields that cannot be told apart.
pub fn from_connect(schema: &Value) -> Result<String, String> {
    let (package, _) = split_name(text(schema, "name"));
    let mut body = String::new();
    message(schema, &mut body, 0, &mut HashSet::new())?;
    let mut file = format!("syntax = \"proto3\";\npackage {package};\n\n");
    if body.contains("confluent.type.Decimal") {
        file.push_str("import \"confluent/type/decimal.proto\";\n\n");
    }
    Ok(file + &body)
}

/// Messages that it needs are defined inside of the outermost one, each once.
fn message(
    schema: &Value,
    out: &mut String,
    depth: usize,
    defined: &mut HashSet<String>,
) -> Result<(), String> {
    let indent = "  ".repeat(depth);
    let (_, name) = split_name(text(schema, "name"));
    // Writing into a String cannot fail.
    let _ = writeln!(out, "{indent}message {name} {{");
    let mut inner = Vec::new();
    for (index, (field, name)) in fields(schema).iter().zip(field_names(schema)?).enumerate() {
        let is_list = is_list(field);
        let (kind, of) = match text(field, "type") {
            "array" if !is_list => ("repeated ", &field["items"]),
            "array" => ("", &field["items"]),
            _ => ("", field),
        };
        let is_struct = text(of, "type") == "struct";
        let optional =
            field["optional"].as_bool() == Some(true) && kind.is_empty() && !is_message(of) && !is_list;
        let label = if optional { "optional " } else { kind };
        let shown = if is_list { list_name(of) } else { type_of(of) };
        let _ = writeln!(out, "{indent}  {label}{shown} {name} = {};", index + 1);
        if is_list && defined.insert(shown) {
            list(of, out, &format!("{indent}  "));
        }
        if is_struct {
            inner.push(of);
        }
    }
    for struct_schema in inner {
        if defined.insert(split_name(text(struct_schema, "name")).1) {
            message(struct_schema, out, depth + 1, defined)?;
        }
    }
    let _ = writeln!(out, "{indent}}}");
    Ok(())
}

/// A list that may be NULL, and whose elements may be: a repeated field can say neither.
fn is_list(schema: &Value) -> bool {
    text(schema, "type") == "array" && schema["items"]["optional"].as_bool() == Some(true)
}

fn list_name(items: &Value) -> String {
    let of = type_of(items);
    let of = of.rsplit('.').next().unwrap_or_default();
    let (first, rest) = of.split_at(of.len().min(1));
    format!("{}{rest}List", first.to_uppercase())
}

fn list(items: &Value, out: &mut String, indent: &str) {
    let label = if is_message(items) { "" } else { "optional " };
    let (name, of) = (list_name(items), type_of(items));
    let _ = writeln!(
        out,
        "{indent}message {name} {{\n{indent}  message Element {{\n{indent}    {label}{of} value = 1;\n\
         {indent}  }}\n{indent}  repeated Element elements = 1;\n{indent}}}"
    );
}

/// Messages may be absent without a word for it.
fn is_message(schema: &Value) -> bool {
    text(schema, "type") == "struct" || text(schema, "name") == DECIMAL
}

fn type_of(schema: &Value) -> String {
    match text(schema, "type") {
        "struct" => split_name(text(schema, "name")).1,
        "bytes" if text(schema, "name") == DECIMAL => "confluent.type.Decimal".to_owned(),
        "int8" | "int16" | "int32" => "int32".to_owned(),
        "boolean" => "bool".to_owned(),
        other => other.to_owned(),
    }
}
