//! The requests of the API and their parameters. `cargo xtask soak` compares this list with the published
//! description of the API.

use crate::answer::Answer;
use crate::call::Call;
use crate::guest::Kind;

#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub method: &'static str,
    /// With variable parts in braces.
    pub path: &'static str,
    /// Lists of names, each separated by blanks.
    parameters: &'static [&'static str],
    /// `null`, `string`, `object` or `array`.
    pub returns: &'static str,
}

impl Request {
    /// The names of its parameters. One that ends in `[n]` takes a number there.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.parameters.iter().flat_map(|names| names.split_whitespace())
    }
}

const fn request(
    method: &'static str,
    path: &'static str,
    parameters: &'static [&'static str],
    returns: &'static str,
) -> Request {
    Request { method, path, parameters, returns }
}

pub const REQUESTS: &[Request] = &[
    request("GET", "/version", &[], "object"),
    request("GET", "/access/permissions", &["path userid"], "object"),
    request("GET", "/cluster/resources", &["type"], "array"),
    request("GET", "/nodes", &[], "array"),
    request("GET", "/nodes/{node}/lxc", &[], "array"),
    request("GET", "/nodes/{node}/qemu", &["full"], "array"),
    request("GET", "/nodes/{node}/lxc/{vmid}/status/current", &[], "object"),
    request("GET", "/nodes/{node}/qemu/{vmid}/status/current", &[], "object"),
    request("GET", "/nodes/{node}/lxc/{vmid}/config", &["current snapshot"], "object"),
    request("GET", "/nodes/{node}/qemu/{vmid}/config", &["current snapshot"], "object"),
    request("GET", "/nodes/{node}/lxc/{vmid}/pending", &[], "array"),
    request("GET", "/nodes/{node}/qemu/{vmid}/pending", &[], "array"),
    request("PUT", "/nodes/{node}/lxc/{vmid}/config", &[OPTIONS_LXC], "null"),
    request("PUT", "/nodes/{node}/qemu/{vmid}/config", &[OPTIONS_QEMU], "null"),
    request(
        "POST",
        "/nodes/{node}/qemu/{vmid}/config",
        &["background_delay", OPTIONS_QEMU],
        "string",
    ),
    request("POST", "/nodes/{node}/lxc/{vmid}/status/start", &["debug skiplock"], "string"),
    request("POST", "/nodes/{node}/qemu/{vmid}/status/start", &["skiplock timeout"], "string"),
    request("POST", "/nodes/{node}/lxc/{vmid}/status/stop", &["skiplock"], "string"),
    request(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/stop",
        &["keepActive skiplock timeout"],
        "string",
    ),
    request("POST", "/nodes/{node}/lxc/{vmid}/status/shutdown", &["forceStop timeout"], "string"),
    request(
        "POST",
        "/nodes/{node}/qemu/{vmid}/status/shutdown",
        &["forceStop keepActive skiplock timeout"],
        "string",
    ),
    request("POST", "/nodes/{node}/lxc/{vmid}/status/reboot", &["timeout"], "string"),
    request("POST", "/nodes/{node}/qemu/{vmid}/status/reboot", &["timeout"], "string"),
    request(
        "GET",
        "/nodes/{node}/tasks",
        &["errors limit since source start statusfilter typefilter until userfilter vmid"],
        "array",
    ),
    request("GET", "/nodes/{node}/tasks/{upid}/status", &[], "object"),
    request("GET", "/nodes/{node}/tasks/{upid}/log", &["limit start"], "array"),
    request("DELETE", "/nodes/{node}/tasks/{upid}", &[], "null"),
];

const OPTIONS_LXC: &str = "arch cmode console cores cpulimit cpuunits debug delete description \
    digest features hookscript hostname lock memory nameserver net[n] onboot ostype protection \
    revert searchdomain startup swap tags template timezone tty unprivileged";

const OPTIONS_QEMU: &str = "acpi agent balloon bios boot cores cpu cpulimit cpuunits delete \
    description digest force hotplug ipconfig[n] kvm machine memory name nameserver net[n] numa \
    onboot ostype protection revert searchdomain skiplock sockets startup tablet tags template vga";

/// Refuses an option that a guest of this kind does not have.
pub(crate) fn check_option(kind: Kind, name: &str) -> Result<(), Answer> {
    let known = match kind {
        Kind::Lxc => OPTIONS_LXC,
        Kind::Qemu => OPTIONS_QEMU,
    };
    check_name(known.split_whitespace(), name)
}

/// Refuses a parameter that a request does not take.
pub(crate) fn check(call: &Call, parts: &[String]) -> Result<(), Answer> {
    let request = REQUESTS
        .iter()
        .find(|request| request.method == call.method && is_path(request.path, parts));
    let Some(request) = request else {
        let text = format!("Method '{} {}' not implemented", call.method, call.path);
        return Err(Answer::error(501, text));
    };
    call.parameters.keys().try_for_each(|name| check_name(request.parameters(), name))
}

fn check_name<'a>(mut known: impl Iterator<Item = &'a str>, name: &str) -> Result<(), Answer> {
    if known.any(|known| is_called(known, name)) {
        return Ok(());
    }
    let why =
        "property is not defined in schema and the schema does not allow additional properties";
    Err(Answer::parameter(name, why))
}

fn is_path(known: &str, parts: &[String]) -> bool {
    let known: Vec<_> = known.split('/').skip(1).collect();
    let fits = |(known, part): (&&str, &String)| known.starts_with('{') || known == part;
    known.len() == parts.len() && known.iter().zip(parts).all(fits)
}

fn is_called(known: &str, name: &str) -> bool {
    match known.strip_suffix("[n]") {
        None => known == name,
        Some(stem) => {
            name.strip_prefix(stem).is_some_and(|n| n.parse::<u8>().is_ok_and(|n| n < 32))
        }
    }
}
