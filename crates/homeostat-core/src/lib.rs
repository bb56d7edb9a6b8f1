//! The contract between homeostat and everything it keeps converged, and the pure steps of a pass.
//!
//! Nothing here reads a clock, opens a file, starts a task or writes a log line. A *source* is one
//! subsystem in one scope: it can be observed, planned for, applied to, and it may send hints. The
//! difference between the desired state and what was observed is computed here, once, for all sources.
//!
//! # The laws
//! 1. `observe` never writes. It names everything in its focus, each object present or *unknown*
//!    (single fields may be unknown too), or it fails; what was not named is absent. Unknown never
//!    causes a write to that object or field, least of all a delete.
//! 2. Objects are normalized, and normalizing is idempotent; what was written reads back equal, or
//!    is recorded as settled.
//! 3. `diff` and `plan` are pure. Same input, same plan, same order. A key seen twice in the target
//!    is a conflict.
//! 4. `apply` is the only writer, and a writer is opened only with the scope's lock. It touches what
//!    its steps name, never a foreign object, and answers for every step. Objects that the target deletes along
//!    with a step are named in the plan, and the step is held if one of them is foreign.
//! 5. Nothing is deleted unless it is owned and was seen in this pass. No write before the first
//!    full observe.
//! 6. A pass after a converged pass writes nothing: not to the target, not to the disk.
//! 7. Hints may be lost, duplicated, reordered or wrong: the end state is the same.
//! 8. Where the target cannot hold a mark, the intent is durable before the write.
//! 9. A source says how its steps fail ([`Fails`]); strict mode stops at the first failure.
//! 10. Observe and hint are one reader: the subscription is open before the first observe begins. A
//!     source says how much its hints cover ([`Coverage`]).
//!
//! # The flow
//! [`Diff`] takes the desired state and what the reader saw, and ends in [`Changes`]; [`Plan::new`] asks the
//! source for its steps; [`Schedule`] says which steps may run; [`Report`] has the outcomes of
//! them. Start at [`Source`].

#![warn(missing_docs)]

mod bits;
pub mod change;
pub mod change_list;
pub mod check;
pub mod desired;
pub mod diff;
pub mod explain;
pub mod finding;
pub mod health;
pub mod lanes;
pub mod last_applied;
pub mod operation;
pub mod outcome;
pub mod ownership;
pub mod pacing;
pub mod plan;
pub mod report;
pub mod reversibility;
pub mod schedule;
pub mod seen;
pub mod series;
pub mod source;
pub mod standing;
pub mod text;
pub mod waits_on;

pub use change::{Change, Changes, Reason, TakenOver};
pub use change_list::ChangeList;
pub use check::{Check, CheckError};
pub use desired::{Agreement, Desired, DuplicateKey, FoundKeys, Slot, Table};
pub use diff::{Diff, OnRelease, Rights};
pub use explain::{Action, Cause, Entry, Explain, Line, PassTrouble, Sampler, Summary};
pub use finding::{Finding, HeldBy, Kind, WaysOut};
pub use health::{Condition, Health};
pub use lanes::{Job, Lanes, Limits, Start, Ticket};
pub use last_applied::{Fingerprint, LastApplied};
pub use operation::{LaneConsumer, TaskResult};
pub use outcome::{Begun, Dispatch, Failure, Outcome, Outcomes, Recovery, Retry, TaskEnd};
pub use ownership::{
    BrokenRecord, BrokenRecords, Exclusive, Holdings, NamePrefix, Original, Ownership,
    PrefixRefused, Prefixes, Record, Records, Snapshot, Stage,
};
pub use plan::{Draft, Plan, Step, Taken};
pub use report::{Report, Tally};
pub use reversibility::{Parking, Reversibility, StepKind, Taking, Undo};
pub use schedule::{Batch, Schedule, Strictness};
pub use seen::{Focus, Hint, HintedKeys, Owner, See, Seen, most_keys};
pub use series::{Covers, PassReport, PassSeries, SharedReport};
pub use source::{
    Coverage, Excludes, Fails, Key, Object, Phase, Reader, ScopeLock, Source, Tasks, View, Work,
    Writer,
};
pub use standing::{Standing, Standings};
pub use waits_on::WaitsOn;
