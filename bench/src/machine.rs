//! The machine on which the benchmarks ran.

use std::fs;

use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub processor: String,
    /// How many threads can run at once.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
}

/// Reads `/proc`; a fact that is missing there is `unknown`.
#[must_use]
pub fn read() -> Machine {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Machine {
        processor: known(processor(&text("/proc/cpuinfo"))),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: known(text("/proc/sys/kernel/osrelease").trim()),
    }
}

fn processor(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name.trim())
}

fn known(text: &str) -> String {
    if text.is_empty() { "unknown".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_or_unknown() {
        let text = "processor\t: 0\nmodel name\t: Fast 9000\nflags\t: x\n";
        assert_eq!(processor(text), "Fast 9000");
        assert_eq!(known(processor("Features\t: fp\n")), "unknown");
    }
}
