//! A reader that knows whether it has seen everything once.

use homeostat_core::{Changes, Diff, Failure, Focus, Hint, Holdings, Reader, Rights, Source, View};

use crate::config::Order;
use crate::error::Error;

/// An open reader. Focused looks are refused before the first full one (law 5).
pub struct Observer<S: Source> {
    reader: S::Reader,
    scope: String,
    synced: bool,
}

impl<S: Source> Observer<S> {
    /// Opens the source's reader; `scope` is for error messages.
    pub fn open(source: &S, scope: &str) -> Result<Self, Error> {
        let scope = scope.to_owned();
        match source.reader() {
            Ok(reader) => Ok(Observer { reader, scope, synced: false }),
            Err(failure) => Err(Error::Observe { name: S::NAME, scope, failure }),
        }
    }

    /// The next hint; see [`Reader::hint`].
    pub async fn hint(&mut self) -> Result<Hint<S::Key>, Failure> {
        self.reader.hint().await
    }

    /// Looks at the target and compares it with the wish.
    pub(crate) async fn diff(
        &mut self,
        order: &Order<'_, S>,
        holdings: &Holdings<S::Key, S::Object>,
    ) -> Result<(S::Moment, Changes<S::Key, S::Object>), Error> {
        if !self.synced && order.focus != Focus::All {
            return Err(Error::NotSynced);
        }
        let records = &holdings.records;
        let rights = Rights {
            ownership: order.ownership,
            records,
            adopt: &order.config.adopt,
            on_release: order.config.on_release,
        };
        let mut diff = Diff::new(&*order.wish, &order.focus, rights);
        let view = View { focus: &order.focus, wish: &*order.wish, records };
        let moment = match self.reader.observe(&view, &mut |seen| diff.see(seen)).await {
            Ok(moment) => moment,
            Err(failure) => {
                let scope = self.scope.clone();
                return Err(Error::Observe { name: S::NAME, scope, failure });
            }
        };
        self.synced = true;
        Ok((moment, diff.finish()))
    }
}
