//! Whether a guest is already as a command wants it, where nobody knows what became of the last try.

use homeostat_core::Failure;

use crate::apply::Writer;
use crate::command::Verb;
use crate::model::{Kind, Run, Vmid};

impl Writer {
    /// Looks at a guest on its node.
    pub async fn is_as_asked(
        &self,
        (vmid, node): (Vmid, &str),
        verb: Verb,
    ) -> Result<bool, Failure> {
        let wanted = match verb {
            Verb::Start => Run::Running,
            Verb::Stop | Verb::Shutdown => Run::Stopped,
        };
        for kind in [Kind::Lxc, Kind::Qemu] {
            let listed = self.source.client.guests(node, kind).await;
            let listed = listed.map_err(|error| error.failure())?;
            if let Some(guest) = listed.get(&vmid) {
                return Ok(guest.run == Some(wanted));
            }
        }
        Ok(false)
    }
}
