//! Whether a node may take what its want says. Pure: the store is believed in nothing, only signatures are.
//!
//! A want points to a statement. The statement is judged by the bytes that were signed, the want by the statement's tree,
//! and both by what the node has accepted before. Who can write to the store can at most keep a node where it is.

use crate::merkle::{self, Class, Leaf};
use crate::records::{Accepted, LARGEST_STATEMENT, SignedStatement, Statement, Take, Want};
use crate::{AllowedSigners, Digest, Error, Name, Time};

/// What signatures of rollouts are for: `ssh-keygen -Y sign -n homeostat-rollout`.
pub const NAMESPACE: &str = "homeostat-rollout";

/// What a node knows by itself.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    pub fleet: &'a Name,
    pub name: &'a Name,
    pub signers: &'a AllowedSigners,
    /// How many distinct keys must have signed; at least one.
    pub needed: usize,
    /// What was accepted last, from durable storage.
    pub accepted: Option<&'a Accepted>,
    /// None if the clock is not synchronized: what depends on it is not judged then, and a warning says so.
    pub now: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub verdict: Verdict,
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Record `accepted` durably, then apply the document in a trial.
    Accept {
        accepted: Accepted,
        class: Class,
        statement: Box<Statement>,
    },
    /// This was accepted before. It is not tried again.
    Current,
    /// The statement asks for a plan of this document only.
    Plan {
        document: Digest,
        class: Class,
        statement: Box<Statement>,
    },
    Refused(Refusal),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Too few valid signatures, or not even text that can be judged.
    #[error("the statement is not signed as it must be: {0}")]
    Forged(Error),
    /// It is signed, but cannot be understood or followed.
    #[error("the statement cannot be followed: {0}")]
    Unusable(Error),
    #[error("the statement is for the fleet `{fleet}`")]
    ForeignFleet { fleet: Name },
    #[error("the want is for rollout `{wanted}`, the statement says `{stated}`")]
    OtherRollout { wanted: Name, stated: Name },
    #[error("the want has generation {wanted}, the statement {stated}")]
    OtherGeneration { wanted: u64, stated: u64 },
    #[error("generation {wanted} is older than {accepted}, which was accepted before")]
    Older { wanted: u64, accepted: u64 },
    #[error("generation {generation} was accepted with another document")]
    Twin { generation: u64 },
    #[error("the statement was valid until {not_after}")]
    Expired { not_after: Time },
    #[error("the statement does not have this document for this node")]
    NotInTree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    #[error("the clock is not synchronized, so the end of the statement was not judged")]
    StatementTime,
    #[error("the clock is not synchronized, so the validity of a key was not judged")]
    KeyTime,
}

/// Judges a want by the stored statement that it names.
#[must_use]
pub fn judge(node: &Node, signed: &SignedStatement, want: &Want) -> Judgement {
    let mut warnings = Vec::new();
    let verdict = verdict(node, signed, want, &mut warnings).unwrap_or_else(Verdict::Refused);
    Judgement { verdict, warnings }
}

fn verdict(
    node: &Node,
    signed: &SignedStatement,
    want: &Want,
    warnings: &mut Vec<Warning>,
) -> Result<Verdict, Refusal> {
    let statement = verify(node, signed, warnings)?;
    if statement.fleet != *node.fleet {
        return Err(Refusal::ForeignFleet { fleet: statement.fleet });
    }
    if statement.id != want.rollout {
        return Err(Refusal::OtherRollout { wanted: want.rollout.clone(), stated: statement.id });
    }
    if statement.generation != want.generation {
        let (wanted, stated) = (want.generation, statement.generation);
        return Err(Refusal::OtherGeneration { wanted, stated });
    }
    let leaf = Leaf {
        node: node.name.clone(),
        document: want.document,
        fallback: want.fallback,
        class: want.class,
    };
    let is_leaf = |proof: &[Digest]| {
        merkle::verify(&statement.root, statement.nodes, want.index, &leaf.hash(), proof)
    };
    if !is_leaf(&want.proof) {
        return Err(Refusal::NotInTree);
    }
    let document = match want.take {
        Take::Document => want.document,
        Take::Fallback => want.fallback,
    };
    let wanted = Accepted { generation: want.generation, take: want.take, document };
    if let Some(accepted) = node.accepted {
        if wanted == *accepted {
            return Ok(Verdict::Current);
        }
        if wanted.rank() == accepted.rank() {
            return Err(Refusal::Twin { generation: want.generation });
        }
        if wanted.rank() < accepted.rank() {
            let (wanted, accepted) = (want.generation, accepted.generation);
            return Err(Refusal::Older { wanted, accepted });
        }
    }
    match node.now {
        _ if is_way_back(node, want) => {}
        Some(now) if now > statement.not_after => {
            return Err(Refusal::Expired { not_after: statement.not_after });
        }
        Some(_) => {}
        None => warnings.push(Warning::StatementTime),
    }
    let class = want.class;
    Ok(if statement.plan {
        Verdict::Plan { document, class, statement: Box::new(statement) }
    } else {
        Verdict::Accept { accepted: wanted, class, statement: Box::new(statement) }
    })
}

/// The statement, if enough keys have signed its bytes.
fn verify(
    node: &Node,
    signed: &SignedStatement,
    warnings: &mut Vec<Warning>,
) -> Result<Statement, Refusal> {
    if signed.statement.len() > LARGEST_STATEMENT {
        let why = format!("it has more than {LARGEST_STATEMENT} bytes");
        return Err(Refusal::Forged(Error::Invalid { record: "statement", why }));
    }
    let message = signed.statement.as_bytes();
    let Node { signers, needed, now, .. } = *node;
    let approval = signers.verify(message, NAMESPACE, &signed.signatures, needed, now);
    if approval.map_err(Refusal::Forged)?.without_time {
        warnings.push(Warning::KeyTime);
    }
    Statement::parse(&signed.statement).map_err(Refusal::Unusable)
}

/// A node that took the document may go to its fallback at any time: a rollback needs no new signature. To any other node
/// the fallback is a document like others.
fn is_way_back(node: &Node, want: &Want) -> bool {
    let took = |accepted: &Accepted| accepted.generation == want.generation;
    want.take == Take::Fallback && node.accepted.is_some_and(took)
}
