//! The types of a schema in Avro.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::value::Refused;

/// Types of one schema. Real ones have some hundred.
const NODES_MAX: usize = 100_000;

/// The types of a schema, which name each other by their numbers, and the number of the whole.
pub struct Types {
    pub nodes: Vec<Node>,
    pub root: usize,
}

impl Types {
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let parsed: Json = serde_json::from_str(text).map_err(|_| "its schema in Avro is no JSON")?;
        let mut reader = Reader::default();
        let root = reader.node(&parsed, "")?;
        Ok(Self { nodes: reader.nodes, root })
    }
}

#[derive(Debug)]
pub enum Form {
    Null,
    Bool,
    /// `int` and `long`: both are integers of variable length.
    Int {
        long: bool,
    },
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<String>),
    Array(usize),
    Map(usize),
    Record(Vec<Member>),
    Union(Vec<usize>),
}

#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub node: usize,
    pub default: Option<Json>,
}

#[derive(Debug)]
pub struct Node {
    pub form: Form,
    /// What Connect says of the type: its name, its type, parameters and default.
    pub said: Map<String, Json>,
    pub full_name: Option<String>,
}

/// Reads a schema's text into nodes.
#[derive(Default)]
struct Reader {
    nodes: Vec<Node>,
    named: HashMap<String, usize>,
}

impl Reader {
    fn push(&mut self, form: Form, said: Map<String, Json>) -> Result<usize, Refused> {
        if self.nodes.len() >= NODES_MAX {
            return Err("its schema in Avro has too many types".into());
        }
        self.nodes.push(Node { form, said, full_name: None });
        Ok(self.nodes.len() - 1)
    }

    /// The depth is bounded by that of the JSON.
    fn node(&mut self, schema: &Json, namespace: &str) -> Result<usize, Refused> {
        match schema {
            Json::String(name) => self.by_name(name, namespace, Map::new()),
            Json::Array(branches) => {
                let found: Result<Vec<usize>, Refused> =
                    branches.iter().map(|branch| self.node(branch, namespace)).collect();
                self.push(Form::Union(found?), Map::new())
            }
            Json::Object(said) => match said.get("type") {
                Some(Json::String(name)) => self.by_name(name, namespace, said.clone()),
                Some(inner) => self.node(inner, namespace),
                None => Err("a type of its schema in Avro has no `type`".into()),
            },
            _ => Err("its schema in Avro has a type that is no type".into()),
        }
    }

    fn by_name(&mut self, name: &str, namespace: &str, said: Map<String, Json>) -> Result<usize, Refused> {
        let form = match name {
            "null" => Form::Null,
            "boolean" => Form::Bool,
            "int" => Form::Int { long: false },
            "long" => Form::Int { long: true },
            "float" => Form::Float,
            "double" => Form::Double,
            "bytes" => Form::Bytes,
            "string" => Form::Text,
            "array" => Form::Array(self.inner(&said, "items", namespace)?),
            "map" => Form::Map(self.inner(&said, "values", namespace)?),
            "fixed" => {
                let size = said.get("size").and_then(Json::as_u64).and_then(|size| size.try_into().ok());
                Form::Fixed(size.ok_or("a type `fixed` of its schema in Avro has no size")?)
            }
            "enum" => {
                let listed = said.get("symbols").and_then(Json::as_array);
                let listed = listed.ok_or("an enum of its schema in Avro has no symbols")?;
                Form::Enum(listed.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect())
            }
            "record" | "error" => return self.record(namespace, said),
            _ => {
                let found = full_name(name, None, namespace);
                let known = self.named.get(&found).or_else(|| self.named.get(name));
                return known
                    .copied()
                    .ok_or_else(|| format!("its schema in Avro has the unknown type `{name}`").into());
            }
        };
        let is_named = matches!(form, Form::Fixed(_) | Form::Enum(_));
        let own_name = is_named.then(|| name_of(&said, namespace)).flatten();
        let at = self.push(form, said)?;
        if let Some(own_name) = own_name {
            self.named.insert(own_name, at);
        }
        Ok(at)
    }

    fn inner(&mut self, said: &Map<String, Json>, what: &str, namespace: &str) -> Result<usize, Refused> {
        let inner = said.get(what).ok_or("a list of its schema in Avro says not of what")?;
        self.node(inner, namespace)
    }

    fn record(&mut self, namespace: &str, mut said: Map<String, Json>) -> Result<usize, Refused> {
        let name = name_of(&said, namespace).ok_or("a record of its schema in Avro has no name")?;
        let Some(Json::Array(listed)) = said.remove("fields") else {
            return Err("a record of its schema in Avro has no fields".into());
        };
        let at = self.push(Form::Record(Vec::new()), said)?;
        self.nodes[at].full_name = Some(name.clone());
        let inside = name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        self.named.insert(name, at);
        let mut members = Vec::with_capacity(listed.len());
        for field in &listed {
            let own = field.get("name").and_then(Json::as_str).unwrap_or_default();
            let kind = field.get("type").ok_or("a field of its schema in Avro has no type")?;
            if own.is_empty() {
                return Err("a field of its schema in Avro has no name".into());
            }
            let node = self.node(kind, &inside)?;
            members.push(Member { name: own.to_owned(), node, default: field.get("default").cloned() });
        }
        self.nodes[at].form = Form::Record(members);
        Ok(at)
    }
}

fn name_of(said: &Map<String, Json>, namespace: &str) -> Option<String> {
    let name = said.get("name")?.as_str()?;
    Some(full_name(name, said.get("namespace").and_then(Json::as_str), namespace))
}

fn full_name(name: &str, own: Option<&str>, inherited: &str) -> String {
    match own.unwrap_or(inherited) {
        namespace if !name.contains('.') && !namespace.is_empty() => format!("{namespace}.{name}"),
        _ => name.to_owned(),
    }
}
