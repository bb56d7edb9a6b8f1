//! Renders sets of files from templates, inputs and facts: the part between where data lives and a program that reads
//! configuration.
//!
//! ```text
//! Inputs (file, directory, URL, credential) + Facts (host, links, namespaces) + values
//!    ──▶ FileSet::render ──▶ Draft ──finish──▶ RenderedSet { path ─▶ bytes, generation }  or  RenderError with its place
//! ```
//!
//! ```
//! use homeostat_render::{Content, Data, FileSet, Inputs, Secrecy, Value, Verdict};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "{% for server in inputs.servers %}\nserver {{ server | ip }}\n{% endfor %}\n";
//! let template = Content::Text { name: "haproxy.cfg.j2".to_owned(), text: text.to_owned() };
//! let set = FileSet::builder("/etc/homeostat")
//!     .input("servers", Secrecy::Public)
//!     .file("/etc/haproxy/haproxy.cfg", template, Secrecy::Public)
//!     .build()?;
//! let mut inputs = Inputs::default();
//! inputs.add("servers", None);
//! inputs.answer("servers", Ok(Value::from(serde_json::json!(["192.0.2.1", "2001:DB8::1"]))));
//! while let Some(proposal) = inputs.propose() {
//!     let rendered = set.render(&Data { inputs: proposal.values.clone(), ..Data::default() });
//!     let rendered = rendered.map(|draft| draft.finish_unmasked(b"a key of this machine"));
//!     // Here the program that is to read the files checks them.
//!     let reads = rendered.as_ref().map(|rendered| rendered.reads());
//!     inputs.judge(&proposal, reads.map_or_else(|error| error.verdict(), |reads| Verdict::Accepted { reads }))?;
//!     let file = rendered?.files.into_values().next().ok_or("no file")?;
//!     assert_eq!(file.bytes, b"server 192.0.2.1\nserver 2001:db8::1\n");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - **[`FileSet`]** has strict templates in Jinja's language. They reach nothing but the data and templates below their
//!   directory; steps, depth and size are bounded. What a file has read is recorded: it waits for no other input, and only a
//!   secret file may read a secret one.
//! - **[`Inputs`]** says which value of an input is in force. A new one is *pending* until the files that were made of it are
//!   accepted; one that is refused leaves the last good value in force and holds no other input. Accepted values are
//!   [kept](Kept) for the next start.
//! - **[`InputTasks`]** asks each input in a task of its own. A file is not read while it is being written.
//! - **[`FactsWatch`]** follows the facts of this machine by events. Nothing in them ticks.
//! - **[`Shrunk`]** finds files that lose most of their lines.
//!
//! It writes no files but kept values, starts no program and knows no configuration of any program.
//!
//! # What templates have
//!
//! The language is that of [minijinja](https://docs.rs/minijinja), with macros, includes, imports and inheritance. The last
//! newline of a template stays, and lines that have only blocks leave no empty lines. Nothing is escaped.
//!
//! | name | is |
//! |---|---|
//! | `inputs.NAME` | the value of an input: text, a list of lines, or the data in it |
//! | `values` | plain data of the document |
//! | `host` | `name`, `kernel`, `processors`, `memory` (bytes), `machine_id` |
//! | `links.NAME` | `addresses` (with length), `mac`, `mtu`, `up` |
//! | `namespaces` | names of network namespaces |
//! | `generation` | 32 digits that differ if anything in the set does |
//! | `fail(text)` | refuses the data, with a reason |
//! | `ip`, `network` | filters: the address of `192.0.2.1/24`, and its network |
//! | `quote` | a filter: the value in quotes, as the [program](Quoting) reads them |
//! | `sort_by`, `unique_by` | filters: by one attribute or more |
//!
//! `true` and `false` are written as `True` and `False`, as in Jinja; `tojson` writes them as most programs want them.

mod clock;
mod context;
mod error;
mod facts;
mod facts_watch;
mod filters;
mod generation;
mod guard;
mod inputs;
mod kept;
mod origin;
mod reading;
mod render_error;
mod set;
mod sys;
mod tasks;
mod url;
mod value;
mod watch;

pub use context::{Data, Needs};
pub use error::Error;
pub use facts::{Facts, Host, Link};
pub use facts_watch::FactsWatch;
pub use filters::Quoting;
pub use guard::Shrunk;
pub use inputs::{InputState, Inputs, Proposal, Verdict};
pub use kept::Kept;
pub use origin::{Credentials, InputSpec, Origin};
pub use reading::FileReader;
pub use render_error::{RenderCause, RenderError};
pub use set::{Content, Draft, FileSet, FileSetBuilder, RenderedFile, RenderedSet};
pub use tasks::InputTasks;
pub use url::{Url, UrlOrigin};
pub use value::{Form, Secrecy, Value};
