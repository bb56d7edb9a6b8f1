use homeostat_rtnl::{Applied, DesiredState, Network, Route, RouteKey, Verdict, blocking};

type Error = Box<dyn std::error::Error>;

/// Gives a container its address and its way out; takes back what an earlier call gave it and this
/// one does not. What others gave it stays. `applied` is what the last call returned.
pub(crate) fn connect(netns: &str, address: &str, applied: &Applied) -> Result<Applied, Error> {
    let mut desired = DesiredState::builder();
    desired.address("eth0".parse()?, address.parse()?)?;
    let out = RouteKey::new("0.0.0.0/0".parse()?);
    desired.route(out, Route::via("192.0.2.1".parse()?))?;

    let network = Network::at(netns)?.owner("agent").requiring_links(); // All, or nothing.
    let (report, applied) = blocking::reconcile(&network, desired.build()?, applied)?;
    match report.verdict() {
        Verdict::Converged => Ok(applied),
        Verdict::Open(_) | Verdict::Broken(_) => Err(report.to_string().into()),
    }
}

fn main() -> Result<(), Error> {
    let netns = std::env::args().nth(1).ok_or("give the path of a namespace")?;
    connect(&netns, "192.0.2.10/24", &Applied::default()).map(drop)
}
