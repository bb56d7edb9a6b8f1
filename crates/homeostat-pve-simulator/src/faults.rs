//! Faults that a test injects into requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::call::Call;
use crate::world::World;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Harm {
    /// It does not arrive.
    DropRequest,
    /// It is processed, and the answer does not arrive.
    DropResponse,
    /// It is refused with this status and text, and not processed.
    Refuse(u16, String),
    /// It is processed twice, as if a proxy had sent it again. The second answer counts.
    Twice,
    /// It is answered with this status and this body, and not processed.
    Answer(u16, Arc<str>),
    /// It is redirected to this address.
    Redirect(String),
    /// It is processed, but a proxy answers with this status and text instead.
    Mask(u16, String),
    /// It is answered, and the server closes the connection after the answer.
    HangUp,
    /// Another client changes the world just before it is processed.
    ChangeBefore(fn(&mut World)),
    /// It is processed after this delay.
    Slow(Duration),
    /// It is processed after this delay, even if the client has closed the connection: as an overloaded server does.
    BeginLater(Duration),
    /// It is processed after [`World::mend`].
    Hold,
    /// It is processed at once, and answered after this delay.
    Late(Duration),
}

/// A fault: to which requests it applies, and how often.
#[derive(Clone, Debug)]
pub struct Fault {
    method: Option<String>,
    path: String,
    parameter: Option<(String, String)>,
    harm: Harm,
    /// How many requests are skipped before the next one that it applies to.
    skips: u32,
    /// How many are skipped between two that it applies to.
    every: u32,
    left: Option<u32>,
    until: Option<Instant>,
}

impl Fault {
    /// Applies to every request whose path contains `path`.
    pub fn on(path: impl Into<String>, harm: Harm) -> Self {
        let (path, method, parameter) = (path.into(), None, None);
        Fault { method, path, parameter, harm, skips: 0, every: 0, left: None, until: None }
    }

    /// Only requests of this method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only requests with this parameter.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameter = Some((name.to_owned(), value.to_owned()));
        self
    }

    /// At most this many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }

    /// Only before this moment.
    #[must_use]
    pub fn until(mut self, moment: Instant) -> Self {
        self.until = Some(moment);
        self
    }

    /// Skips this many requests first.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Self {
        self.skips = requests;
        self
    }

    /// Skips this many requests between two that it applies to.
    #[must_use]
    pub fn flapping(mut self, between: u32) -> Self {
        self.every = between;
        self
    }

    /// Whether it applies to no further request.
    pub(crate) fn is_over(&self) -> bool {
        self.left == Some(0) || self.until.is_some_and(|until| until <= Instant::now())
    }

    /// What happens to this request, if the fault applies to it.
    pub(crate) fn apply(&mut self, call: &Call) -> Option<Harm> {
        let asks = |(name, value): &(String, String)| call.parameter(name) == Some(value.as_str());
        let matches = self.method.as_ref().is_none_or(|method| *method == call.method)
            && self.parameter.as_ref().is_none_or(asks)
            && call.path.contains(&self.path);
        if !matches || self.is_over() {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        self.skips = self.every;
        self.left = self.left.map(|left| left - 1);
        Some(self.harm.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_applies_until_its_end_and_a_limited_number_of_times() {
        let call = Call {
            method: "GET".to_owned(),
            path: "/nodes".to_owned(),
            parameters: [].into(),
            authorization: None,
        };
        let mut twice = Fault::on("/nodes", Harm::DropRequest).times(2);
        let applied: Vec<_> = (0..3).map(|_| twice.apply(&call).is_some()).collect();
        assert_eq!(applied, [true, true, false]);
        let minute = Duration::from_mins(1);
        let mut brief = Fault::on("/nodes", Harm::DropRequest).until(Instant::now() + minute);
        assert!(brief.apply(&call).is_some());
        tokio::time::advance(minute).await;
        assert!(brief.apply(&call).is_none());
    }
}
