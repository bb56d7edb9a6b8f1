//! Lists every request that the simulator answers, one JSON object a line, for whoever judges it.
#![expect(clippy::print_stdout, reason = "whoever started it reads what it prints")]

use homeostat_pve_simulator::parameters::REQUESTS;
use serde_json::json;

fn main() {
    for request in REQUESTS {
        let listed = json!({
            "method": request.method, "path": request.path, "parameters": request.parameters,
            "returns": request.returns,
        });
        println!("{listed}");
    }
}
