//! Hooks for the tests of this store. Nothing here has a use in production.

use crate::sql::{CatalogStatements, LoadStatements, WriteStatements};
use crate::{explain, prune, sql, stored, waiting};

/// Name and text of every statement, for the test that shows by which index each finds its rows.
pub fn list_statements() -> Vec<(&'static str, &'static str)> {
    let kept = [CatalogStatements::ALL, LoadStatements::ALL, WriteStatements::ALL];
    let rare = [sql::QUERIES, explain::QUERIES, prune::QUERIES, stored::QUERIES, waiting::QUERIES];
    [&kept[..], &rare[..]].concat().concat()
}
