//! The JSON Schema says what the reader does: good documents fit it, misspelt ones do not.

use homeostat_document::Format;
use serde_json::{Value, json};
use std::fs;

use super::{READER, folder};

/// A validator for those words of JSON Schema that ours uses; any other word fails the test.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    schema.as_object().unwrap().iter().all(|(word, rule)| match word.as_str() {
        "$ref" => {
            let name = rule.as_str().unwrap().trim_start_matches("#/$defs/");
            fits(root, &root["$defs"][name], value)
        }
        "type" => has_type(rule, value),
        "enum" => rule.as_array().unwrap().contains(value),
        "anyOf" => rule.as_array().unwrap().iter().any(|one| fits(root, one, value)),
        "minimum" => value.as_i64().is_none_or(|number| number >= rule.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|number| number <= rule.as_i64().unwrap()),
        "minItems" => value.as_array().is_none_or(|all| all.len() as u64 >= rule.as_u64().unwrap()),
        "items" => each(value.as_array()).all(|item| fits(root, rule, item)),
        "required" => each(rule.as_array()).all(|name| has(value, name.as_str().unwrap())),
        "properties" => rule
            .as_object()
            .unwrap()
            .iter()
            .all(|(name, shape)| value.get(name).is_none_or(|field| fits(root, shape, field))),
        "additionalProperties" => fits_others(root, schema, value),
        "description" | "title" | "$schema" | "$defs" | "propertyNames" => true,
        other => panic!("the validator does not know `{other}`"),
    })
}

fn each(list: Option<&Vec<Value>>) -> impl Iterator<Item = &Value> {
    list.into_iter().flatten()
}

fn has(value: &Value, name: &str) -> bool {
    !value.is_object() || value.get(name).is_some()
}

fn has_type(rule: &Value, value: &Value) -> bool {
    if let Some(rules) = rule.as_array() {
        return rules.iter().any(|rule| has_type(rule, value));
    }
    match rule.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("the validator does not know the type `{other}`"),
    }
}

fn fits_others(root: &Value, schema: &Value, value: &Value) -> bool {
    let Some(fields) = value.as_object() else { return true };
    let mut others = fields.iter().filter(|(name, _)| schema["properties"].get(name).is_none());
    others.all(|(_, field)| match &schema["additionalProperties"] {
        Value::Bool(allowed) => *allowed,
        shape => fits(root, shape, field),
    })
}

/// Whether schema and reader agree that the document is fine or not.
fn agree(document: &Value) -> bool {
    let schema = READER.schema();
    let read = READER.parse("document", Format::Json, &document.to_string()).is_ok();
    assert_eq!(fits(&schema, &schema, document), read, "{document}");
    read
}

#[test]
fn good_documents_fit_the_schema() {
    let folder = folder("good");
    let design = fs::read_to_string(folder.join("design.json")).unwrap();
    assert!(agree(&serde_json::from_str(&design).unwrap()));
    let everything = fs::read_to_string(folder.join("everything.toml")).unwrap();
    assert!(agree(&toml::from_str::<Value>(&everything).unwrap()));
    assert!(agree(&json!({})));
}

#[test]
fn the_schema_refuses_what_the_reader_refuses() {
    for document in [
        json!({ "link": {} }),
        json!({ "links": [] }),
        json!({ "links": { "eth0": { "adresses": [] } } }),
        json!({ "links": { "eth0": { "mtu": "1500" } } }),
        json!({ "links": { "eth0": { "mtu": 5 } } }),
        json!({ "links": { "eth0": { "kind": "batadv" } } }),
        json!({ "routes": {} }),
        json!({ "routes": [{ "to": 5, "dev": "eth0" }] }),
        json!({ "routes": [{ "to": "default", "dev": "eth0", "table": 0 }] }),
        json!({ "routes": [{ "to": "default", "dev": "eth0", "type": "unicorn" }] }),
        json!({ "neighbours": [{ "dev": "eth0", "proxy": true }] }),
        json!({ "sysctl": { "net.ipv4.ip_forward": true } }),
        json!({ "sysctl": { "net.ipv4.ip_forward": { "adopt": true } } }),
        json!({ "namespaces": { "blue": { "cgroups": {} } } }),
        json!({ "settings": { "rtnl": { "mode": "healing" } } }),
    ] {
        assert!(!agree(&document), "{document}");
    }
}
