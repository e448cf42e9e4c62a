//! The store as a whole: checking it, making it smaller, copying it.

use super::text::paragraph;
use super::{Look, args, at, at_place, beside, document, unusable};
use crate::file::quoted;
use crate::run::End;
use crate::store::{self as place, Place};
use crate::tell::Format;
use crate::waves::{count, plain};
use crate::{Failure, print};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tidegate::Retention;
use tidegate::engine::{Finding, Repaired};

pub(crate) fn store(command: &args::StoreCommand) -> Result<End, Failure> {
    match command {
        args::StoreCommand::Check(args) => check(args),
        args::StoreCommand::Prune(args) => prune(args),
        args::StoreCommand::Backup(args) => backup(args),
        args::StoreCommand::Copy(args) => copy(args),
    }
}

pub(crate) fn check(args: &args::Check) -> Result<End, Failure> {
    let (repaired, left) = match args.repair {
        false => (Vec::new(), at(&args.store, async |look| audit(look, args).await)?),
        true => beside(&args.store, async |look| {
            let repaired = look.engine.repair(&audit(look, args).await?).await;
            Ok((repaired, audit(look, args).await?))
        })?,
    };
    let text = match args.written.format {
        Format::Json => document(json!({
            "findings": left.iter().map(finding).collect::<Vec<_>>(),
            "repaired": repaired.iter().map(repair).collect::<Vec<_>>(),
        })),
        Format::Text => told(&repaired, &left, args.repair),
    };
    print(&text)?;
    Ok(if left.is_empty() { End::Succeeded } else { End::Failed })
}

async fn audit(look: &Look, args: &args::Check) -> Result<Vec<Finding>, Failure> {
    let audit = look.engine.audit();
    let audit = if args.thorough { audit.thorough() } else { audit };
    audit.await.map_err(unusable)
}

fn finding(finding: &Finding) -> Value {
    json!({
        "rule": finding.rule,
        "what": finding.what,
        "meaning": finding.meaning(),
        "repair": finding.repair.as_ref().map(ToString::to_string),
    })
}

fn repair(repaired: &Repaired) -> Value {
    json!({
        "repair": repaired.repair.to_string(),
        "changed": repaired.changed.as_ref().ok(),
        "error": repaired.changed.as_ref().err().map(ToString::to_string),
    })
}

fn told(repaired: &[Repaired], left: &[Finding], repairs: bool) -> String {
    let mut text = String::new();
    for repaired in repaired {
        text += &paragraph(&repaired.to_string(), "", "  ");
    }
    for finding in left {
        text += &paragraph(&finding.to_string(), "", "  ");
        text += &paragraph(finding.meaning(), "  ", "  ");
        if let Some(repair) = finding.repair.as_ref().filter(|_| !repairs) {
            text += &paragraph(&format!("--repair puts it right: {repair}"), "  ", "  ");
        }
    }
    match left.len() {
        0 => text + "nothing is wrong with the store\n",
        found => text + &format!("{} left\n", count(found, "finding")),
    }
}

fn prune(args: &args::Prune) -> Result<End, Failure> {
    let retention = Retention { runs: Some(args.older_than), ..Retention::default() };
    let pruned =
        beside(&args.store, async |look| look.engine.prune(retention).await.map_err(unusable))?;
    let (runs, logs) = (count(pruned.runs as usize, "run"), count(pruned.logs as usize, "log"));
    print(&format!("removed {runs} and {logs}\n"))
}

fn backup(args: &args::Backup) -> Result<End, Failure> {
    at(&args.store, async |look| copy_to(look, &args.path).await)?;
    print(&format!("wrote {}\n", plain(&args.path.to_string_lossy())))
}

async fn copy_to(look: &Look, path: &Path) -> Result<(), Failure> {
    let cannot = |error| Failure::Undone(format!("cannot copy the store: {error}"));
    look.engine.backup(path).await.map_err(cannot)
}

/// Copies a store to another place, which may be of another kind one day.
fn copy(args: &args::Copy) -> Result<End, Failure> {
    let ((from, _), (to, path)) = (known(&args.from)?, known(&args.to)?);
    if to.exists() {
        let what = format!("{} is there already, and stays as it is", to.name());
        return Err(Failure::Undone(what));
    }
    at_place(&from, async |look| {
        let workers = look.engine.workers().await.map_err(unusable)?;
        // Whoever only looks has nothing in hand that would be begun twice.
        let mut busy = workers.iter().filter(|worker| worker.alive && worker.slots > 0);
        if let Some(worker) = busy.next() {
            let what = format!(
                "{} is in use by worker {} ({}); stop that first, or make a copy of it as it is \
                 with: tidegate store backup",
                from.name(),
                worker.id.0,
                plain(&worker.name)
            );
            return Err(Failure::Undone(what));
        }
        copy_to(look, &path).await
    })?;
    print(&format!("copied {} to {}; the logs of commands stay there\n", from.name(), to.name()))
}

/// A store of a kind that can be copied, and its file.
fn known(named: &str) -> Result<(Place, PathBuf), Failure> {
    let place = place::nearest(Some(named))?;
    match place.path().map(Path::to_owned) {
        Some(path) if !named.is_empty() => Ok((place, path)),
        _ => {
            let named = quoted(named);
            let what = format!("{named} cannot be copied from or to: this build knows sqlite:");
            Err(Failure::Wrong(what))
        }
    }
}
