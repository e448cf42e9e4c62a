//! Runs from new to old.

use super::text::{Columns, Side, ago};
use super::whole::{Whole, state};
use super::{Look, args, at, document, millis, time, unusable};
use crate::run::End;
use crate::tell::Format;
use crate::tell::written_short;
use crate::{Failure, print};
use serde_json::{Value, json};
use std::time::Duration;
use tidegate::Timestamp;
use tidegate::engine::{RunSummary, RunsPage};

/// So many digits of an id are shown at least: those that tell when it was made.
const ID_MIN: usize = 10;

/// A run of the list.
struct Listed {
    run: RunSummary,
    succeeded: usize,
    total: usize,
}

pub(crate) fn list(args: &args::List) -> Result<End, Failure> {
    let (runs, now) = at(&args.store, async |look| {
        let queue = args.queue.clone();
        let page = RunsPage {
            queue,
            open: args.open,
            top: true,
            limit: args.limit,
            ..RunsPage::default()
        };
        let mut listed = Vec::new();
        for run in look.engine.runs(page).await.map_err(unusable)? {
            listed.extend(Listed::read(look, run).await?);
        }
        Ok((listed, look.now))
    })?;
    match args.written.format {
        Format::Json => {
            let runs: Vec<Value> = runs.iter().map(|run| run.json(now)).collect();
            print(&document(json!({ "runs": runs })))
        }
        Format::Text if runs.is_empty() => {
            crate::tell("there are no such runs");
            Ok(End::Succeeded)
        }
        Format::Text => print(&text(&runs, now)),
    }
}

impl Listed {
    /// The run with how far it is; none if it was pruned meanwhile.
    async fn read(look: &Look, run: RunSummary) -> Result<Option<Self>, Failure> {
        let view = look.engine.store().run(run.id).await.map_err(unusable)?;
        Ok(view.map(|view| {
            let whole = Whole::new(view);
            Listed { succeeded: whole.succeeded(), total: whole.tasks.len(), run: whole.view.run }
        }))
    }

    fn took(&self, now: Timestamp) -> Duration {
        let end = self.run.ended.map_or(now, |(_, at)| at);
        end.since(self.run.submitted_at)
    }

    fn json(&self, now: Timestamp) -> Value {
        let mut value = head(&self.run);
        value["took_ms"] = millis(self.took(now));
        value["succeeded"] = json!(self.succeeded);
        value["total"] = json!(self.total);
        value
    }
}

/// What is told of a run wherever it is.
pub(super) fn head(run: &RunSummary) -> Value {
    json!({
        "number": run.key.0,
        "id": run.id.to_string(),
        "name": run.plan.workflow(),
        "queue": &*run.queue,
        "state": state(run).to_string(),
        "submitted_at": time(run.submitted_at),
        "paused_at": run.paused_at.map(time),
        "ended_at": run.ended.map(|(_, at)| time(at)),
        "retry_of": run.retry_of.map(|id| id.to_string()),
    })
}

fn text(runs: &[Listed], now: Timestamp) -> String {
    let ids: Vec<String> = runs.iter().map(|listed| listed.run.id.to_string()).collect();
    let digits = digits(&ids);
    let mut columns = Columns::new([
        ("RUN", Side::Right),
        ("ID", Side::Left),
        ("NAME", Side::Left),
        ("STATE", Side::Left),
        ("DONE", Side::Right),
        ("BEGAN", Side::Right),
        ("TOOK", Side::Right),
    ]);
    for (listed, id) in runs.iter().zip(&ids) {
        let Listed { run, succeeded, total } = listed;
        let cells = [
            run.key.0.to_string(),
            id[..digits].to_owned(),
            run.plan.workflow().to_owned(),
            state(run).to_string(),
            format!("{succeeded}/{total}"),
            ago(run.submitted_at, now),
            written_short(listed.took(now)),
        ];
        columns.row(cells, Vec::new());
    }
    columns.text()
}

/// With so many digits all ids are told apart.
fn digits(ids: &[String]) -> usize {
    let mut sorted: Vec<&String> = ids.iter().collect();
    sorted.sort_unstable();
    let same = |one: &str, other: &str| {
        one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
    };
    let longest = sorted.windows(2).map(|pair| same(pair[0], pair[1]) + 1).max();
    longest.unwrap_or(0).max(ID_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_as_short_as_they_can_be_told_apart() {
        let ids = ["01aaaaaaaaaaaab", "01aaaaaaaaaaaac", "01b"].map(|id| format!("{id:0<26}"));
        assert_eq!(digits(&ids), 15);
        assert_eq!(digits(&ids[1..]), ID_MIN);
        assert_eq!(digits(&[]), ID_MIN);
    }
}
