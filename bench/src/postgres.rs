//! P7: the engine on PostgreSQL, beside a bare loop and beside a rival, on the same server.
//!
//! `p7` measures all parts but the long ones, `p7.life` one of them. The server is the one that
//! `TIDEGATE_TEST_POSTGRES` names, or a new one that is removed afterwards. Every measurement has a
//! schema of its own. The two sides of a ratio alternate, and each round is printed as it ends;
//! `TIDEGATE_P7_ROUNDS` says how many rounds there are.
//!
//! - [`lives`]: full lives of one-task runs against the [`bare`] pipelined loop.
//! - [`running`]: tasks that stand in the store, against the [`rival`], and with a limit.
//! - [`workers`]: the same with several worker processes, and one run of many items.
//! - [`growth`]: a store with many ended tasks.
//! - [`steady`]: full rate for a while, also beside an open snapshot.
//! - [`start`]: the time until another worker starts a task.
//! - [`meter`]: the readings. [`schema`]: a place for tables.

mod bare;
mod growth;
mod lives;
mod meter;
mod rival;
mod running;
mod schema;
mod start;
mod steady;
mod workers;

use crate::figure::Figure;
use crate::sample::is_chosen;
use crate::server::Server;
use meter::ServerMeter;
pub(crate) use workers::run_worker;

/// A part of P7.
struct PostgresPart {
    name: &'static str,
    measure: fn(&MeasuredServer) -> Vec<Figure>,
    /// Whether it is measured only when it is named.
    is_long: bool,
}

const fn part(
    name: &'static str,
    measure: fn(&MeasuredServer) -> Vec<Figure>,
    is_long: bool,
) -> PostgresPart {
    PostgresPart { name, measure, is_long }
}

const PARTS: [PostgresPart; 11] = [
    part("p7.life", lives::measure_lives, false),
    part("p7.running", running::measure_running, false),
    part("p7.limit", running::measure_limit, false),
    part("p7.workers", workers::measure_workers, false),
    part("p7.items", workers::measure_items, false),
    part("p7.start", start::measure_start, false),
    part("p7.growth", growth::measure_growth, false),
    part("p7.p6", growth::measure_crowd, true),
    part("p7.snapshot", steady::measure_snapshot, true),
    part("p7.steady", steady::measure_steady, true),
    part("p7.bare", lives::measure_bare, true),
];

/// A server, and the processor time that it uses.
struct MeasuredServer {
    server: Server,
    meter: ServerMeter,
}

impl MeasuredServer {
    fn find_or_start() -> Self {
        let server = Server::find_or_start();
        let meter = ServerMeter::of_server(&server);
        MeasuredServer { server, meter }
    }
}

/// Measures the parts that are named, `p7` for all that are not long.
///
/// # Errors
/// There is no such part.
pub(crate) fn measure_chosen(chosen: &[String]) -> Result<Vec<Figure>, String> {
    let is_known = |name: &String| PARTS.iter().any(|part| is_chosen(part.name, name));
    if let Some(unknown) = chosen.iter().find(|name| !is_known(name)) {
        let known = PARTS.map(|part| part.name).join(", ");
        return Err(format!("there is no figure \"{unknown}\"; there are: {known}"));
    }
    let is_wanted = |part: &&PostgresPart| {
        chosen.iter().any(|name| *name == part.name || !part.is_long && is_chosen(part.name, name))
    };
    let server = MeasuredServer::find_or_start();
    let mut figures = Vec::new();
    for part in PARTS.iter().filter(is_wanted) {
        eprintln!("measuring {} …", part.name);
        figures.extend((part.measure)(&server));
    }
    Ok(figures)
}
