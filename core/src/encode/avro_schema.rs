//! Connect's schemas as schemas of Avro, as Confluent's AvroConverter writes them: semantic types stay as
//! properties `connect.…`, and what may be null is a union.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::json_text::quoted;

/// The schema of Avro for a schema of Connect, which is a struct. The error names fields that cannot be told
/// apart.
pub fn from_connect(schema: &Value) -> Result<String, String> {
    let mut out = String::new();
    Writer { defined: HashSet::new(), out: &mut out }.base(schema)?;
    Ok(out)
}

/// A name that Avro and Protobuf can have: letters, digits and `_`, no digit at its begin.
pub fn valid_name(name: &str) -> String {
    let mut valid: String =
        name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
    if valid.starts_with(|first: char| first.is_ascii_digit()) || valid.is_empty() {
        valid.insert(0, '_');
    }
    valid
}

/// Namespace and last part of a full name, both valid.
pub fn split_name(name: &str) -> (String, String) {
    let parts: Vec<String> = name.split('.').map(valid_name).collect();
    match parts.split_last() {
        Some((last, [])) => (String::new(), last.clone()),
        Some((last, namespace)) => (namespace.join("."), last.clone()),
        None => (String::new(), "_".to_owned()),
    }
}

/// The names of a struct's fields, made valid.
pub fn field_names(schema: &Value) -> Result<Vec<String>, String> {
    let mut seen = HashSet::new();
    let names = fields(schema).iter().map(|field| {
        let name = text(field, "field");
        let valid = valid_name(name);
        match seen.insert(valid.clone()) {
            true => Ok(valid),
            false => {
                Err(format!("two columns have the name `{valid}` in this format, one of them is `{name}`"))
            }
        }
    });
    names.collect()
}

pub fn fields(schema: &Value) -> &[Value] {
    schema["fields"].as_array().map_or(&[], Vec::as_slice)
}

pub fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema[name].as_str().unwrap_or_default()
}

struct Writer<'a> {
    /// Full names of the records that are written already.
    defined: HashSet<String>,
    out: &'a mut String,
}

impl Writer<'_> {
    /// The type of a field or item: a union if it may be null.
    fn schema(&mut self, schema: &Value) -> Result<(), String> {
        if schema["optional"].as_bool() != Some(true) {
            return self.base(schema);
        }
        // The branch of the default comes first.
        let has_default = schema["default"].is_string();
        self.out.push_str(if has_default { "[" } else { "[\"null\"," });
        self.base(schema)?;
        self.out.push_str(if has_default { ",\"null\"]" } else { "]" });
        Ok(())
    }

    fn base(&mut self, schema: &Value) -> Result<(), String> {
        let name = text(schema, "name");
        let (kind, connect_type) = match text(schema, "type") {
            "struct" => return self.record(schema),
            "array" => {
                self.out.push_str("{\"type\":\"array\",\"items\":");
                self.schema(&schema["items"])?;
                self.properties(schema, "");
                self.out.push('}');
                return Ok(());
            }
            "int8" | "int16" => ("int", text(schema, "type")),
            "int32" => ("int", ""),
            "int64" => ("long", ""),
            other => (other, ""),
        };
        if name.is_empty() && connect_type.is_empty() {
            self.out.push_str(&quoted(kind));
            return Ok(());
        }
        // Writing into a String cannot fail.
        let _ = write!(self.out, "{{\"type\":\"{kind}\"");
        let parameter = |name: &str| schema["parameters"][name].as_str().unwrap_or("0");
        if name.ends_with(".Decimal") {
            let (scale, precision) = (parameter("scale"), parameter("connect.decimal.precision"));
            let _ = write!(self.out, ",\"scale\":{scale},\"precision\":{precision}");
        }
        self.properties(schema, connect_type);
        let logical = match name {
            "org.apache.kafka.connect.data.Decimal" => "decimal",
            "org.apache.kafka.connect.data.Date" => "date",
            "org.apache.kafka.connect.data.Time" => "time-millis",
            "org.apache.kafka.connect.data.Timestamp" => "timestamp-millis",
            _ => "",
        };
        if !logical.is_empty() {
            let _ = write!(self.out, ",\"logicalType\":\"{logical}\"");
        }
        self.out.push('}');
        Ok(())
    }

    fn properties(&mut self, schema: &Value, connect_type: &str) {
        if let Some(version) = schema["version"].as_u64() {
            let _ = write!(self.out, ",\"connect.version\":{version}");
        }
        if schema["parameters"].is_object() {
            let _ = write!(self.out, ",\"connect.parameters\":{}", schema["parameters"]);
        }
        if schema["default"].is_string() {
            let _ = write!(self.out, ",\"connect.default\":{}", schema["default"]);
        }
        if schema["name"].is_string() {
            let _ = write!(self.out, ",\"connect.name\":{}", schema["name"]);
        }
        if !connect_type.is_empty() {
            let _ = write!(self.out, ",\"connect.type\":\"{connect_type}\"");
        }
    }

    fn record(&mut self, schema: &Value) -> Result<(), String> {
        let (namespace, name) = split_name(text(schema, "name"));
        let full = format!("{namespace}.{name}");
        if !self.defined.insert(full.clone()) {
            self.out.push_str(&quoted(&full));
            return Ok(());
        }
        let _ = write!(
            self.out,
            "{{\"type\":\"record\",\"name\":{},\"namespace\":{},\"fields\":[",
            quoted(&name),
            quoted(&namespace)
        );
        let names = field_names(schema)?;
        for (index, (field, name)) in fields(schema).iter().zip(names).enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            let _ = write!(self.out, "{{\"name\":\"{name}\",\"type\":");
            self.schema(field)?;
            if field["default"].is_string() {
                let _ = write!(self.out, ",\"default\":{}", field["default"]);
            } else if field["optional"].as_bool() == Some(true) {
                self.out.push_str(",\"default\":null");
            }
            self.out.push('}');
        }
        self.out.push(']');
        self.properties(schema, "");
        self.out.push('}');
        Ok(())
    }
}
