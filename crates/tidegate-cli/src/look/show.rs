//! One run: its tasks, how each stands, how long it took, and what it waits for.

use super::list::head;
use super::text::{Columns, Side, ago, note, or_dash};
use super::whole::{Parts, Whole, state, tally};
use super::{Look, args, at, document, millis, target, time, unusable};
use crate::run::End;
use crate::tell::Format;
use crate::tell::written_short;
use crate::view::cause;
use crate::waves::{count, plain};
use crate::{Failure, print};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tidegate::RunId;
use tidegate::core::explain::Rough;
use tidegate::core::graph::TaskIndex;
use tidegate::core::lifecycle::{State, WorkerId};
use tidegate::core::store::RunView;
use tidegate::engine::{Kind, RunSummary};

/// So many of them in text, of each task.
const CHILDREN_SHOWN: usize = 5;

/// A run with all that is shown of it.
struct Shown<'l> {
    look: &'l Look,
    whole: Whole,
    /// The run of the items of each task that has such.
    items: Vec<Option<RunView>>,
    /// Other runs that tasks have begun, the newest first.
    children: Vec<RunSummary>,
    /// Whether somebody works on its queue.
    is_served: bool,
    /// Workers that have died and were not taken over from so far.
    dead: Vec<WorkerId>,
}

pub(crate) fn show(args: &args::Show) -> Result<End, Failure> {
    let text = at(&args.store, async |look| {
        let run = target::run(&look.engine, args.run.as_deref()).await?;
        let shown = Shown::read(look, run.id).await?;
        Ok(match args.written.format {
            Format::Json => document(shown.json()),
            Format::Text => shown.text(),
        })
    })?;
    print(&text)
}

impl<'l> Shown<'l> {
    async fn read(look: &'l Look, run: RunId) -> Result<Self, Failure> {
        let whole = Whole::read(&look.engine, run).await?;
        let mut items = Vec::new();
        for parts in &whole.tasks {
            items.push(whole.items(&look.engine, parts).await?);
        }
        let children = whole.children(&look.engine).await?;
        let workers = look.engine.workers().await.map_err(unusable)?;
        let queue = &*whole.view.run.queue;
        let serves = |queues: &[String]| queues.iter().any(|served| served == queue);
        let is_served = workers.iter().any(|worker| worker.alive && serves(&worker.queues));
        let dead = look.engine.store().dead().await.map_err(unusable)?;
        Ok(Shown { look, whole, items, children, is_served, dead })
    }

    fn children_of(&self, parts: &Parts) -> impl Iterator<Item = &RunSummary> {
        let task = self.whole.task(parts.main).key;
        self.children.iter().filter(move |child| child.parent == Some(task))
    }

    /// The log of the last attempt that has one.
    fn log(&self, index: TaskIndex) -> Option<(u32, PathBuf)> {
        let run = &self.whole.view.run;
        let attempt = self.whole.task(index).life.attempt;
        last_log(self.look, run.id, run.plan.graph().name(index), attempt)
    }

    // ---------------------------------------------------------------------------------- text --

    fn text(&self) -> String {
        let mut columns = Columns::new([
            ("TASK", Side::Left),
            ("STATE", Side::Left),
            ("ATTEMPT", Side::Right),
            ("QUEUED", Side::Right),
            ("TOOK", Side::Right),
        ]);
        for (parts, items) in self.whole.tasks.iter().zip(&self.items) {
            let (at, now) = (self.whole.stands(parts), self.look.now);
            let life = &self.whole.task(at).life;
            let attempt = match (life.entries, self.whole.plan().task(at).rules.retries) {
                (0, _) => "-".to_owned(),
                (_, 0) => life.attempt.to_string(),
                (_, retries) => format!("{}/{}", life.attempt, retries.saturating_add(1)),
            };
            let state =
                if life.is_taken_over() { "taken over" } else { life.state.kind().as_str() };
            let cells = [
                parts.name.clone(),
                state.replace('_', " "),
                attempt,
                or_dash(self.whole.queued(at, now)),
                or_dash(self.whole.took(at, now)),
            ];
            columns.row(cells, self.notes(parts, items.as_ref()));
        }
        self.heading() + "\n" + &columns.text()
    }

    fn heading(&self) -> String {
        let (run, now) = (&self.whole.view.run, self.look.now);
        let mut lines = vec![format!("{}: {}", target::called(run), state(run))];
        let began = ago(run.submitted_at, now);
        lines.push(match run.ended {
            Some((_, at)) => {
                let took = written_short(at.since(run.submitted_at));
                format!("  began {} ({began}), took {took}", run.submitted_at)
            }
            None => format!("  began {} ({began})", run.submitted_at),
        });
        lines.push(format!("  id {}", run.id));
        lines.push(format!("  queue {}", plain(&run.queue)));
        lines.extend(run.retry_of.map(|id| format!("  goes on with run {id}")));
        lines.extend(run.paused_at.map(|at| format!("  paused {}", ago(at, now))));
        let (succeeded, total) = (self.whole.succeeded(), self.whole.tasks.len());
        lines.push(format!("  {succeeded} of {} succeeded", count(total, "task")));
        if run.ended.is_none() && !self.is_served {
            lines.push("  nobody works on it: no living worker serves its queue".to_owned());
        }
        lines.join("\n") + "\n"
    }

    /// What is said of a task under its line.
    fn notes(&self, parts: &Parts, items: Option<&RunView>) -> Vec<String> {
        let (at, now) = (self.whole.stands(parts), self.look.now);
        let task = self.whole.task(at);
        let kind = task.life.state.kind();
        let mut notes: Vec<String> = Vec::new();
        if kind == Kind::Blocked {
            let after = self.open_before(parts);
            let after = (!after.is_empty()).then(|| target::names(after.into_iter()));
            notes.extend(after.map(|names| format!("after {names}")));
        }
        if let Some((what, since)) = self.whole.waits_for(at).filter(|_| items.is_none()) {
            notes.push(format!("waits for {what} since {}", Rough(now.since(since))));
        }
        if let Some(worker) = self.whole.owned_by(at, &self.dead) {
            notes.push(format!("its process has died (worker {})", worker.0));
        }
        if let State::Ready { due, .. } = task.life.state
            && due > now
        {
            notes.push(format!("not before {due} (in {})", Rough(due.since(now))));
        }
        notes.extend(items.map(|items| told(items.tasks.len(), "item", &tally(items))));
        for child in self.children_of(parts).take(CHILDREN_SHOWN) {
            notes.push(format!("has begun {}: {}", target::called(child), state(child)));
        }
        let more = self.children_of(parts).count().saturating_sub(CHILDREN_SHOWN);
        notes.extend((more > 0).then(|| format!("has begun {}", count(more, "other run"))));
        let failed = matches!(kind, Kind::Failed | Kind::TimedOut);
        notes.extend(task.error.as_deref().map(cause).filter(|error| !error.is_empty()));
        let is_worth_a_look = failed || !kind.is_terminal();
        let log = self.log(parts.main).filter(|_| is_worth_a_look);
        let log = log.map(|(_, path)| format!("  log {}\n", plain(&path.to_string_lossy())));
        notes.iter().map(|text| note(text)).chain(log).collect()
    }

    /// The names of what a task comes after and what is not over.
    fn open_before(&self, parts: &Parts) -> Vec<&str> {
        let open = |name: &&str| {
            let before = self.whole.plan().graph().find(name);
            before.is_none_or(|before| !self.whole.kind(before).is_terminal())
        };
        self.whole.after(parts).into_iter().filter(open).collect()
    }

    // ---------------------------------------------------------------------------------- json --

    fn json(&self) -> Value {
        let mut run = head(&self.whole.view.run);
        run["succeeded"] = json!(self.whole.succeeded());
        run["total"] = json!(self.whole.tasks.len());
        run["served"] = json!(self.is_served);
        let tasks = self.whole.tasks.iter().zip(&self.items);
        let tasks: Vec<Value> =
            tasks.map(|(parts, items)| self.task_json(parts, items.as_ref())).collect();
        json!({ "run": run, "tasks": tasks })
    }

    fn task_json(&self, parts: &Parts, items: Option<&RunView>) -> Value {
        let (at, now) = (self.whole.stands(parts), self.look.now);
        let (task, whole) = (self.whole.task(at), &self.whole);
        let reason = match &task.life.state {
            State::Failed(reason) | State::TimedOut(reason) | State::Cancelled(reason) => {
                Some(reason.as_str())
            }
            _ => None,
        };
        let waits = whole.waits_for(at);
        let log = self.log(parts.main);
        json!({
            "name": parts.name,
            "state": task.life.state.kind().as_str(),
            "reason": reason,
            "process_died": whole.owned_by(at, &self.dead).is_some(),
            "taken_over": task.life.is_taken_over(),
            "attempt": task.life.attempt,
            "attempts": whole.plan().task(at).rules.retries.saturating_add(1),
            "entries": task.life.entries,
            "after": whole.after(parts),
            "began_at": task.life.started.map(time),
            "ended_at": task.ended_at.map(time),
            "queued_ms": whole.queued(at, now).map(millis),
            "took_ms": whole.took(at, now).map(millis),
            "active_ms": millis(task.life.active),
            "waits_for": waits.map(|(what, since)| json!({ "what": what, "since": time(since) })),
            "error": task.error,
            "log": log.as_ref().map(|(_, path)| path.to_string_lossy()),
            "items": items.map(|items| {
                let states = tally(items);
                let states = states.iter().map(|(kind, number)| (kind.as_str(), *number));
                let states: BTreeMap<_, _> = states.collect();
                json!({ "run": items.run.id.to_string(), "total": items.tasks.len(), "states": states })
            }),
            "children": self.children_of(parts).map(head).collect::<Vec<_>>(),
        })
    }
}

/// The log of the last attempt up to this one that has one.
pub(super) fn last_log(
    look: &Look,
    run: RunId,
    task: &str,
    attempt: u32,
) -> Option<(u32, PathBuf)> {
    let logs = (1..=attempt).rev().filter_map(|at| Some((at, look.engine.log(run, task, at)?)));
    logs.into_iter().find(|(_, path)| path.exists())
}

/// `5 items: 3 succeeded, 1 active, 1 ready`.
fn told(total: usize, what: &str, tally: &BTreeMap<Kind, usize>) -> String {
    // What has come furthest first.
    let parts = tally
        .iter()
        .rev()
        .map(|(kind, number)| format!("{number} {}", kind.as_str().replace('_', " ")));
    format!("{}: {}", count(total, what), parts.collect::<Vec<_>>().join(", "))
}
