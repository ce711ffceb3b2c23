//! Connect's schema of types in Avro: the inverse of what Connect's converters for Avro do.

use serde_json::{json, Map, Value as Json};

use super::avro_type::{Form, Member, Node, Types};
use super::json::put_base64;
use super::value::Refused;

/// Fields of Connect's schema that are made of one Avro schema, where records are named several times.
const FIELDS_MAX: usize = 50_000;
/// Records in records that are described. Rows are in the second, and a cell's value is in the fourth.
const DESCRIBED_DEPTH: usize = 6;

/// Connect's schema of a schema in Avro, as JSON.
pub fn connect_schema(types: &Types) -> Result<String, Refused> {
    let mut describer = Describer { nodes: &types.nodes, fields: 0 };
    Ok(describer.described(types.root, false, 0)?.to_string())
}

struct Describer<'a> {
    nodes: &'a [Node],
    /// So many were described.
    fields: usize,
}

impl Describer<'_> {
    /// Connect's schema of a type.
    fn described(&mut self, at: usize, optional: bool, depth: usize) -> Result<Json, Refused> {
        let nodes = self.nodes;
        let node = &nodes[at];
        if let Form::Union(branches) = &node.form {
            let is_null = |branch: &&usize| matches!(nodes[**branch].form, Form::Null);
            let mut others = branches.iter().filter(|branch| !is_null(branch));
            let optional = optional || branches.iter().any(|branch| is_null(&branch));
            return match (others.next(), others.next()) {
                (Some(only), None) => self.described(*only, optional, depth),
                _ => Ok(json!({"type": "struct", "optional": optional})),
            };
        }
        let mut found = Map::new();
        found.insert("type".into(), connect_type(node).into());
        found.insert("optional".into(), optional.into());
        let (name, parameters) = meaning(node);
        if let Some(name) = name {
            found.insert("name".into(), name.into());
        }
        if let Some(parameters) = parameters {
            found.insert("parameters".into(), parameters);
        }
        if let Form::Record(members) = &node.form {
            if depth < DESCRIBED_DEPTH {
                let mut listed = Vec::with_capacity(members.len());
                for member in members {
                    self.fields += 1;
                    if self.fields > FIELDS_MAX {
                        return Err("its schema in Avro has too many fields".into());
                    }
                    listed.push(self.field(member, depth)?);
                }
                found.insert("fields".into(), listed.into());
            }
        }
        if let Form::Array(items) = &node.form {
            if depth < DESCRIBED_DEPTH {
                self.fields += 1;
                if self.fields > FIELDS_MAX {
                    return Err("its schema in Avro has too many fields".into());
                }
                found.insert("items".into(), self.described(*items, false, depth + 1)?);
            }
        }
        Ok(found.into())
    }

    fn field(&mut self, member: &Member, depth: usize) -> Result<Json, Refused> {
        let mut field = self.described(member.node, false, depth + 1)?;
        let first = match &self.nodes[member.node].form {
            Form::Union(branches) => branches.first().copied().unwrap_or(member.node),
            _ => member.node,
        };
        let node = &self.nodes[first];
        let default = member.default.as_ref().filter(|value| !value.is_null());
        if let Some(default) = default.or_else(|| node.said.get("connect.default")) {
            field["default"] = default_as_json(default, &node.form);
        }
        field["field"] = member.name.as_str().into();
        Ok(field)
    }
}

/// Connect's name of a type, and its parameters.
fn meaning(node: &Node) -> (Option<String>, Option<Json>) {
    const CONNECT: &str = "org.apache.kafka.connect.data.";
    let said = |name: &str| node.said.get(name).and_then(Json::as_str);
    let parameters = node.said.get("connect.parameters").cloned();
    if let Some(name) = said("connect.name") {
        return (Some(name.to_owned()), parameters);
    }
    let logical = match (said("logicalType"), &node.form) {
        (Some("decimal"), Form::Bytes | Form::Fixed(_)) => {
            let number = |name: &str| node.said.get(name).and_then(Json::as_u64);
            let mut found = Map::new();
            found.insert("scale".into(), number("scale").unwrap_or(0).to_string().into());
            if let Some(precision) = number("precision") {
                found.insert("connect.decimal.precision".into(), precision.to_string().into());
            }
            return (Some(format!("{CONNECT}Decimal")), Some(found.into()));
        }
        (Some("date"), Form::Int { long: false }) => Some("Date"),
        (Some("time-millis"), Form::Int { long: false }) => Some("Time"),
        (Some("timestamp-millis"), Form::Int { long: true }) => Some("Timestamp"),
        _ => None,
    };
    match logical {
        Some(name) => (Some(format!("{CONNECT}{name}")), parameters),
        None => (node.full_name.clone(), parameters),
    }
}

/// A default as Connect's JSON has it. Avro writes bytes as a text of the characters 0 to 255.
fn default_as_json(default: &Json, form: &Form) -> Json {
    match (default, form) {
        (Json::String(text), Form::Bytes | Form::Fixed(_)) => {
            let bytes: Vec<u8> = text.chars().map(|character| character as u8).collect();
            let mut out = Vec::new();
            put_base64(&bytes, &mut out);
            String::from_utf8(out).unwrap_or_default().trim_matches('"').into()
        }
        _ => default.clone(),
    }
}

fn connect_type(node: &Node) -> String {
    if let Some(Json::String(said)) = node.said.get("connect.type") {
        return said.clone();
    }
    match node.form {
        Form::Null | Form::Text | Form::Enum(_) => "string",
        Form::Bool => "boolean",
        Form::Int { long: false } => "int32",
        Form::Int { long: true } => "int64",
        Form::Float => "float",
        Form::Double => "double",
        Form::Bytes | Form::Fixed(_) => "bytes",
        Form::Array(_) => "array",
        Form::Map(_) => "map",
        Form::Record(_) | Form::Union(_) => "struct",
    }
    .to_owned()
}
