//! The JSON Schema of command files, from the list of keys by which they are checked.
//!
//! It says of each value what it may be. What several values mean together (dependencies that exist,
//! limits that are large enough) no schema can say.

use crate::file::{KEYS, Shape, Table};
use serde_json::{Map, Value, json};

/// The schema, for draft 2020-12.
pub(crate) fn schema() -> Value {
    let mut schema = table(&KEYS);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("tidegate command file");
    schema["properties"]["tasks"]["minProperties"] = json!(1);
    schema
}

fn table(known: &Table) -> Value {
    let mut properties = Map::new();
    for key in known.keys {
        let mut value = value(&key.shape);
        value["description"] = json!(key.about);
        properties.insert(key.name.to_owned(), value);
    }
    let needed: Vec<_> = known.keys.iter().filter(|key| key.needed).map(|key| key.name).collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !needed.is_empty() {
        schema["required"] = json!(needed);
    }
    if !known.one_of.is_empty() {
        let one = known.one_of.iter().map(|key| json!({ "required": [key] }));
        schema["oneOf"] = one.collect();
    }
    schema
}

fn value(shape: &Shape) -> Value {
    match shape {
        Shape::Text(_) => json!({ "type": "string", "pattern": "\\S" }),
        Shape::AnyText(_) => json!({ "type": "string" }),
        Shape::Form(form) => json!({ "type": "string", "pattern": form.pattern }),
        Shape::Words(words) => json!({ "enum": words }),
        Shape::Whole(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Number(min, max) => json!({ "type": "number", "minimum": min, "maximum": max }),
        Shape::Duration { zero } => json!({ "anyOf": [
            { "type": "string", "pattern": "^ *([0-9]+|([0-9]+(ms|s|m|h|d))+) *$" },
            { "type": "integer", "minimum": if *zero { 0 } else { 1 } },
        ] }),
        Shape::List(_, item, least) => {
            let mut list = json!({ "type": "array", "items": value(item) });
            if *least > 0 {
                list["minItems"] = json!(least);
            }
            list
        }
        Shape::Map(_, item) => json!({
            "type": "object",
            "additionalProperties": value(item),
            "propertyNames": { "minLength": 1 },
        }),
        Shape::Table(known) => table(known),
        Shape::Any(shapes) => json!({ "anyOf": shapes.iter().map(value).collect::<Vec<_>>() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::TABLES;
    use std::collections::BTreeSet;

    /// The keys of every table in a schema.
    fn tables(schema: &Value, into: &mut BTreeSet<Vec<String>>) {
        if let Some(properties) = schema["properties"].as_object() {
            into.insert(properties.keys().cloned().collect());
        }
        match schema {
            Value::Object(parts) => parts.values().for_each(|part| tables(part, into)),
            Value::Array(parts) => parts.iter().for_each(|part| tables(part, into)),
            _ => {}
        }
    }

    #[test]
    fn the_schema_knows_the_keys_by_which_files_are_checked() {
        let mut found = BTreeSet::new();
        tables(&schema(), &mut found);
        let known = TABLES.iter().map(|table| {
            let mut names: Vec<_> = table.keys.iter().map(|key| key.name.to_owned()).collect();
            names.sort();
            names
        });
        assert_eq!(found, known.collect());
    }
}
