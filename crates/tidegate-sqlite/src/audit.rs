//! Every way in which the database contradicts itself.
//!
//! The rows are compared by [`Auditor`], the same for every store. Here stand the checks that only this
//! store can make: whether its indexes agree with its rows, what SQLite itself says of the file, and
//! workers that hold their locks and give no sign.
//!
//! Deliberately absent from the usual audit: SQLite's own check of a table, which holds one snapshot
//! for all of it ([`check_files`]).

mod index;
mod workers;

pub(crate) use index::check_files;

use crate::error::Error;
use crate::loader::RowLoader;
use crate::open::Place;
use tidegate_core::audit::Auditor;
use tidegate_core::store::Finding;

/// Findings of SQLite and of an index after which no more are named.
const FINDINGS_MAX: usize = 1_000;

/// Looks at everything.
pub(crate) fn audit(place: &Place) -> Result<Vec<Finding>, Error> {
    place.check()?;
    // A process that asks for an audit is neither stopped nor hangs.
    place.locks.give_sign();
    let connection = place.open_reader()?;
    let mut loader = RowLoader::new(&connection, place)?;
    let silent = workers::find_silent(&connection, place)?;
    let mut auditor = Auditor::new(None);
    while !auditor.is_done() {
        loader.read_snapshot(|loader| auditor.take_step(loader))?;
    }
    let mut findings = auditor.into_findings();
    index::check_indexes(&connection, &mut findings)?;
    workers::report_unknown(&connection, place, &mut findings)?;
    workers::report_silent(&connection, place, silent, &mut findings)?;
    Ok(findings)
}
