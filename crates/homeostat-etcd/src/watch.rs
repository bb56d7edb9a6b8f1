//! A watch, which says when it cannot go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use homeostat_core::outcome::Later;
use homeostat_core::{Failure, Retry};
use homeostat_store::{Entry, Keys, Revision, StoreWatch, WatchEvent};

use crate::client::{named, range, revision, signed};
use crate::connection::{CallError, Connection, Streaming};
use crate::messages::{
    Event, EventType, RangeRequest, RangeResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};

pub(crate) struct EtcdWatch {
    stream: Streaming,
    /// What was received and not yet returned.
    waiting: VecDeque<WatchEvent<String, Entry>>,
    /// Fragments of an answer whose last one has not come: the changes of one transaction are returned together.
    partial: Vec<Event>,
    after: Revision,
    /// The newest revision that the store was seen to have.
    newest: Revision,
}

impl EtcdWatch {
    pub(crate) async fn open(
        connection: &Arc<Connection>,
        keys: &Keys,
        after: Revision,
        deadline: Duration,
    ) -> Result<Self, CallError> {
        let (key, range_end) = range(keys);
        let newest =
            RangeRequest { key: key.clone(), range_end: Vec::new(), limit: 1, revision: 0 };
        let request = WatchCreateRequest {
            key,
            range_end,
            start_revision: signed(after.saturating_add(1)),
            progress_notify: true,
            fragment: true,
        };
        let request = WatchRequest { create_request: Some(request) };
        let stream = connection.stream("/etcdserverpb.Watch/Watch", &request).await?;
        let mut watch = EtcdWatch {
            stream,
            waiting: VecDeque::new(),
            partial: Vec::new(),
            after,
            newest: after,
        };
        let created: WatchResponse = watch.stream.next().await?;
        if !created.canceled && revision(created.header.as_ref()) < after {
            // A follower may lag behind what another member has answered. It answers a linearizable read once it has
            // caught up, so that only a store that was set back is still behind then.
            let answer: RangeResponse =
                connection.call("/etcdserverpb.KV/Range", &newest, deadline).await?;
            if revision(answer.header.as_ref()) >= after {
                return Ok(watch);
            }
        }
        watch.take(created)?;
        Ok(watch)
    }

    fn take(&mut self, response: WatchResponse) -> Result<(), CallError> {
        if response.canceled {
            if response.compact_revision == 0 {
                let why = format!("{}: {}", self.stream.member(), response.cancel_reason);
                return Err(CallError::NoAnswer { why });
            }
            self.waiting.push_back(WatchEvent::Compacted);
            return Ok(());
        }
        // Quirk `restored-store` (etcd 3.4 to 3.6): after the restore of an older backup a watch of what lies in the
        // store's future is accepted and silent until that revision is reached again. The answer's own revision tells.
        let store = revision(response.header.as_ref());
        if store < self.newest {
            self.waiting.push_back(WatchEvent::Regressed);
            return Ok(());
        }
        self.newest = store;
        self.partial.extend(response.events);
        if response.fragment {
            return Ok(());
        }
        let events = std::mem::take(&mut self.partial);
        if events.is_empty() && !response.created {
            self.waiting.push_back(WatchEvent::Progress { revision: store });
        }
        let after = self.after;
        // Quirk `future-watch` (before etcd 3.4.38, 3.5.22, 3.6.2): a watch of a future revision sends older events.
        let changes = events.into_iter().filter_map(change);
        self.waiting.extend(changes.filter(
            |event| !matches!(event, WatchEvent::Changed { revision, .. } if *revision <= after),
        ));
        Ok(())
    }
}

fn change(event: Event) -> Option<WatchEvent<String, Entry>> {
    let is_deleted = event.kind == i32::from(EventType::Delete);
    let (key, entry) = named(event.kv?);
    let revision = entry.modified;
    Some(WatchEvent::Changed { revision, key, value: Some(entry).filter(|_| !is_deleted) })
}

impl StoreWatch<String, Entry> for EtcdWatch {
    fn next(&mut self) -> Later<'_, Result<WatchEvent<String, Entry>, Failure>> {
        Box::pin(async {
            loop {
                if let Some(event) = self.waiting.pop_front() {
                    return Ok(event);
                }
                let response = self.stream.next().await;
                response.and_then(|response| self.take(response)).map_err(failure)?;
            }
        })
    }
}

fn failure(error: CallError) -> Failure {
    let why = match error {
        CallError::NotSent { why } | CallError::NoAnswer { why } => why,
        CallError::Status { message, .. } => message,
    };
    Failure::new(format!("the watch of the store has ended: {why}"), Retry::Soon)
}
