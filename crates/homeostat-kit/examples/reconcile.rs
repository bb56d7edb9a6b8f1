//! The program of the front page: an API, and one call.

include!("lamps/api.rs");
include!("lamps/reconcile.rs");
