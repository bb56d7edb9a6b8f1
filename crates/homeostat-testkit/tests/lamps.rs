//! The test that the laws page shows, for the API that the kit's front page shows.

include!("../../homeostat-kit/examples/lamps/api.rs");
include!("../examples/lamps/laws.rs");
