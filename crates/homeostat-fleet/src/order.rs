//! Orders: one signature lets one machine carry out one command, once. Pure: whether an order was used before is for its
//! caller to know, durably, by [`Order::id`].
//!
//! ```text
//! {"format":1,"id":"5f0c…","machine":"r1 sha256:…","owner":"default","actions":["guest-stop"],
//!  "key":"guest 101","plan":"sha256:…","not_after":"2026-03-01T12:00:00Z"}
//! ```

use serde::{Deserialize, Serialize};

use crate::records::Record;
use crate::{AllowedSigners, Digest, Error, Name, Time};

/// What signatures of orders are for: `ssh-keygen -Y sign -n homeostat-command`.
pub const NAMESPACE: &str = "homeostat-command";

/// No order is larger: it is read before it is known who wrote it.
pub const LARGEST: usize = 16 * 1024;

/// An order with its signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedOrder {
    /// The signed bytes, as text.
    pub order: String,
    /// As `ssh-keygen -Y sign` writes them.
    pub signatures: Vec<String>,
}

/// What a command would do, as the machine sees it that would carry it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The one machine that may carry it out.
    pub machine: String,
    /// Whose daemon or state directory it is.
    pub owner: String,
    /// The words by which a document requires orders.
    pub actions: Vec<String>,
    /// The key, or what a plan changes, for those who sign.
    pub key: String,
    /// Of everything that would be done.
    pub plan: Digest,
}

/// What people sign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Never used twice.
    pub id: Name,
    #[serde(flatten)]
    pub command: Command,
    pub not_after: Time,
}

impl Record for Order {
    const NAME: &'static str = "order";
}

/// Why an order is not good for a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too few valid signatures, or not even text that can be judged.
    #[error("the order is not signed as it must be: {0}")]
    Forged(Error),
    /// It is signed, but cannot be understood.
    #[error("the order cannot be read: {0}")]
    Unusable(Error),
    #[error("the order was valid until {not_after}")]
    Expired { not_after: Time },
    #[error("the order is for {what}: it says `{said}`, and this is `{is}`")]
    Foreign { what: &'static str, said: String, is: String },
    #[error("the order is for another plan: what would be done has changed since it was made")]
    OtherPlan,
}

impl Refusal {
    /// The way out.
    #[must_use]
    pub fn help(&self) -> &'static str {
        match self {
            Refusal::Forged(_) => {
                "it needs signatures of keys in the list of allowed signers, over the very bytes of the file: \
                 `ssh-keygen -Y sign -n homeostat-command -f KEY FILE`"
            }
            Refusal::Unusable(_) | Refusal::Expired { .. } | Refusal::Foreign { .. } => {
                "make one for this command on this machine with `homeostat order`, and have it signed"
            }
            Refusal::OtherPlan => {
                "look at what would be done, make a new order with `homeostat order`, and have it signed"
            }
        }
    }
}

/// Whether the order lets this command be carried out now. The id is not judged.
pub fn judge(
    signed: &SignedOrder,
    command: &Command,
    signers: &AllowedSigners,
    needed: usize,
    now: Time,
) -> Result<Order, Refusal> {
    if signed.order.len() > LARGEST {
        let why = format!("it has more than {LARGEST} bytes");
        return Err(Refusal::Forged(Error::Invalid { record: Order::NAME, why }));
    }
    let message = signed.order.as_bytes();
    let approval = signers.verify(message, NAMESPACE, &signed.signatures, needed, Some(now));
    approval.map_err(Refusal::Forged)?;
    let order = Order::read(message).map_err(Refusal::Unusable)?;
    if now > order.not_after {
        return Err(Refusal::Expired { not_after: order.not_after });
    }
    let said = &order.command;
    let (said_actions, actions) = (said.actions.join(", "), command.actions.join(", "));
    for (what, said, is) in [
        ("another machine", &said.machine, &command.machine),
        ("another owner", &said.owner, &command.owner),
        ("another command", &said_actions, &actions),
        ("something else", &said.key, &command.key),
    ] {
        if said != is {
            return Err(Refusal::Foreign { what, said: said.clone(), is: is.clone() });
        }
    }
    if order.command.plan != command.plan {
        return Err(Refusal::OtherPlan);
    }
    Ok(order)
}
