//! Hooks for the tests of this store. Nothing here has a use in production.

use crate::sql::{CatalogStatements, LoadStatements, WriteStatements};
use crate::{apply, explain, groups, mounts, prune, records, sql, stored, sweep};
use std::path::Path;

/// Name and text of every statement, for the test that shows by which index each finds its rows.
pub fn list_statements() -> Vec<(&'static str, &'static str)> {
    let kept = [CatalogStatements::ALL, LoadStatements::ALL, WriteStatements::ALL];
    let rows = [sql::QUERIES, groups::QUERIES, stored::QUERIES, records::QUERIES];
    let rare = [explain::QUERIES, prune::QUERIES, apply::QUERIES, sweep::QUERIES];
    [&kept[..], &rows[..], &rare[..]].concat().concat()
}

/// The kind of the network file system that a file is on where these file systems are mounted, in the
/// words of `/proc/self/mountinfo`.
pub fn find_network(mounts: &str, file: &Path) -> Option<String> {
    mounts::network_in(mounts, file).map(|network| network.kind)
}
