//! What goes wrong on demand.

use std::time::Duration;

use tokio::time::Instant;

use crate::call::Call;
use crate::world::World;

/// What happens to a request.
#[derive(Clone, Debug)]
pub enum Harm {
    /// It never arrives.
    DropRequest,
    /// It does its work, and the answer never arrives.
    DropResponse,
    /// It is refused with this status and these words, and does nothing.
    Refuse(u16, String),
    /// It is sent elsewhere, to this address.
    Redirect(String),
    /// It does its work, and a proxy on the way answers instead.
    Mask(u16, String),
    /// It is answered, and the server hangs up behind the answer.
    HangUp,
    /// Just before it, somebody else does something.
    Meddle(fn(&mut World)),
    /// It takes this much longer.
    Slow(Duration),
    /// It goes on when everything is mended.
    Hold,
    /// It does its work at once, and the answer comes this much later.
    Late(Duration),
}

/// A fault: which requests meet it, and how often.
#[derive(Clone, Debug)]
pub struct Fault {
    method: Option<String>,
    path: String,
    harm: Harm,
    /// Requests that pass before the first meets it, and between two that do.
    spared: u32,
    every: u32,
    left: Option<u32>,
    until: Option<Instant>,
}

impl Fault {
    /// Meets every request whose path has this in it.
    pub fn on(path: impl Into<String>, harm: Harm) -> Self {
        let path = path.into();
        Fault { method: None, path, harm, spared: 0, every: 0, left: None, until: None }
    }

    /// Only requests of this method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only so many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }

    /// Only until this moment.
    #[must_use]
    pub fn until(mut self, moment: Instant) -> Self {
        self.until = Some(moment);
        self
    }

    /// Spares so many requests first.
    #[must_use]
    pub fn after(mut self, requests: u32) -> Self {
        self.spared = requests;
        self
    }

    /// Flaps: between two requests that meet it, so many do not.
    #[must_use]
    pub fn flapping(mut self, between: u32) -> Self {
        self.every = between;
        self
    }

    /// Whether no request will meet it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.left == Some(0) || self.until.is_some_and(|until| until <= Instant::now())
    }

    /// What happens to a request, if it meets the fault.
    pub(crate) fn meet(&mut self, call: &Call) -> Option<Harm> {
        let is_meant = self.method.as_ref().is_none_or(|method| *method == call.method)
            && call.path.contains(&self.path);
        if !is_meant || self.is_over() {
            return None;
        }
        if self.spared > 0 {
            self.spared -= 1;
            return None;
        }
        self.spared = self.every;
        self.left = self.left.map(|left| left - 1);
        Some(self.harm.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_met_until_its_end_and_so_often() {
        let call = Call {
            method: "GET".to_owned(),
            path: "/nodes".to_owned(),
            parameters: [].into(),
            authorization: None,
        };
        let mut twice = Fault::on("/nodes", Harm::DropRequest).times(2);
        let met: Vec<_> = (0..3).map(|_| twice.meet(&call).is_some()).collect();
        assert_eq!(met, [true, true, false]);
        let minute = Duration::from_mins(1);
        let mut brief = Fault::on("/nodes", Harm::DropRequest).until(Instant::now() + minute);
        assert!(brief.meet(&call).is_some());
        tokio::time::advance(minute).await;
        assert!(brief.meet(&call).is_none());
    }
}
