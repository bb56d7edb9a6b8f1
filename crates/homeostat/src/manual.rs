//! The manual: a page for each command, one for the document, and an overview. `homeostat man` prints them, and packages
//! have them as files.
//!
//! Start at [`pages`].

mod fields;
mod prose;

use clap::CommandFactory as _;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use self::fields::{Field, Piece};
use crate::cli::Cli;
use crate::registry;

/// What `homeostat.toml(5)` says before and after the fields.
const DOCUMENT: &str = include_str!("manual/homeostat.toml.5.md");
const DOCUMENT_END: &str = include_str!("manual/homeostat.toml.5.end.md");
const OVERVIEW: &str = include_str!("manual/homeostat.7.md");

const SOURCE: &str = concat!("homeostat ", env!("CARGO_PKG_VERSION"));

/// One manual page.
pub(crate) struct Page {
    name: String,
    section: u8,
    /// In roff.
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    /// Whether a person who asks for these words means this page.
    pub(crate) fn is_called(&self, words: &[String]) -> bool {
        let name = words.join("-");
        match self.section {
            1 if self.name == "homeostat" => name.is_empty() || name == self.file_name(),
            1 => self.name.strip_prefix("homeostat-") == Some(&name) || name == self.file_name(),
            5 => name == self.name || name == self.file_name(),
            _ => name == self.file_name(),
        }
    }
}

/// All pages; that of the program itself is the first.
pub(crate) fn pages() -> std::io::Result<Vec<Page>> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_commands(&command, &mut pages)?;
    pages.push(document());
    pages.push(overview());
    Ok(pages)
}

fn add_commands(command: &clap::Command, to: &mut Vec<Page>) -> std::io::Result<()> {
    to.push(command_page(command)?);
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    shown.into_iter().try_for_each(|one| add_commands(one, to))
}

fn command_page(command: &clap::Command) -> std::io::Result<Page> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let is_root = name == "homeostat";
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    // Global options are described once, on the page of the program.
    let own = command.clone().override_usage(usage).after_help(None::<&str>).mut_args(|argument| {
        let is_hidden = argument.is_hide_set() || (argument.is_global_set() && !is_root);
        argument.hide(is_hidden)
    });
    let mut text = Vec::new();
    Man::new(own).title(&*name).source(SOURCE).manual("homeostat").render(&mut text)?;
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let mut end = Roff::new();
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (notes, exit) = after.split_once("Exit: ").unwrap_or((&after, ""));
    for (heading, words) in [("NOTES", notes), ("EXIT STATUS", exit)] {
        if !words.trim().is_empty() {
            end.control("SH", [heading]).text(prose::inlines(words.trim()));
        }
    }
    if !is_root {
        end.control("SH", ["GLOBAL OPTIONS"]);
        end.text(prose::inlines("Options of all commands are described in `homeostat`(1)."));
    }
    end.control("SH", ["SEE ALSO"]);
    end.text(prose::inlines("`homeostat`(1), `homeostat.toml`(5), `homeostat`(7)"));
    text.push_str(&end.to_roff());
    Ok(Page { name, section: 1, text })
}

/// The page about documents: every field that the schema has.
fn document() -> Page {
    let mut roff = Roff::new();
    roff.control("TH", ["homeostat.toml", "5", "", SOURCE, "homeostat"]);
    prose::add(DOCUMENT, &mut roff);
    for (at, table) in fields::tables(&registry::READER.schema()).iter().enumerate() {
        let heading = if at == 0 { "THE DOCUMENT".to_owned() } else { table.name.to_uppercase() };
        roff.control("SH", [&*heading]);
        roff.text(prose::inlines(&format!("{}.", table.about)));
        for field in &table.fields {
            add_field(field, &mut roff);
        }
    }
    prose::add(DOCUMENT_END, &mut roff);
    Page { name: "homeostat.toml".to_owned(), section: 5, text: roff.render() }
}

fn add_field(field: &Field, to: &mut Roff) {
    let Field { name, value, about, is_required } = field;
    to.control("TP", []);
    let mut head = vec![bold(name), roman(" = ")];
    head.extend(value.iter().map(|piece| match piece {
        Piece::Text(text) => roman(text),
        Piece::Table(name) => italic(name),
    }));
    if *is_required {
        head.push(roman(" (required)"));
    }
    to.text(head).text(prose::inlines(about));
}

fn overview() -> Page {
    let mut roff = Roff::new();
    roff.control("TH", ["homeostat", "7", "", SOURCE, "homeostat"]);
    prose::add(OVERVIEW, &mut roff);
    Page { name: "homeostat".to_owned(), section: 7, text: roff.render() }
}

#[cfg(test)]
mod tests;
