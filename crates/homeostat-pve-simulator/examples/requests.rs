//! Lists every request that the simulator answers, one JSON object per line, for `xtask/pve/judge.py`.
#![expect(clippy::print_stdout, reason = "another program reads what it prints")]

use homeostat_pve_simulator::parameters::REQUESTS;
use serde_json::json;

fn main() {
    for request in REQUESTS {
        let listed = json!({
            "method": request.method, "path": request.path,
            "parameters": request.parameters().collect::<Vec<_>>(), "returns": request.returns,
        });
        println!("{listed}");
    }
}
