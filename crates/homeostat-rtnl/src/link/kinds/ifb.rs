//! A link for shaping what comes in. It has no options.

use crate::link::kinds::behaviour::{Behaviour, OwnMac};

/// Quirk `ifb-mac-fixed` (Linux 6.18): an ifb gets its hardware address when it is made.
pub(crate) const BEHAVIOUR: Behaviour = Behaviour { mac: OwnMac::Fixed, ..Behaviour::PLAIN };
