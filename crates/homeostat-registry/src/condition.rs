//! How documents write checks, and what is there only while one of them is good.

use std::time::Duration;

use homeostat_document::{Diagnostic, Fields, Number, Period, Record, Spanned, Text, ValueError};
use homeostat_engine::{Check, Condition};

/// A check as a document writes it: `"tcp:192.0.2.1:22"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCheck(pub Check);

impl Text for DeclaredCheck {
    const WHAT: &'static str = "a check";

    fn from_text(text: &str) -> Result<Self, ValueError> {
        let check = text.parse().map(DeclaredCheck);
        check.map_err(|error| ValueError::new(error.to_string()).help(Check::KINDS))
    }
}

/// The value of `while`: `{ check = "tcp:127.0.0.1:53", every = "1s", fall = 3, rise = 2 }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCondition(pub Condition);

const ROW: Number<u32> = Number { what: "a number of results in a row", least: 1, most: 1000 };
/// More often, a check would be most of what a machine does.
const OFTENEST: Duration = Duration::from_millis(100);
/// More rarely, `fall` of them would take longer than anybody waits.
const RAREST: Duration = Duration::from_hours(1);

homeostat_document::record!(DeclaredCondition);

impl Record for DeclaredCondition {
    const NAME: &'static str = "while";
    const DOC: &'static str = "There only while a check is good";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let check: Option<DeclaredCheck> = fields.required(
            "check",
            "What must work: ping:ADDRESS, tcp:ADDRESS:PORT, http://ADDRESS:PORT/PATH or `cmd:/PATH ARGUMENTS`",
        );
        let every: Option<Spanned<Period>> =
            fields.optional("every", "How often it is checked; \"1s\" if left out");
        let fall =
            fields.number("fall", "After how many failures in a row it goes; 3 if left out", ROW);
        let rise =
            fields.number("rise", "After how many successes in a row it comes; 2 if left out", ROW);
        let is_out_of_range = |every: &Spanned<Period>| !(OFTENEST..=RAREST).contains(&every.get());
        if let Some(every) = every.filter(is_out_of_range) {
            let message = format!("`{}` is no time between two checks", every.value);
            let help = "write a time from \"100ms\" to \"1h\"";
            fields.report(Diagnostic::new(every.span, message).help(help));
        }
        let mut condition = Condition::new(check?.0);
        if let Some(every) = every {
            condition.every = every.get();
        }
        condition.fall = fall.unwrap_or(condition.fall);
        condition.rise = rise.unwrap_or(condition.rise);
        Some(DeclaredCondition(condition))
    }
}
