//! The options of `homeostat fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use homeostat_document::Period;
use homeostat_etcd::Endpoint;
use homeostat_fleet::merkle::Class;
use homeostat_fleet::records::Wave;
use homeostat_fleet::{Name, Time};

use crate::cli::LogForm;

#[derive(Args, Debug)]
pub(crate) struct FleetArgs {
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: FleetCommand,
}

/// How the store is reached. Each option has an environment variable, and a line in the configuration file.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArgs {
    /// The members of etcd: `HOST`, `HOST:PORT` or `[IPV6]:PORT`, separated by commas [env: `HOMEOSTAT_FLEET_ENDPOINTS`]
    #[arg(long, global = true, value_name = "MEMBERS", value_delimiter = ',')]
    pub(super) endpoints: Vec<Endpoint>,
    /// The name of the fleet [env: `HOMEOSTAT_FLEET`]
    #[arg(long, global = true, value_name = "NAME")]
    pub(super) fleet: Option<Name>,
    /// The authority that signed the certificates of the members [env: `HOMEOSTAT_FLEET_CA`]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Our own certificate [env: `HOMEOSTAT_FLEET_CERTIFICATE`]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) certificate: Option<PathBuf>,
    /// The key of our own certificate [env: `HOMEOSTAT_FLEET_KEY`]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// A file with these options: endpoints, fleet, ca, certificate, key, signing-key, allowed-signers,
    /// signatures [env: `HOMEOSTAT_FLEET_CONFIG`] [default: ~/.config/homeostat/fleet.toml, then
    /// /etc/homeostat/fleet.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Lead rollouts, or stand by while another coordinator leads
    #[command(
        after_help = "Run it on two or three management hosts. One of them leads; if it ends, another one \
                            leads after the time to live of its lease. All state is in the store. Stops on SIGTERM \
                            and SIGINT, and lets another one lead at once."
    )]
    Coordinate(CoordinateArgs),
    /// Show the rollout, and every node that is not as it should be
    #[command(after_help = "Exit: 0 every node is good, 2 some node is not, 1 error.")]
    Status(StatusArgs),
    /// Ask every node what a signed rollout would do there, and group equal plans; apply nothing
    #[command(
        after_help = "Exit: 0 every node has answered with a plan, 2 some node refused or is silent, 1 error."
    )]
    Plan(PlanArgs),
    /// Start a signed rollout: upload chunks, documents, leaves and the statement, in this order
    #[command(
        after_help = "Nodes apply nothing that is not signed by a key that they allow. With --wait: exit 0 done, \
                            2 stopped, paused or superseded, 1 error."
    )]
    Start(StartArgs),
    /// Assign nothing more until `resume`; nodes that have the document finish their trials
    Pause(RolloutArgs),
    /// Go on; if most of a wave is absent, go on without these nodes
    Resume(RolloutArgs),
    /// Stop the rollout, and send every touched node back to its last good document
    #[command(
        after_help = "A rollout that is done can be aborted, too. No new signature is needed: the statement has \
                            the documents to fall back to."
    )]
    Abort(RolloutArgs),
    /// Follow a rollout until it ends or is paused
    #[command(after_help = "Exit: 0 done, 2 stopped, paused or superseded, 1 error.")]
    Wait(WaitArgs),
    /// List all rollouts, the newest first
    History,
    /// Render one document for each node, and sign all of them with one signature
    #[command(after_help = "\
Files of DIR are copied to every node, but those whose names end in `.node.j2` are templates: they are rendered for each \
node, without this ending. Templates have `values.NAME` (the values of all nodes, of the node's groups and of the node, \
later ones first), `node.name`, `node.groups`, `node.labels`, `node.ring` and `fleet`. A file that is rendered to nothing \
is left out. Names that begin with `_` are for includes, and are not copied; hidden files are not, either.

Nodes come in the order of their rings, then of their names. A wave says how many nodes are reached with it, as a \
number or a percentage.

The bundle has the documents as they will be applied, `statement.json`, and its signatures. For a second signature: \
`homeostat fleet sign --add BUNDLE --signing-key KEY`, or put a file `*.sig` into the bundle, made by `ssh-keygen -Y sign \
-n homeostat-rollout`.")]
    Sign(Box<SignArgs>),
    /// List the nodes in the store with their groups and labels; with a file, check it or write it to the store
    Inventory(InventoryArgs),
    /// Make what a new node needs: key, certificate request, role in etcd
    Enroll(EnrollArgs),
    /// Take a node out of the fleet
    Retire(RetireArgs),
    /// Delete old rollouts, and the documents that nobody needs any more
    #[command(
        after_help = "Kept are the newest rollouts, those that are not over, those of which a node wants something, and \
                            all documents that these, the nodes' statuses and requests for plans name. It may run while \
                            others start rollouts: then it ends, and the rest is for the next time. etcd gives the \
                            room back after compaction and `etcdctl defrag`."
    )]
    Prune(PruneArgs),
    /// Run a tour in a sandbox: etcd, a coordinator, ten nodes, a good rollout and a bad one; does not touch the host
    #[command(
        after_help = "It ends by itself within a minute, and needs etcd (Debian: etcd-server) and ssh-keygen. \
                            Exit: 0 everything went as it should, 1 not, or error."
    )]
    Demo,
}

#[derive(Args, Debug)]
pub(crate) struct CoordinateArgs {
    /// What others call this coordinator [default: the name of the host]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<Name>,
    /// How long another coordinator waits when this one dies
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(super) lease: Period,
    /// The time to live of the leases of nodes: a node is lost when it is absent for twice this time
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub(super) node_lease: Period,
    /// Follow only statements that keys of this file have signed [default: `allowed-signers` of the configuration file]
    #[arg(long, value_name = "FILE")]
    pub(super) allowed_signers: Option<PathBuf>,
    /// So many distinct keys must have signed [default: `signatures` of the configuration file, or 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) signatures: Option<u16>,
    /// Format of the log
    #[arg(long, value_name = "FORM", value_enum, default_value = "text")]
    pub(super) log: LogForm,
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// List good nodes, too
    #[arg(long)]
    pub(super) all: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// What `fleet sign` has written
    #[arg(value_name = "BUNDLE")]
    pub(super) bundle: PathBuf,
    /// How long to wait for answers
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(super) timeout: Period,
}

#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    /// What `fleet sign` has written
    #[arg(value_name = "BUNDLE")]
    pub(super) bundle: PathBuf,
    /// Follow it until it ends
    #[arg(long)]
    pub(super) wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RolloutArgs {
    /// Which rollout [default: the newest]
    #[arg(value_name = "ID")]
    pub(super) id: Option<Name>,
}

#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(super) rollout: RolloutArgs,
    /// Maximum time to wait [default: for ever]
    #[arg(long, value_name = "TIME")]
    pub(super) timeout: Option<Period>,
    /// Also wait while it is paused
    #[arg(long)]
    pub(super) through_pauses: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SignArgs {
    /// The directory of documents; with --add, a bundle
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    /// The nodes with their groups, labels and values
    #[arg(long, short, value_name = "FILE", required_unless_present = "add")]
    pub(super) inventory: Option<PathBuf>,
    /// Where the bundle is written; the directory must not exist
    #[arg(long, short, value_name = "BUNDLE", required_unless_present = "add")]
    pub(super) out: Option<PathBuf>,
    /// Add a signature to a bundle
    #[arg(long, conflicts_with_all = ["inventory", "out"])]
    pub(super) add: bool,
    /// Sign with this SSH key, private or public (then by the agent or a hardware token); without it, the command to
    /// sign with is printed
    #[arg(long, value_name = "FILE")]
    pub(super) signing_key: Option<PathBuf>,
    /// Only these nodes; may be given several times
    #[arg(long = "node", value_name = "NAME")]
    pub(super) nodes: Vec<Name>,
    /// Only nodes of these groups; may be given several times
    #[arg(long = "group", value_name = "NAME")]
    pub(super) groups: Vec<Name>,
    /// Only nodes with this label; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(super) labels: Vec<(String, String)>,
    /// The name of the rollout [default: the date and a number]
    #[arg(long, value_name = "NAME")]
    pub(super) id: Option<Name>,
    /// How many nodes each wave reaches, such as 1,10%,100%
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = wave, default_value = "1,10%,50%,100%")]
    pub(super) waves: Vec<Wave>,
    /// How many nodes may be in their trials at the same time
    #[arg(long, value_name = "N", default_value = "100")]
    pub(super) max_in_flight: u64,
    /// With more failed nodes than this it stops, and every touched node goes back
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) max_failed: u64,
    /// How long a node is converged without a break before it confirms its document
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(super) settle: Period,
    /// A node that has not confirmed after this time goes back by itself
    #[arg(long, value_name = "TIME", default_value = "2m")]
    pub(super) confirm_within: Period,
    /// The pause after each wave
    #[arg(long, value_name = "TIME", default_value = "1m")]
    pub(super) soak: Period,
    /// No node begins with it later than this after now
    #[arg(long, value_name = "TIME", default_value = "24h", conflicts_with = "not_after")]
    pub(super) valid_for: Period,
    /// No node begins with it later, such as 2026-12-01T12:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(super) not_after: Option<Time>,
    /// The most that a step may destroy; a node with a step above it goes back
    #[arg(long, value_name = "CLASS", value_enum, default_value = "compensable")]
    pub(super) class: ClassWord,
    /// What the guards of nodes let through: more deletes than usual, deletes of others' objects as a side effect; may be given several times
    #[arg(long, value_name = "WHAT", value_parser = ["mass-delete", "cascades"])]
    pub(super) accept: Vec<String>,
    /// Do not ask the store: this is the generation, and nodes fall back to the documents of --previous
    #[arg(long, value_name = "GENERATION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) offline: Option<u64>,
    /// The bundle that the nodes have now; nodes that are not in it fall back to their own document
    #[arg(long, value_name = "BUNDLE", requires = "offline")]
    pub(super) previous: Option<PathBuf>,
    /// Do not check the rendered documents: they name files that are on the nodes only
    #[arg(long)]
    pub(super) no_check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassWord {
    /// Everything can be undone exactly
    Reversible,
    /// Also what only a restart or a repeat makes good, such as a reload
    Compensable,
    /// Also what cannot be undone
    Irreversible,
}

impl From<ClassWord> for Class {
    fn from(word: ClassWord) -> Self {
        match word {
            ClassWord::Reversible => Class::Reversible,
            ClassWord::Compensable => Class::Compensable,
            ClassWord::Irreversible => Class::Irreversible,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct InventoryArgs {
    /// An inventory: it is checked and compared with the store
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// Write groups, labels and rings of the file to the store; values stay in the file
    #[arg(long, requires = "file")]
    pub(super) write: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EnrollArgs {
    /// The name of the node
    #[arg(value_name = "NODE")]
    pub(super) node: Name,
    /// Groups of the node; may be given several times
    #[arg(long = "group", value_name = "NAME")]
    pub(super) groups: Vec<Name>,
    /// Labels of the node; may be given several times
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub(super) labels: Vec<(String, String)>,
    /// Nodes of a lower ring come earlier in a rollout
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) ring: u32,
    /// Where NODE.key and NODE.csr are written
    #[arg(long, short, value_name = "DIR", default_value = ".")]
    pub(super) out: PathBuf,
    /// Do not write the node to the store
    #[arg(long)]
    pub(super) offline: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RetireArgs {
    /// The name of the node
    #[arg(value_name = "NODE")]
    pub(super) node: Name,
    /// Retire it although it is alive or belongs to a rollout that is not over
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PruneArgs {
    /// How many of the newest rollouts are kept in any case: these can be aborted
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) keep: usize,
    /// Only say what would be deleted
    #[arg(long)]
    pub(super) dry_run: bool,
}

fn wave(text: &str) -> Result<Wave, String> {
    let refused = || {
        format!("`{text}` is no wave: write a number of nodes or a percentage, such as 5 or 10%")
    };
    match text.strip_suffix('%') {
        Some(share) => {
            let share = share.parse().ok().filter(|share| (1..=100).contains(share));
            share.map(Wave::Percent).ok_or_else(refused)
        }
        None => text.parse().ok().filter(|count| *count > 0).map(Wave::Nodes).ok_or_else(refused),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let pair = pair.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| format!("`{text}` is no label: write NAME=VALUE"))
}
