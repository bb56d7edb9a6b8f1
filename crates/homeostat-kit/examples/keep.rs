//! The same API, kept by a loop.

include!("lamps/api.rs");
include!("lamps/keep.rs");
