//! The two text formats in which metrics are read: `OpenMetrics` for those that ask for it, and the format of Prometheus
//! before that for everybody else.

use std::fmt::Write as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Exposition {
    OpenMetrics,
    /// Version 0.0.4, which every scraper reads.
    Classic,
}

impl Exposition {
    /// The format for a client that accepts these kinds of content.
    pub(in crate::daemon) fn for_client(accepted: &[&str]) -> Self {
        let is_open = accepted.iter().any(|kinds| kinds.contains("application/openmetrics-text"));
        if is_open { Exposition::OpenMetrics } else { Exposition::Classic }
    }

    pub(in crate::daemon) fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The same metrics in this format.
    pub(super) fn of(self, open_metrics: String) -> String {
        match self {
            Exposition::OpenMetrics => open_metrics,
            Exposition::Classic => classic(&open_metrics),
        }
    }
}

/// In the classic format, a counter is described under the name that its samples have, and there are no units.
fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let words = help.strip_prefix(name).unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name}{suffix}{words}\n# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_ask_for_openmetrics_gets_the_classic_format() {
        let check =
            |accepted: &[&str], expected| assert_eq!(Exposition::for_client(accepted), expected);
        check(&[], Exposition::Classic);
        check(&["*/*"], Exposition::Classic);
        check(&["text/plain;version=0.0.4"], Exposition::Classic);
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5";
        check(&["x/y", prometheus], Exposition::OpenMetrics);
    }

    #[test]
    fn a_counter_is_described_under_the_name_of_its_samples() {
        let open = "# HELP a Steps.\n# TYPE a counter\na_total{x=\"# y\"} 1\n\
                    # HELP b_seconds Time.\n# TYPE b_seconds histogram\n# UNIT b_seconds seconds\n\
                    b_seconds_sum 1.0\n# EOF\n";
        let expected = "# HELP a_total Steps.\n# TYPE a_total counter\na_total{x=\"# y\"} 1\n\
                        # HELP b_seconds Time.\n# TYPE b_seconds histogram\nb_seconds_sum 1.0\n";
        assert_eq!(classic(open), expected);
        assert_eq!(Exposition::OpenMetrics.of(open.to_owned()), open);
    }
}
