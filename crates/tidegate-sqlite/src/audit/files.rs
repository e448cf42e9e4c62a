//! What SQLite itself can tell of the file.

use super::FINDINGS_MAX;
use crate::error::Error;
use crate::open::Place;
use tidegate_core::store::Finding;

/// Asks SQLite to check every table with its indexes, one after the other, so that no snapshot is held
/// for all of them. For a large table it is held for seconds.
pub(crate) fn check_files(place: &Place) -> Result<Vec<Finding>, Error> {
    place.check()?;
    let connection = place.open_reader()?;
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
    let mut tables = connection.prepare(tables)?;
    let tables = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>();
    let mut findings = Vec::new();
    for table in tables? {
        let check = format!("PRAGMA integrity_check(\"{table}\")");
        let mut check = connection.prepare(&check)?;
        let lines = check.query_map([], |row| row.get::<_, String>(0))?;
        for line in lines.collect::<rusqlite::Result<Vec<_>>>()? {
            if line != "ok" && findings.len() < FINDINGS_MAX {
                findings.push(Finding::new("file", format!("table {table}: {line}")));
            }
        }
    }
    Ok(findings)
}
