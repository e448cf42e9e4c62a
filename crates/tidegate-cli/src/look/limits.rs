//! The limits of a store, and changing one.

use super::text::{Columns, Side};
use super::{args, at, beside, document, millis, unusable};
use crate::file::quoted;
use crate::run::End;
use crate::tell::Format;
use crate::waves::plain;
use crate::{Failure, print, tell};
use serde_json::{Value, json};
use tidegate::core::graph::nearest;
use tidegate::engine::{LimitError, LimitState};

pub(crate) fn limits(args: &args::Limits) -> Result<End, Failure> {
    if let Some(args::LimitsCommand::Set(args)) = &args.command {
        return set(args);
    }
    let limits = at(&args.store, async |look| look.engine.limits().await.map_err(unusable))?;
    match args.written.format {
        Format::Json => {
            let limits: Vec<Value> = limits.iter().map(json).collect();
            print(&document(json!({ "limits": limits })))
        }
        Format::Text if limits.is_empty() => {
            tell("there are no limits in this store");
            Ok(End::Succeeded)
        }
        Format::Text => print(&text(&limits)),
    }
}

fn json(state: &LimitState) -> Value {
    let LimitState { limit, key, in_use, waiting, .. } = state;
    let rate = limit.most_in_time();
    json!({
        "name": limit.name(),
        "key": key,
        "at_once": limit.most_at_once(),
        "rate": rate.map(|rate| json!({ "units": rate.units, "per_ms": millis(rate.per) })),
        "in_use": in_use,
        "waiting": waiting,
    })
}

fn text(limits: &[LimitState]) -> String {
    let mut columns = Columns::new([
        ("LIMIT", Side::Left),
        ("ALLOWS", Side::Left),
        ("IN USE", Side::Right),
        ("WAITING", Side::Right),
    ]);
    for LimitState { limit, key, in_use, waiting, .. } in limits {
        let name = match key.as_str() {
            "" => limit.name().to_owned(),
            key => format!("{} for {key}", limit.name()),
        };
        let cells = [name, limit.to_string(), in_use.to_string(), waiting.to_string()];
        columns.row(cells, Vec::new());
    }
    columns.text()
}

fn set(args: &args::SetLimit) -> Result<End, Failure> {
    let limit = args.bound.of(&args.name);
    let said = beside(&args.store, async |look| {
        let there = look.engine.limits().await.map_err(unusable)?;
        let names = || there.iter().map(|state| state.limit.name());
        let name = plain(limit.name());
        match look.engine.set_limit(limit.clone()).await {
            Ok(true) => {
                let old = there.iter().find(|state| state.limit.name() == limit.name());
                let was = old.map(|old| format!(" (it was {})", old.limit)).unwrap_or_default();
                Ok(format!("limit {name} is {limit}{was}\n"))
            }
            Ok(false) => Ok(format!("limit {name} is {limit} already\n")),
            Err(LimitError::Unknown(name)) => {
                let there = match nearest(&name, names()) {
                    Some(near) => format!("is {} meant?", quoted(near)),
                    None => "a limit is made when a file that declares it is run".to_owned(),
                };
                let what = format!("there is no limit {} in this store; {there}", quoted(&name));
                Err(Failure::Undone(what))
            }
            Err(LimitError::Invalid(error)) => Err(Failure::Wrong(error.to_string())),
            Err(error) => Err(unusable(error)),
        }
    })?;
    print(&said)
}
