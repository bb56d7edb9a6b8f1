//! One large configuration: ten thousand servers in a thousand backends, from an input to the bytes of the file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use homeostat_render::{Content, Data, FileSet, Form, Secrecy, Value};
use serde_json::json;

use crate::{Budget, Group, Run, Unit};

pub(super) fn group() -> Group {
    Group::new("render: 10k servers in 1k backends", Unit::Seconds)
        .with("written by hand, in Rust", by_hand, &[])
        .with("render", render, &[Budget::AtMost(0.03)])
        .with("parse, render and digest", whole, &[Budget::AtMost(0.05)])
}

const PATH: &str = "/etc/haproxy/haproxy.cfg";

const TEMPLATE: &str = "\
global
  setenv HOMEOSTAT {{ generation }}
{% for backend in inputs.backends %}
backend {{ backend.name }}
  balance roundrobin
{% for server in backend.servers %}
  server {{ server.name }} {{ server.address | ip }}:{{ server.port }} weight {{ server.weight }} check
{% endfor %}
{% endfor %}
";

/// The input as a program would write it.
fn input(run: &Run) -> (usize, String) {
    let count = run.size(10_000, 100);
    let backends: Vec<_> = (0..count / 10)
        .map(|backend| {
            let servers: Vec<_> = (0..10)
                .map(|server| {
                    let address = format!("10.{}.{}.{server}", backend / 250, backend % 250);
                    json!({ "name": format!("s{server}"), "address": address, "port": 8080, "weight": 100 })
                })
                .collect();
            json!({ "name": format!("b{backend}"), "servers": servers })
        })
        .collect();
    (count, serde_json::Value::from(backends).to_string())
}

fn set() -> Result<FileSet> {
    let content = Content::Text { name: "haproxy.cfg.j2".to_owned(), text: TEMPLATE.to_owned() };
    let set = FileSet::builder("").input("backends", Secrecy::Public);
    Ok(set.file(PATH, content, Secrecy::Public).build()?)
}

fn data(input: &str) -> Result<Data> {
    let value = Value::parse(Form::Json, "backends.json", input, Secrecy::Public)?;
    let inputs = BTreeMap::from([("backends".to_owned(), value)]);
    Ok(Data { inputs, ..Data::default() })
}

/// The floor: no template, no digest.
fn by_hand(run: &mut Run) -> Result<()> {
    let (count, input) = input(run);
    let input: serde_json::Value = serde_json::from_str(&input)?;
    let text = run.time(count, || -> Result<String> {
        let mut text = String::from("global\n");
        for backend in input.as_array().into_iter().flatten() {
            let name = backend["name"].as_str().unwrap_or("");
            writeln!(text, "backend {name}\n  balance roundrobin")?;
            for server in backend["servers"].as_array().into_iter().flatten() {
                let of = |field: &str| server[field].as_str().unwrap_or("");
                let (name, address) = (of("name"), of("address"));
                let (port, weight) = (&server["port"], &server["weight"]);
                writeln!(text, "  server {name} {address}:{port} weight {weight} check")?;
            }
        }
        Ok(text)
    })?;
    ensure!(text.lines().count() > 1, "nothing was written");
    Ok(())
}

fn render(run: &mut Run) -> Result<()> {
    let (count, input) = input(run);
    let (set, data) = (set()?, data(&input)?);
    let draft = run.time(count, || set.render(&data))?;
    check(count, &draft.finish_unmasked(b"key"))
}

fn whole(run: &mut Run) -> Result<()> {
    let (count, input) = input(run);
    let set = set()?;
    let rendered = run
        .time(count, || -> Result<_> { Ok(set.render(&data(&input)?)?.finish_unmasked(b"key")) })?;
    check(count, &rendered)
}

fn check(count: usize, rendered: &homeostat_render::RenderedSet) -> Result<()> {
    let bytes: Vec<u8> = rendered.files.values().flat_map(|file| file.bytes.clone()).collect();
    let text = String::from_utf8(bytes)?;
    let servers = text.lines().filter(|line| line.starts_with("  server ")).count();
    ensure!(servers == count, "{servers} servers of {count}");
    Ok(())
}
